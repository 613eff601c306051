"""Datasets, results, logs and files: served, copied, archived and removed by the controller."""
