"""What verbs share: settings, output, tables, times, and errors with their exit codes."""
