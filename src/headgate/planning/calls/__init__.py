"""Small calls: which slot executes which calls."""
