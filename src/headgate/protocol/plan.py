"""A plan: the outcome of one round of a policy, as steps in groups.

Tasks, nodes and jobs are named by their rows in the snapshot; rows keep their meaning while a
decision is outstanding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, starmap
from typing import Any, NamedTuple, TypeVar, overload

import numpy as np

from headgate.base.arrays import Bools, Ints
from headgate.protocol.hardened import Hardened
from headgate.protocol.reasons import PolicyBroke, Reason
from headgate.protocol.resize import Resize

T = TypeVar("T")

Memo = Mapping[str, Mapping[int, float]]
"""Changes of a policy's memo: name of a column -> row of a job -> finite number."""

NodeMemo = Mapping[str, Mapping[int, float]]
"""Numbers of a policy's memo by node: name of a column -> row of a node -> finite number."""


class Start(NamedTuple):
    """A start of this task on these GPUs of this node; without GPUs, on its CPU slots."""

    task: int
    node: int
    gpus: tuple[int, ...]


class Stop(NamedTuple):
    """Preempt the run of this task, and with it the gang that it belongs to."""

    task: int


class Move(NamedTuple):
    """Stop the run of this task; its next run starts on these GPUs of this node.

    They are held for it from admission on, and are free then, or are what its run holds: a gang
    moves as a whole, and members of it may stay where they are.
    """

    task: int
    node: int
    gpus: tuple[int, ...]


Step = Start | Stop | Move


class SetWidth(NamedTuple):
    """Give a training job (row) a width: so many of its tasks, its first ones, are its gang.

    Its runs, if any, are stopped before; then that many tasks wait to start together.
    """

    job: int
    tasks: int
    reason: Reason | None = None


class Group(NamedTuple):
    """Steps that are admitted all or none, and why: for stops, which job gets the GPUs."""

    steps: tuple[Step, ...]
    reason: Reason | None = None


_INT64, _UINT64 = np.dtype(np.int64), np.dtype(np.uint64)


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, _INT64)


def _check(name: str, values: object, length: int | None = None) -> None:
    """Raise ValueError for a value that is no int64 column of this length."""
    if not isinstance(values, np.ndarray) or values.dtype != _INT64 or values.ndim != 1:
        raise ValueError(f"{name}: not a one-dimensional array of int64")
    if length is not None and len(values) != length:
        raise ValueError(f"{name}: {len(values)} values, not {length}")


