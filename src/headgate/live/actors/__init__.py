"""Actors on Ray: node agents, masters, executors, spares, and the client of a master."""
