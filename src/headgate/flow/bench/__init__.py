"""Measurements of the flow core: seeded instances, GPU classes, our solver and its peers."""
