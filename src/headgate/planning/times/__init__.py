"""When: run times as estimates, and GPUs that are reserved from a time on."""
