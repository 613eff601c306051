"""Policies that offer free GPUs to one job at a time: greedy sharing, and YARN's schedulers."""
