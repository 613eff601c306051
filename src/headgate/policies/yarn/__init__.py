"""The sharing of YARN's schedulers: whose turn it is first, then a place near the data."""

from headgate.policies.yarn.offers import CAPACITY, FAIR, Capacity, Fair

__all__ = ["CAPACITY", "FAIR", "Capacity", "Fair"]
