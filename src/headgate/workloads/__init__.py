"""Programs that tasks run: what they are given, three real workloads, their inputs and checks."""
