"""Moves: which runs make room for others, and where they start again."""
