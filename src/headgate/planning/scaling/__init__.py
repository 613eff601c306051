"""Scaling: which nodes are ordered and removed, and which are drained."""
