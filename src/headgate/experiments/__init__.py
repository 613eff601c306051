"""Published experiments, run again: their workloads, their figures beside ours, their claims."""
