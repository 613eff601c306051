"""The sharing of YARN's schedulers: first the queue, user and job, then a GPU near the data."""

from headgate.policies.yarn.offers import Capacity, Fair

__all__ = ["Capacity", "Fair"]
