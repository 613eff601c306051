"""Packing of recorded pods on recorded nodes, in random order, under several policies."""
