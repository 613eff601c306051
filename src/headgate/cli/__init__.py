"""The command line: every verb a function, every error one message."""
