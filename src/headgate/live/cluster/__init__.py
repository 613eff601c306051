"""The Ray cluster: its nodes are started, joined, watched and ordered, its actors named."""
