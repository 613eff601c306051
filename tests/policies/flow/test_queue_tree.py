"""Shares of a tree of queues against an allocation one GPU at a time, from the top down."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.policies.flow.fitting import fits

from headgate.base.arrays import Bools, Ints
from headgate.planning.shares.fair_shares import Hierarchy, entitle, fair_shares
from headgate.planning.shares.queue_tree import NO_CEILING, QueueTree

DEEPEST = 3  # levels of queues
WEIGHTS = (0.1, 0.5, 1.0, 2.0, 3.7)
PLENTY = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeCase:
    queue: Ints
    user: Ints
    priority: Ints
    tree: QueueTree
    tasks: Ints  # [jobs, types]
    gpus: Ints  # [kinds]
    accepts: Bools  # [types, kinds]

    @property
    def hierarchy(self) -> Hierarchy:
        return Hierarchy(queue=self.queue, user=self.user, priority=self.priority, tree=self.tree)

    def shares(self) -> Ints:
        return fair_shares(
            self.hierarchy, unfinished=self.tasks, gpus=self.gpus, accepts=self.accepts
        )

    def below(self, queue: int) -> list[int]:
        """The jobs in a queue and in all below it."""
        return [j for j, q in enumerate(self.queue.tolist()) if queue in path(self.tree, q)]


def ints(*values: int) -> Ints:
    return np.array(values, np.int64)


def path(tree: QueueTree, queue: int) -> list[int]:
    """A queue and all above it."""
    above = int(tree.parent[queue])
    return [queue] if above < 0 else [queue, *path(tree, above)]


# -------------------------------------------------------------------------------- cases


@st.composite
def parents(draw: st.DrawFn) -> Ints:
    """Trees of a few levels, rows in any order."""
    above: list[int] = []
    level: list[int] = []
    for _ in range(draw(st.integers(1, 7))):
        row = draw(st.sampled_from([-1, *(r for r, n in enumerate(level) if n < DEEPEST)]))
        above.append(row)
        level.append(1 if row < 0 else level[row] + 1)
    row_of = draw(st.permutations(range(len(above))))
    parent = np.full(len(above), -1)
    for node, row in enumerate(above):
        parent[row_of[node]] = -1 if row < 0 else row_of[row]
    return parent


@st.composite
def cases(draw: st.DrawFn, *, kinds: int = 2) -> TreeCase:
    """Queues with guarantees, limits and idle GPUs anywhere, jobs in those without children."""
    parent = draw(parents())
    queues, jobs = len(parent), draw(st.integers(0, 6))
    leaves = sorted({*range(queues)} - {*parent.tolist()})

    def column(of: st.SearchStrategy[int], count: int) -> Ints:
        return ints(*draw(st.lists(of, min_size=count, max_size=count)))

    kinds = draw(st.integers(1, kinds))
    scale = draw(st.sampled_from([1, 1, 5])) if kinds == 1 else 1
    accepts = np.ones((1, 1), bool)
    if kinds > 1:
        types = draw(st.integers(1, 3))
        accepts = np.zeros((types, kinds), bool)
        for of_type in accepts:
            of_type[[*draw(st.sets(st.integers(0, kinds - 1), min_size=1))]] = True
    weight = st.lists(st.sampled_from(WEIGHTS), min_size=queues, max_size=queues)
    return TreeCase(
        queue=column(st.sampled_from(leaves), jobs),
        user=column(st.integers(0, 1), jobs),
        priority=column(st.integers(0, 1), jobs),
        tree=QueueTree(
            parent=parent,
            weight=np.array(draw(weight)),
            guaranteed=scale * column(st.sampled_from([0, 1, 2, 4, 7]), queues),
            most=column(st.sampled_from([0, 1, 3, 8, *[NO_CEILING] * 8]), queues),
            idle=scale * column(st.sampled_from([0, 0, 0, 1, 3]), queues),
        ),
        tasks=scale * column(st.integers(0, 6), jobs * len(accepts)).reshape(jobs, len(accepts)),
        gpus=scale * column(st.integers(0, 9), kinds),
        accepts=accepts,
    )


def numbers(case: TreeCase, data: st.DataObject, high: int = 5) -> Ints:
    """A number for each job."""
    jobs = len(case.queue)
    return ints(*data.draw(st.lists(st.integers(0, high), min_size=jobs, max_size=jobs)))


# -------------------------------------------------------------------------------- the rule


class OneByOne:
    """GPUs are allocated one at a time, straight from the rule, to jobs that have `room`."""

    def __init__(self, case: TreeCase, *, held: Ints, won: Ints, room: Ints, gpus: Ints) -> None:
        self._case, self._held, self._room, self._gpus = case, held, room, gpus
        self._tree, self._rows = case.tree, range(len(held))
        self.won = won.copy()
        self.idle = [0] * len(case.tree.parent)  # the idle GPUs that each queue has won
        while self.won.sum() + sum(self.idle) < gpus.sum() and self._take(-1):
            pass

    def holds(self, queue: int) -> int:
        """The GPUs of a queue and of all below it."""
        jobs = sum(int(self._held[j] + self.won[j]) for j in self._case.below(queue))
        tree = self._tree
        return jobs + sum(n for q, n in enumerate(self.idle) if queue in path(tree, q))

    def _children(self, queue: int) -> list[int]:
        return [q for q, above in enumerate(self._tree.parent.tolist()) if above == queue]

    def _able_jobs(self, queue: int) -> list[int]:
        case = self._case
        return [
            j
            for j in self._rows
            if case.queue[j] == queue
            and self.won[j] < self._room[j]
            and self._fits(self.won + (np.arange(len(self.won)) == j))
        ]

    def _fits(self, jobs: Ints) -> bool:
        tasks, accepts = self._case.tasks, self._case.accepts
        if accepts.all():
            return bool(jobs.sum() <= self._gpus.sum())
        return fits(tasks, accepts, self._gpus, jobs)

    def _takes_inside(self, queue: int) -> bool:
        return bool(self._able_jobs(queue)) or any(map(self._takes, self._children(queue)))

    def _takes(self, queue: int) -> bool:
        holds = self.holds(queue)
        idle = self.idle[queue] < self._tree.idle[queue] and holds < self._tree.guaranteed[queue]
        return bool(holds < self._tree.most[queue] and (idle or self._takes_inside(queue)))

    def _first(self, queue: int) -> tuple[int, int]:
        return min(self._case.below(queue), default=len(self._held)), queue

    def _take(self, queue: int) -> bool:
        """Allocate one GPU below a queue, -1 for the whole cluster; return whether any can."""
        able = [q for q in self._children(queue) if self._takes(q)]
        if able:
            below = {q: self.holds(q) / g for q in able if self.holds(q) < (g := self._goal(q))}
            by_weight = {q: self.holds(q) / float(self._tree.weight[q]) for q in able}
            order = below or by_weight
            return self._take(min(order, key=lambda q: (order[q], self._first(q))))
        if queue < 0:
            return False
        jobs = self._able_jobs(queue)
        if jobs:
            self.won[self._next_job(queue, jobs)] += 1
        else:
            self.idle[queue] += 1
        return True

    def _goal(self, queue: int) -> int:
        return int(self._tree.guaranteed[queue])

    def _next_job(self, queue: int, able: list[int]) -> int:
        case, has = self._case, self._held + self.won
        own = case.below(queue)

        def of_user(job: int) -> tuple[int, int]:
            same = [j for j in own if case.user[j] == case.user[job]]
            return sum(int(has[j]) for j in same), same[0]

        return min(able, key=lambda j: (*of_user(j), -case.priority[j], has[j], j))


def one_by_one(
    case: TreeCase, *, held: Ints, room: Ints, won: Ints | None = None, gpus: Ints | None = None
) -> Ints:
    won = np.zeros_like(held) if won is None else won
    return OneByOne(
        case, held=held, won=won, room=room, gpus=case.gpus if gpus is None else gpus
    ).won


# -------------------------------------------------------------------------------- equality


@given(cases())
def test_shares_equal_an_allocation_one_gpu_at_a_time(case: TreeCase) -> None:
    room = case.tasks.sum(axis=1)
    assert case.shares().tolist() == one_by_one(case, held=0 * room, room=room).tolist()


@given(cases(), st.data())
def test_an_allocation_continues_from_what_is_held_and_won(
    case: TreeCase, data: st.DataObject
) -> None:
    held, most = numbers(case, data), numbers(case, data)
    room = np.minimum(case.tasks.sum(axis=1), most)
    won = one_by_one(case, held=held, room=numbers(case, data, 2), gpus=case.gpus // 2)
    won = np.minimum(won, room)
    result = case.hierarchy.allocate_by_type(
        held=held, tasks=case.tasks, gpus=case.gpus, accepts=case.accepts, won=won, most=most
    )
    assert result.tolist() == one_by_one(case, held=held, room=room, won=won).tolist()


@given(cases(), st.data())
def test_entitlements_equal_the_allocation_continued_from_held_gpus(
    case: TreeCase, data: st.DataObject
) -> None:
    held, target, waiting = numbers(case, data), numbers(case, data, 9), case.tasks.sum(axis=1)
    won = entitle(
        case.hierarchy,
        target=target,
        held=held,
        waiting=case.tasks,
        free=case.gpus,
        accepts=case.accepts,
    )
    plenty = np.full_like(case.gpus, PLENTY)
    wanted = np.clip(target - held, 0, waiting)
    share = one_by_one(case, held=held, room=wanted, gpus=plenty)
    placeable = one_by_one(case, held=held, room=share)
    everything = one_by_one(case, held=held, room=waiting, won=placeable)
    assert won.extra.tolist() == (everything - placeable).tolist()
    if case.tree.idle.any():
        assert won.share.tolist() == placeable.tolist()
        return
    total = held + share + won.extra
    crowded = {
        q for q in range(len(case.tree.most)) if total[case.below(q)].sum() > case.tree.most[q]
    }
    expected = [
        (placeable if crowded & {*path(case.tree, queue)} else share)[job]
        for job, queue in enumerate(case.queue.tolist())
    ]
    assert won.share.tolist() == expected


@given(cases(), st.data())
def test_the_count_of_allocated_gpus_is_the_sum_of_the_allocation(
    case: TreeCase, data: st.DataObject
) -> None:
    served = {
        "held": numbers(case, data),
        "tasks": case.tasks,
        "gpus": case.gpus,
        "most": numbers(case, data),
        "accepts": case.accepts,
    }
    allocated = case.hierarchy.allocate_by_type(**served)
    assert case.hierarchy.count_allocated(**served) == allocated.sum()


# -------------------------------------------------------------------------------- properties


@given(cases(), st.data())
def test_no_queue_gets_more_than_its_limit_at_any_level(
    case: TreeCase, data: st.DataObject
) -> None:
    held = numbers(case, data)
    won = entitle(
        case.hierarchy,
        target=case.shares(),
        held=held,
        waiting=case.tasks,
        free=case.gpus,
        accepts=case.accepts,
    ).most
    for queue, limit in enumerate(case.tree.most.tolist()):
        below = case.below(queue)
        assert won[below].sum() <= max(0, limit - held[below].sum())


@given(cases(kinds=1), st.integers(0, 9))
def test_every_queue_with_tasks_gets_its_guarantee_if_guarantees_fit(
    case: TreeCase, more: int
) -> None:
    """Those of siblings fit into that of their parent, and those at the top into the cluster."""
    guaranteed = case.tree.guaranteed.copy()
    for _ in range(DEEPEST):
        inside = np.zeros_like(guaranteed)
        has_parent = case.tree.parent >= 0
        np.add.at(inside, case.tree.parent[has_parent], guaranteed[has_parent])
        guaranteed = np.maximum(guaranteed, inside)
    gpus = ints(int(guaranteed[case.tree.parent < 0].sum()) + more)
    no_limit = np.full_like(guaranteed, NO_CEILING)
    tree = replace(case.tree, guaranteed=guaranteed, most=no_limit)
    lending = replace(case, gpus=gpus, tree=replace(tree, idle=0 * guaranteed))
    keeping = replace(case, gpus=gpus, tree=tree)
    for queue, goal in enumerate(guaranteed.tolist()):
        below = case.below(queue)
        expected = min(goal, int(case.tasks[below].sum()))
        assert lending.shares()[below].sum() >= expected
        if queue in case.queue:  # idle GPUs of other queues never take from a guarantee
            assert keeping.shares()[below].sum() >= expected


@settings(max_examples=200)
@given(cases(kinds=1), st.data())
def test_one_gpu_more_adds_at_most_one_to_one_job(case: TreeCase, data: st.DataObject) -> None:
    hierarchy, held, room = case.hierarchy, numbers(case, data), numbers(case, data, 9)
    before = hierarchy.allocate(held=held, room=room, gpus=0)
    assert not before.any()
    for gpus in range(1, 40):
        after = hierarchy.allocate(held=held, room=room, gpus=gpus)
        assert (after >= before).all()
        assert (after - before).sum() <= 1
        before = after
    assert (before <= room).all()


@settings(max_examples=40)
@given(st.integers(0, 10**6))
def test_many_gpus_are_allocated_as_one_after_another(seed: int) -> None:
    """Enough GPUs that most of the allocation is done in bulk; in two parts it is the same."""
    rng = np.random.default_rng(seed)
    parent = np.concatenate([np.full(4, -1), rng.integers(0, 4, 8), rng.integers(4, 12, 24)])
    leaves = np.setdiff1d(np.arange(36), parent)
    jobs = 80
    hierarchy = Hierarchy(
        queue=rng.choice(leaves, jobs),
        user=rng.integers(0, 5, jobs),
        priority=rng.integers(0, 2, jobs),
        tree=QueueTree(
            parent=parent,
            weight=rng.uniform(0.1, 9.0, 36),
            guaranteed=rng.integers(0, 600, 36) * rng.integers(0, 2, 36),
            most=np.where(rng.random(36) < 0.3, rng.integers(0, 900, 36), NO_CEILING),
        ),
    )
    held, room = rng.integers(0, 30, jobs), rng.integers(0, 200, jobs)
    first, second = rng.integers(0, 4000, 2).tolist()
    part = hierarchy.allocate(held=held, room=room, gpus=first)
    rest = hierarchy.allocate(held=held + part, room=room - part, gpus=second)
    whole = hierarchy.allocate(held=held, room=room, gpus=first + second)
    assert (part + rest).tolist() == whole.tolist()


# -------------------------------------------------------------------------------- examples


def company(**columns: Ints) -> QueueTree:
    """Row 0, `research`, has the children 1 and 2; row 3, `production`, is beside it."""
    defaults = {"guaranteed": ints(0, 0, 0, 0), "most": np.full(4, NO_CEILING)}
    return QueueTree(parent=ints(-1, 0, 0, -1), weight=np.ones(4), **{**defaults, **columns})


def shares(tree: QueueTree, gpus: int, *tasks: int) -> list[int]:
    """The shares of one job each in rows 1, 2 and 3."""
    same = np.zeros(3, np.int64)
    hierarchy = Hierarchy(queue=ints(1, 2, 3), user=same, priority=same, tree=tree)
    unfinished = ints(*tasks)[:, None]
    return fair_shares(hierarchy, unfinished=unfinished, gpus=ints(gpus)).tolist()


def test_a_parent_shares_as_one_queue_and_its_children_share_what_it_gets() -> None:
    assert shares(company(), 40, 99, 99, 99) == [10, 10, 20]
    assert shares(company(), 40, 99, 3, 99) == [17, 3, 20]
    assert shares(company(most=ints(8, NO_CEILING, 2, NO_CEILING)), 40, 99, 99, 99) == [6, 2, 32]


def test_guarantees_come_first_and_are_lent_while_their_queue_has_no_tasks() -> None:
    tree = company(guaranteed=ints(30, 0, 25, 0))
    assert shares(tree, 40, 99, 99, 99) == [5, 25, 10]
    assert shares(tree, 40, 99, 0, 99) == [30, 0, 10]
    assert shares(tree, 40, 0, 0, 99) == [0, 0, 40]
    # Of too few GPUs, each gets about the same part of its guarantee.
    assert shares(company(guaranteed=ints(30, 20, 10, 60)), 30, 99, 99, 99) == [7, 3, 20]


def test_idle_gpus_of_a_guarantee_are_left_for_its_queue() -> None:
    tree = company(guaranteed=ints(20, 0, 10, 0), idle=ints(0, 0, 10, 0))
    assert shares(tree, 40, 99, 0, 99) == [10, 0, 20]  # `research` holds the ten, too
    assert shares(tree, 40, 99, 4, 99) == [10, 4, 20]
    assert shares(tree, 40, 99, 99, 99) == [10, 10, 20]
    nothing = np.zeros(0, np.int64)
    Hierarchy(queue=nothing, user=nothing, priority=nothing, tree=tree)


def test_a_queue_without_jobs_keeps_its_idle_gpus_of_any_kind() -> None:
    tree = company(guaranteed=ints(0, 0, 0, 3), idle=ints(0, 0, 0, 3))
    one = ints(0)
    hierarchy = Hierarchy(queue=ints(1), user=one, priority=one, tree=tree)
    picky, any_kind = np.array([[True, False]]), np.array([[True, True]])
    for accepts, share in ((picky, 4), (any_kind, 5)):
        won = fair_shares(hierarchy, unfinished=ints(9)[None], gpus=ints(4, 4), accepts=accepts)
        assert won.tolist() == [share]


def test_gpus_of_other_jobs_count_for_their_queue_and_all_above() -> None:
    tree = company(guaranteed=ints(10, 5, 0, 0), most=ints(12, NO_CEILING, 4, 2))
    others = ints(0, 3, 5, 0)
    assert tree.total(others).tolist() == [8, 3, 5, 0]
    left = tree.beside(others)
    assert left.guaranteed.tolist() == [2, 2, 0, 0]
    assert left.most.tolist() == [4, NO_CEILING - 3, 0, 2]
    # Sums of parts of GPUs, rounded up, may be less than those of jobs: no guarantee grows.
    assert tree.beside(ints(0, -1, -1, 0)).guaranteed.tolist() == [10, 5, 0, 0]
    assert tree.or_above(np.array([True, False, False, False])).tolist() == [
        True,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("parent", "queue", "message"),
    [
        ([-1, 2], 0, "there is no queue 2"),
        ([-2, -1], 1, "there is no queue -2"),
        ([-1, -1], 2, "there is no queue 2"),
        ([-1, 0], 0, "queue 0 has both jobs and children"),
        ([0, -1], 1, "queue 1 has both|cycle"),
        ([1, 0, -1], 2, "cycle"),
        ([-1, 1], 0, "cycle"),
    ],
)
def test_queues_that_are_no_tree_are_rejected(parent: list[int], queue: int, message: str) -> None:
    zeros = np.zeros(len(parent), np.int64)
    tree = QueueTree(
        parent=ints(*parent), weight=np.ones(len(parent)), guaranteed=zeros, most=zeros
    )
    assert len(tree.idle) == len(parent)
    with pytest.raises(ValueError, match=message):
        Hierarchy(queue=ints(queue), user=ints(0), priority=ints(0), tree=tree)


@pytest.mark.parametrize("column", ["parent", "weight", "guaranteed", "most", "idle"])
def test_columns_of_queues_that_do_not_match_are_rejected(column: str) -> None:
    tree = company()
    short = replace(tree, **{column: getattr(tree, column)[:3]})
    with pytest.raises(ValueError, match="one value per queue"):
        Hierarchy(queue=ints(1), user=ints(0), priority=ints(0), tree=short)
