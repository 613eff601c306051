"""The REST API of a running scheduler: the app, its server on a Unix socket, and its client."""
