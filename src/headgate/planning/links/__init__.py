"""Links: traffic of jobs, contention, slowdown, and transfers of data."""
