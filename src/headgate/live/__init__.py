"""The live world, on Ray."""
