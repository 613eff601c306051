"""Folds over events, and the figures of a run."""
