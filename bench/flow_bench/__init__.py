"""Measurements of the flow core: seeded instances, GPU classes, Headgate's solver and its peers."""