_PLACE_COLUMNS = ("task", "node", "gpu_offset", "gpu", "group")
_Placed = TypeVar("_Placed", bound="_Places")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Places:
    """Tasks on places in columns: of the i-th, `gpu[gpu_offset[i] : gpu_offset[i + 1]]` are GPUs.

    Raises ValueError for columns of inconsistent lengths.
    """

    task: Ints  # rows
    node: Ints  # rows
    gpu_offset: Ints  # [steps + 1]
    gpu: Ints  # indices on their nodes
    group: Ints  # numbers of their groups

    def __post_init__(self) -> None:
        name = type(self).__name__.lower()
        _check(f"{name}.task", self.task)
        count = len(self.task)
        _check(f"{name}.node", self.node, count)
        _check(f"{name}.group", self.group, count)
        _check(f"{name}.gpu", self.gpu)
        _check(f"{name}.gpu_offset", self.gpu_offset, count + 1)
        offset = self.gpu_offset
        ascends = count < 2 or (offset[1:] >= offset[:-1]).all()
        if offset[0] != 0 or offset[-1] != len(self.gpu) or not ascends:
            raise ValueError(f"{name}.gpu_offset: does not ascend from 0 to {len(self.gpu)}")

    @classmethod
    def of(cls: type[_Placed], steps: Sequence[Start | Move], group: Sequence[int]) -> _Placed:
        """Return steps in columns, each with the number of its group."""
        task, node, gpus = zip(*steps, strict=True) if steps else ((), (), ())
        return cls(
            task=_ints(task),
            node=_ints(node),
            gpu_offset=_ints([0, *accumulate(map(len, gpus))]),
            gpu=_ints([*chain.from_iterable(gpus)]),
            group=_ints(group),
        )

    def __len__(self) -> int:
        return len(self.task)

    def rows(self) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """Yield task, node and GPUs of each step, in order."""
        gpu, first = self.gpu.tolist(), 0
        ends = self.gpu_offset[1:].tolist()
        for task, node, end in zip(self.task.tolist(), self.node.tolist(), ends, strict=True):
            yield task, node, tuple(gpu[first:end])
            first = end

    def __hash__(self) -> int:
        return hash(self.task.tobytes())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return all(np.array_equal(getattr(self, n), getattr(other, n)) for n in _PLACE_COLUMNS)

    def take(self: _Placed, rows: Ints, group: Ints) -> _Placed:
        """Return the steps at `rows`, in that order, with new group numbers."""
        count = np.diff(self.gpu_offset)[rows]
        offset = np.append(0, np.cumsum(count))
        first = np.repeat(self.gpu_offset[rows] - offset[:-1], count)
        return type(self)(
            task=self.task[rows],
            node=self.node[rows],
            gpu_offset=offset,
            gpu=self.gpu[first + np.arange(offset[-1])],
            group=group,
        )

    def joined(self: _Placed, other: _Placed, shift: int) -> _Placed:
        """Return the steps of both; the groups of `other` are numbered from `shift` on."""
        return type(self)(
            task=np.concatenate([self.task, other.task]),
            node=np.concatenate([self.node, other.node]),
            gpu_offset=np.concatenate([self.gpu_offset, len(self.gpu) + other.gpu_offset[1:]]),
            gpu=np.concatenate([self.gpu, other.gpu]),
            group=np.concatenate([self.group, shift + other.group]),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Starts(_Places):
    """Start steps in columns."""

    def __iter__(self) -> Iterator[Start]:
        """Yield the starts one by one, in order."""
        return starmap(Start, self.rows())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moves(_Places):
    """Move steps in columns."""

    def __iter__(self) -> Iterator[Move]:
        """Yield the moves one by one, in order."""
        return starmap(Move, self.rows())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stops:
    """Stop steps in columns; raises ValueError for columns of inconsistent lengths."""

    task: Ints  # rows
    group: Ints  # numbers of their groups

    def __post_init__(self) -> None:
        _check("stops.task", self.task)
        _check("stops.group", self.group, len(self.task))

    @classmethod
    def of(cls, stops: Sequence[Stop], group: Sequence[int]) -> Stops:
        """Return stops in columns, each with the number of its group."""
        if not stops:
            return _NO_STOPS
        return cls(task=_ints([stop.task for stop in stops]), group=_ints(group))

    def __len__(self) -> int:
        return len(self.task)

    def __iter__(self) -> Iterator[Stop]:
        """Yield the stops one by one, in order."""
        return map(Stop, self.task.tolist())

    def __hash__(self) -> int:
        return hash(self.task.tobytes())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stops):
            return NotImplemented
        return all(np.array_equal(getattr(self, n), getattr(other, n)) for n in self.__slots__)


