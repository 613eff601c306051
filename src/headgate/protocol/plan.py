"""A plan: what a policy decided in one round.

Tasks, nodes and jobs are named by their rows in the snapshot; rows never change their meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, overload

from headgate.protocol.reasons import PolicyBroke, Reason

Memo = Mapping[str, Mapping[int, float]]
"""Changes of what a policy remembers of jobs: name of a column -> row of a job -> finite number."""


class Placement(NamedTuple):  # a plan may have as many as there are GPUs: made in bulk
    """Run this task on these GPUs of this node; without GPUs, on its CPU slots."""

    task: int
    node: int
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why these jobs wait; with no jobs named, all waiting jobs that no other refusal names."""

    reason: Reason
    jobs: tuple[int, ...] = ()


class OnDemand(Sequence[Refusal]):
    """Refusals that are worked out when they are first looked at, by any thread, or pickled.

    Few rounds are ever asked why. Until then they keep alive all that `tell` needs. Where that
    breaks, they say so, as is said of a policy that breaks while it decides.
    """

    __slots__ = ("_refusals", "_tell")

    def __init__(self, tell: Callable[[], Iterable[Refusal]]) -> None:
        """Take what tells the refusals, the same whenever it is asked."""
        self._tell: Callable[[], Iterable[Refusal]] | None = tell
        self._refusals: tuple[Refusal, ...] = ()

    def _told(self) -> tuple[Refusal, ...]:
        tell = self._tell
        if tell is not None:
            try:
                self._refusals = tuple(tell())
            except Exception as error:  # noqa: BLE001  # anyone's policy may break in any way
                text = f"it cannot tell why: {type(error).__name__}: {error}"
                self._refusals = (Refusal(reason=PolicyBroke(message=text)),)
            self._tell = None  # last: whoever finds it gone finds the refusals
        return self._refusals

    @overload
    def __getitem__(self, index: int) -> Refusal: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Refusal, ...]: ...
    def __getitem__(self, index: int | slice) -> Refusal | tuple[Refusal, ...]:
        """Return one refusal, or some."""
        return self._told()[index]

    def __iter__(self) -> Iterator[Refusal]:
        """Yield them all: as fast as a tuple does."""
        return iter(self._told())

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._told())

    def __repr__(self) -> str:
        """Look like the tuple that they are."""
        return repr(self._told())

    def __reduce__(self) -> tuple[type, tuple[tuple[Refusal, ...]]]:
        """Cross to other processes as a plain tuple."""
        return tuple, (self._told(),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Placements, runs to be cut short, and refusals per group that waits for one cause.

    `preemptions` are tasks whose runs are to be stopped, and with them their gangs; they wait
    again, and their work is lost. Placements are on what is free now: what preemptions free is
    dealt out in the next round. `memo` is what the policy wants to remember of jobs, where that has
    changed: numbers that the engine keeps, shows in every snapshot (`Snapshot.memo`) and forgets
    with the job, and that mean something to the policy alone. At `again_at`, in seconds of the
    world's clock, the policy wants to be asked again even if nothing happens until then.
    Refusals explain, they change no state; so they are not part of equality, nor journaled, and may
    be computed `OnDemand`.
    """

    placements: tuple[Placement, ...] = ()
    preemptions: tuple[int, ...] = ()
    memo: Memo = field(default_factory=dict)
    again_at: float | None = None
    refusals: Sequence[Refusal] = field(default=(), compare=False)
