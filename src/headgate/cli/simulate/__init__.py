"""The simulator, the demo, and packing: the same scheduler without Ray."""