_NONE = _ints(())
_NO_STARTS, _NO_MOVES = Starts.of((), ()), Moves.of((), ())
_NO_STOPS = Stops(task=_NONE, group=_NONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The steps of a plan in columns, in groups that are admitted all or none.

    Groups are numbered from 0 and admitted in that order; `reasons` gives the reason of a group, by
    number, where it has one. Raises ValueError for a group number that is not below the number of
    steps.
    """

    starts: Starts = _NO_STARTS
    stops: Stops = _NO_STOPS
    moves: Moves = _NO_MOVES
    reasons: Mapping[int, Reason] = field(default_factory=dict)
    groups: int = field(init=False)
    """The number of groups."""

    def __post_init__(self) -> None:
        groups = 0
        for name in ("starts", "stops", "moves"):
            group: Ints = getattr(self, name).group
            if len(group):
                numbers = group.view(_UINT64)  # unsigned, a negative number is too large
                last = int(numbers.max() if len(group) > 1 else numbers[0])
                if last >= len(self):
                    raise ValueError(f"{name}.group: not between 0 and {len(self) - 1}")
                groups = max(groups, last + 1)
        object.__setattr__(self, "groups", groups)

    @classmethod
    def of(cls, groups: Iterable[Group | Step]) -> Steps:
        """Return groups as columns; a step outside groups is a group of its own.

        Groups without steps are left out.
        """
        found: dict[type, tuple[list[Any], list[int]]] = {t: ([], []) for t in (Start, Stop, Move)}
        reasons: dict[int, Reason] = {}
        number = 0
        for each in groups:
            steps, reason = each if isinstance(each, Group) else ((each,), None)
            for step in steps:
                of_kind, group = found[type(step)]
                of_kind.append(step)
                group.append(number)
            if steps and reason is not None:
                reasons[number] = reason
            number += bool(steps)
        return cls(
            starts=Starts.of(*found[Start]) if found[Start][0] else _NO_STARTS,
            stops=Stops.of(*found[Stop]),
            moves=Moves.of(*found[Move]) if found[Move][0] else _NO_MOVES,
            reasons=reasons,
        )

    @classmethod
    def one_gpu_each(cls, task: Ints, node: Ints, gpu: Ints) -> Steps:
        """Return starts of tasks on one GPU each, each start a group of its own."""
        task, node, gpu = (np.asarray(column, np.int64) for column in (task, node, gpu))
        offset = np.arange(len(task) + 1)
        starts = Starts(task=task, node=node, gpu_offset=offset, gpu=gpu, group=offset[:-1])
        return cls(starts=starts)

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self.starts) + len(self.stops) + len(self.moves)

    def __iter__(self) -> Iterator[Group]:
        """Yield the groups one by one, in order: of each its starts, then its stops and moves."""
        steps: list[list[Step]] = [[] for _ in range(self.groups)]
        for column in (self.starts, self.stops, self.moves):
            for group, step in zip(column.group.tolist(), column, strict=True):
                steps[group].append(step)
        for number, each in enumerate(steps):
            yield Group(tuple(each), self.reasons.get(number))

    def __add__(self, other: Steps) -> Steps:
        """Return the groups of both, those of `other` last."""
        if not len(other) or not len(self):
            return self if len(self) else other
        shift = self.groups
        return Steps(
            starts=self.starts.joined(other.starts, shift),
            stops=Stops(
                task=np.concatenate([self.stops.task, other.stops.task]),
                group=np.concatenate([self.stops.group, shift + other.stops.group]),
            ),
            moves=self.moves.joined(other.moves, shift),
            reasons={**self.reasons, **{shift + n: r for n, r in other.reasons.items()}},
        )

    def only(self, chosen: Bools) -> Steps:
        """Return some of the groups, `[groups]`, in their order."""
        number = np.cumsum(chosen) - 1
        starts = np.flatnonzero(chosen[self.starts.group])
        stops = np.flatnonzero(chosen[self.stops.group])
        moves = np.flatnonzero(chosen[self.moves.group])
        return Steps(
            starts=self.starts.take(starts, number[self.starts.group[starts]]),
            stops=Stops(task=self.stops.task[stops], group=number[self.stops.group[stops]]),
            moves=self.moves.take(moves, number[self.moves.group[moves]]),
            reasons={int(number[n]): r for n, r in self.reasons.items() if chosen[n]},
        )


NO_STEPS = Steps()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why these jobs wait; with no jobs named, all waiting jobs that no other refusal names."""

    reason: Reason
    jobs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """GPUs (rows) that are kept free for waiting tasks of a job, which start together on them.

    Of each so many thousandths, from `at` to `until`, in the world's clock; `inf` for a time that
    is unknown.
    """

    job: int
    at: float
    gpus: tuple[int, ...]
    milli: tuple[int, ...]
    until: float


class Lazy(Sequence[T]):
    """Items that are computed on first access, by any thread, or when pickled.

    Until then they keep alive all that the function needs. If it raises, there are none.
    """

    __slots__ = ("_compute", "_items")

    def __init__(self, compute: Callable[[], Iterable[T]]) -> None:
        """`compute` returns the items; two threads may call it, with equal results."""
        self._compute: Callable[[], Iterable[T]] | None = compute
        self._items: tuple[T, ...] = ()

    def _failed(self, error: Exception) -> tuple[T, ...]:
        """Return the items if the function raises."""
        del error
        return ()

    def _computed(self) -> tuple[T, ...]:
        compute = self._compute
        if compute is not None:
            try:
                self._items = tuple(compute())
            except Exception as error:  # noqa: BLE001  # a policy may raise any error
                self._items = self._failed(error)
            self._compute = None  # last: a thread that finds None finds the items
        return self._items

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        """Return one item, or some."""
        return self._computed()[index]

    def __iter__(self) -> Iterator[T]:
        """Yield all items, as fast as a tuple does."""
        return iter(self._computed())

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._computed())

    def __repr__(self) -> str:
        """Return the text of the tuple of items."""
        return repr(self._computed())

    def __reduce__(self) -> tuple[type, tuple[tuple[T, ...]]]:
        """Pickle as a plain tuple."""
        return tuple, (self._computed(),)


