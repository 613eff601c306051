"""Figures of a run, computed from its events and its final state."""
