"""The flow paper's experiments, simulated and live."""