def policy_broke(message: str) -> Refusal:
    """Return the refusal of all jobs after a failure of the policy."""
    return Refusal(reason=PolicyBroke(message=message))


class OnDemand(Lazy[Refusal]):
    """Refusals that are computed on first access: those of few rounds are ever read.

    If the function raises, they are one refusal with that error, as of a policy that raises.
    """

    __slots__ = ()

    def _failed(self, error: Exception) -> tuple[Refusal, ...]:
        text = f"it cannot give its reasons: {type(error).__name__}: {error}"
        return (policy_broke(text),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Steps in groups, and refusals per group of jobs that waits for one cause.

    Starts use what is free now, also in a group that stops runs: what a stop frees can be allocated
    in the next round. A gang is started, or moved, as a whole, in one group. The task of a stopped
    run waits again, and its work since its last checkpoint is lost; that of a moved run starts
    again on its target when the run has ended, and no other task can use the target until then.
    `resizes` take slots from leases, each a group of its own, after those of `steps`; `widths` are
    new ones of training jobs, which have no other steps.
    `memo` are changed numbers per job that the engine stores for the policy, opaque to it: they are
    in every snapshot (`Snapshot.memo`) until the job is dropped. `node_memo` are such numbers per
    node (`Snapshot.node_memo`), dropped if they are 0 or the node is lost. At `again_at`, in
    seconds of the world's clock, the policy decides again even without an event. `orders` are
    names of shapes, of each of which a node is ordered; `drains` are idle nodes (rows), each made
    for an order, that are removed. `hardened` is the unit whose places are kept from now on, None
    for no such unit any more. Refusals and
    reservations explain, they change no state; so they are not part of equality, nor journaled, and
    may be computed on first access (`OnDemand`, `Lazy`).
    """

    steps: Steps = NO_STEPS
    resizes: tuple[Resize, ...] = ()
    widths: tuple[SetWidth, ...] = ()
    memo: Memo = field(default_factory=dict)
    node_memo: NodeMemo = field(default_factory=dict)
    again_at: float | None = None
    orders: tuple[str, ...] = ()
    drains: tuple[int, ...] = ()
    refusals: Sequence[Refusal] = field(default=(), compare=False)
    reservations: Sequence[Reserved] = field(default=(), compare=False)
    hardened: Hardened | None = None

    @property
    def starts(self) -> Starts:
        """The start steps of all groups."""
        return self.steps.starts

    @property
    def stops(self) -> Stops:
        """The stop steps of all groups."""
        return self.steps.stops

    @property
    def moves(self) -> Moves:
        """The move steps of all groups."""
        return self.steps.moves
