"""How a process ended, in words."""

from __future__ import annotations

import signal


class ProcessEnd(str):
    """A sentence on the end of a process, with its `status`, negative for a signal."""

    __slots__ = ("status",)
    status: int | None

    @classmethod
    def of(cls, sentence: str, status: int | None) -> ProcessEnd:
        """Return a sentence with a status, None if it is about no process."""
        found = cls(sentence)
        found.status = status
        return found


def how_it_ended(what: str, status: int) -> ProcessEnd:
    """Return a sentence on the end of a process; `status` is negative for a signal."""
    if status >= 0:
        return ProcessEnd.of(f"{what} ended with exit status {status}", status)
    try:
        name = signal.Signals(-status).name
    except ValueError:  # most real-time signals have no name
        name = f"signal {-status}"
    return ProcessEnd.of(f"{what} was ended by {name}", status)


def status_of(error: str) -> int | None:
    """Return the exit status of the process that an error is about, None without one."""
    return error.status if isinstance(error, ProcessEnd) else None
