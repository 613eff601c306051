"""Datasets, and the files and results of jobs: put, listed, fetched, removed."""
