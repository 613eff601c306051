"""Part of a reason: moves of runs after which what waits would fit."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.base.units import format_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterMoves:
    """Tasks whose runs could move to other GPUs so that the gang, or the task, fits now.

    Each loses at most `lost_s` seconds: work since its last checkpoint, and the time to resume.
    `on` is whether the policy in force moves runs, where that costs less than the wait.
    """

    tasks: tuple[str, ...]
    lost_s: float
    on: bool = True

    def __str__(self) -> str:
        count = len(self.tasks)
        moved = f"after moving {count} task{'' if count == 1 else 's'}"
        return f"{moved}, {format_seconds(self.lost_s)}{'' if self.on else ', were moves on'}"


def fits_after(moves: AfterMoves | None, tasks: int = 1) -> str:
    """Return the end of a sentence about `tasks`, "" without moves."""
    return "" if moves is None else f", {tasks if tasks > 1 else 'fits'} {moves}"
