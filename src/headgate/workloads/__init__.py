"""Programs that tasks run: what they are given, seven real workloads, their inputs and checks."""
