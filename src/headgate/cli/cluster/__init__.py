"""Headgate on this machine, and its nodes: the verbs that start, stop, show and change them."""
