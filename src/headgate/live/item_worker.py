"""The name under which jobs in journals name the program of their slots (`model.SLOT`)."""

from headgate.live.calls.item_worker import serve

__all__ = ["serve"]
