"""How a process ended, in words."""

from __future__ import annotations

import signal


def how_it_ended(what: str, status: int) -> str:
    """Return a sentence on the end of a process; `status` is negative for a signal."""
    if status >= 0:
        return f"{what} ended with exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:  # most real-time signals have no name
        name = f"signal {-status}"
    return f"{what} was ended by {name}"
