"""Reproductions of published experiments: workloads, figures beside the published ones, claims."""
