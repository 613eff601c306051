"""A run on its node: what is prepared for it, its processes, and their connections."""
