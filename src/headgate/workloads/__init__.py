"""Programs that tasks run: their interface, seven real workloads, their inputs and checks."""
