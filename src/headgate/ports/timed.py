"""A policy of which the times of its decisions are measured."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the program imports this at its start
    from headgate.base.rng import Random
    from headgate.model import Job
    from headgate.ports.policy import Policy
    from headgate.protocol import Plan, Reason
    from headgate.state import Snapshot


class TimedPolicy:
    """A policy that decides as another one, and records how long that takes.

    These times are never part of a result.
    """

    def __init__(self, policy: Policy, clock: Callable[[], float]) -> None:
        """Time the decisions of a policy by a clock that counts seconds."""
        self.policy, self.name, self._clock = policy, policy.name, clock
        self.seconds = array("d")
        """How long each decision took."""

    def __getattr__(self, name: str) -> Any:
        """Return what else the policy offers (`ports.capabilities`): patience, a placer, prices."""
        return getattr(self.policy, name)

    def refuses(self, job: Job) -> Reason | None:
        """Return the policy's reason."""
        return self.policy.refuses(job)

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        """Return the policy's plan."""
        started = self._clock()
        plan = self.policy.decide(snapshot, rng)
        self.seconds.append(self._clock() - started)
        return plan
