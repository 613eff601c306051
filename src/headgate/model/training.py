"""Training jobs: gangs whose width may change while they work."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.model.speed import SpeedCurve


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The work of a gang of equal tasks, of which the first ones run: as many as its *width*.

    It has `work` units to do (iterations, or samples), at the rates of `speeds` by its width, a
    number of tasks. To change its width, all its runs are stopped, and as many tasks as it has then
    start again, from the progress that its program saves when it gets notice; such a start
    takes `restart_s` seconds in which nothing is done.
    """

    work: float
    speeds: SpeedCurve
    restart_s: float = 0.0

    @property
    def narrowest_s(self) -> float:
        """How long its work takes with its smallest width, in seconds at a speed of 1."""
        return self.work / self.speeds.rates[0]

    def speed(self, width: int) -> float:
        """Return how many times as fast as with its smallest width it works with another one."""
        return self.speeds.rate(width) / self.speeds.rates[0]
