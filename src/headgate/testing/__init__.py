"""Law suites that any policy inherits as tests, and random worlds for them."""
