"""The command line: one verb a function, one place where errors become words and exit codes."""
