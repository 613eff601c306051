"""Who gets how much: fair shares, what jobs hold and are owed, orders of jobs, owners."""

from headgate.base.moved import names_of

__getattr__ = names_of(__name__, [f"{__name__}.queue_tree", f"{__name__}.fair_shares"])
