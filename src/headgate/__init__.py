"""Headgate: fair shares of a GPU cluster, near the data, with a reason for every wait."""
