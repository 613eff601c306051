"""Fair shares against an allocation one GPU at a time, with an independent check of what fits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.policies.flow.fitting import fits

from headgate.base.arrays import Ints
from headgate.planning.shares.fair_shares import Hierarchy, entitle, fair_shares
from headgate.planning.shares.queue_tree import NO_CEILING, QueueTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    queue: Ints
    user: Ints
    priority: Ints
    weight: np.ndarray
    max_gpus: Ints
    tasks: Ints  # [jobs, types]
    gpus: Ints  # [kinds]
    accepts: np.ndarray  # [types, kinds]

    @property
    def hierarchy(self) -> Hierarchy:
        return Hierarchy(
            queue=self.queue,
            user=self.user,
            priority=self.priority,
            tree=QueueTree.flat(weight=self.weight, most=self.max_gpus),
        )


def ints(*values: int) -> Ints:
    return np.array(values, np.int64)


def one_queue(most: int = NO_CEILING) -> QueueTree:
    return QueueTree.flat(weight=np.ones(1), most=ints(most))


@st.composite
def cases(draw: st.DrawFn, *, classes: int = 3, ceilings: bool = True) -> Case:
    """Tasks that need so much memory, or, in half of the cases, any of some kinds of GPUs."""
    jobs, queues = draw(st.integers(1, 7)), draw(st.integers(1, 3))
    kinds = draw(st.integers(1, classes))
    accepts = np.triu(np.ones((kinds, kinds), bool))
    if draw(st.booleans()):
        types = draw(st.integers(1, 4))
        kind_sets = st.sets(st.integers(0, kinds - 1), min_size=1)
        accepts = np.zeros((types, kinds), bool)
        for of_type in accepts:
            of_type[[*draw(kind_sets)]] = True

    def column(low: int, high: int, count: int = jobs) -> Ints:
        return ints(*draw(st.lists(st.integers(low, high), min_size=count, max_size=count)))

    ceiling = st.sampled_from([0, 1, 3, 8, NO_CEILING]) if ceilings else st.just(NO_CEILING)
    return Case(
        queue=column(0, queues - 1),
        user=column(0, 2),
        priority=column(0, 1),
        weight=np.array(
            draw(st.lists(st.sampled_from([0.1, 0.5, 1, 2, 3.7]), min_size=queues, max_size=queues))
        ),
        max_gpus=ints(*draw(st.lists(ceiling, min_size=queues, max_size=queues))),
        tasks=column(0, 6, jobs * len(accepts)).reshape(jobs, len(accepts)),
        gpus=column(0, 8, kinds),
        accepts=accepts,
    )


def allocate_one_by_one(case: Case, held: Ints, won: Ints, room: Ints, gpus: Ints) -> Ints:
    """One GPU at a time, straight from the rule; `won` is where to start, `room` where to stop."""
    won = won.copy()
    rows = range(len(held))
    while True:
        has = held + won
        in_queue = {
            q: sum(int(has[j]) for j in rows if case.queue[j] == q) for q in case.queue.tolist()
        }
        of_user = {
            (case.queue[j], case.user[j]): sum(
                int(has[i])
                for i in rows
                if (case.queue[i], case.user[i]) == (case.queue[j], case.user[j])
            )
            for j in rows
        }
        able = [
            j
            for j in rows
            if won[j] < room[j]
            and in_queue[case.queue[j]] < case.max_gpus[case.queue[j]]
            and fits(case.tasks, case.accepts, gpus, won + (np.arange(len(held)) == j))
        ]
        if not able:
            return won

        def first(column: Ints, value: int, within: list[int]) -> int:
            return next(j for j in within if column[j] == value)

        all_jobs = list(rows)
        queue = min(
            {int(case.queue[j]) for j in able},
            key=lambda q: (in_queue[q] / case.weight[q], first(case.queue, q, all_jobs)),
        )
        members = [j for j in all_jobs if case.queue[j] == queue]
        able = [j for j in able if j in members]
        user = min(
            {int(case.user[j]) for j in able},
            key=lambda u: (of_user[queue, u], first(case.user, u, members)),
        )
        able = [j for j in able if case.user[j] == user]
        top = max(case.priority[j] for j in able)
        won[min((has[j], j) for j in able if case.priority[j] == top)[1]] += 1


@given(cases())
def test_shares_equal_an_allocation_one_gpu_at_a_time(case: Case) -> None:
    nothing = np.zeros(len(case.queue), np.int64)
    slow = allocate_one_by_one(case, nothing, nothing, case.tasks.sum(axis=1), case.gpus)
    fast = fair_shares(case.hierarchy, unfinished=case.tasks, gpus=case.gpus, accepts=case.accepts)
    assert fast.tolist() == slow.tolist()


@given(cases(), st.data())
def test_entitlements_equal_the_allocation_continued_from_held_gpus(
    case: Case, data: st.DataObject
) -> None:
    jobs = len(case.queue)
    numbers = st.lists(st.integers(0, 6), min_size=jobs, max_size=jobs)
    held, target = ints(*data.draw(numbers)), ints(*data.draw(numbers))
    won = entitle(
        case.hierarchy,
        target=target,
        held=held,
        waiting=case.tasks,
        free=case.gpus,
        accepts=case.accepts,
    )

    # A share is up to the target, one at a time and under the ceilings, whatever is free.
    nothing, waiting = np.zeros(jobs, np.int64), case.tasks.sum(axis=1)
    room = np.clip(target - held, 0, waiting)
    plenty = np.full_like(case.gpus, 1000)
    share = allocate_one_by_one(case, held, nothing, room, plenty)
    # What of it can be placed, then whatever else can be.
    placeable = allocate_one_by_one(case, held, nothing, share, case.gpus)
    everything = allocate_one_by_one(case, held, placeable, waiting, case.gpus)
    assert won.extra.tolist() == (everything - placeable).tolist()
    in_queue = np.bincount(case.queue, held + share + won.extra, len(case.weight))
    crowded = (in_queue > case.max_gpus)[case.queue]
    assert won.share.tolist() == np.where(crowded, placeable, share).tolist()
    assert (won.most <= waiting).all()


@given(cases(), st.data())
def test_no_queue_wins_beyond_its_ceiling_and_no_fitting_gpu_is_left(
    case: Case, data: st.DataObject
) -> None:
    jobs = len(case.queue)
    held = ints(*data.draw(st.lists(st.integers(0, 6), min_size=jobs, max_size=jobs)))
    target = fair_shares(
        case.hierarchy, unfinished=case.tasks, gpus=case.gpus, accepts=case.accepts
    )
    most = entitle(
        case.hierarchy,
        target=target,
        held=held,
        waiting=case.tasks,
        free=case.gpus,
        accepts=case.accepts,
    ).most
    for queue, ceiling in enumerate(case.max_gpus.tolist()):
        mine = case.queue == queue
        assert most[mine].sum() <= max(0, ceiling - held[mine].sum())
    reached = _most_placed(case, most)
    for job in range(jobs):
        queue = case.queue[job]
        if (held + most)[case.queue == queue].sum() < case.max_gpus[queue]:
            assert _most_placed(case, most + 100 * (np.arange(jobs) == job)) == reached


@given(cases(), st.data())
def test_the_count_of_allocated_gpus_is_the_sum_of_the_allocation(
    case: Case, data: st.DataObject
) -> None:
    jobs = len(case.queue)
    held = ints(*data.draw(st.lists(st.integers(0, 6), min_size=jobs, max_size=jobs)))
    most = ints(*data.draw(st.lists(st.integers(0, 6), min_size=jobs, max_size=jobs)))
    accepts = case.accepts | (len(case.gpus) == 1)
    served = {"held": held, "tasks": case.tasks, "gpus": case.gpus, "most": most}
    allocated = case.hierarchy.allocate_by_type(**served, accepts=accepts)
    counted = case.hierarchy.count_allocated(**served, accepts=accepts)
    assert counted == allocated.sum()


def _most_placed(case: Case, most: Ints) -> int:
    """The most tasks that can hold the GPUs together, with a bound for each job."""
    bound = np.minimum(most, case.tasks.sum(axis=1))
    allocated = np.zeros_like(bound)
    for job in range(len(bound)):
        step = np.arange(len(bound)) == job
        while allocated[job] < bound[job] and fits(
            case.tasks, case.accepts, case.gpus, allocated + step
        ):
            allocated = allocated + step
    return int(allocated.sum())


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=9),
    st.integers(0, 60),
)
def test_shares_of_one_user_are_those_of_the_flow_paper(tasks: list[int], gpus: int) -> None:
    jobs = [n for n in tasks if n > 0]
    if not jobs:
        return
    base = [min(gpus // len(jobs), n) for n in jobs]
    left = min(gpus, sum(jobs)) - sum(base)
    while left:
        for job in range(len(jobs)):
            if left and base[job] < jobs[job]:
                base[job] += 1
                left -= 1
    alike = np.zeros(len(jobs), np.int64)
    hierarchy = Hierarchy(queue=alike, user=alike, priority=alike, tree=one_queue())
    shares = fair_shares(hierarchy, unfinished=ints(*jobs)[:, None], gpus=ints(gpus))
    assert shares.tolist() == base


@given(cases())
def test_no_job_could_gain_but_from_one_that_holds_no_more(case: Case) -> None:
    """The definition of max-min fairness, among jobs that differ in their tasks only."""
    alike = np.zeros(len(case.queue), np.int64)
    hierarchy = Hierarchy(queue=alike, user=alike, priority=alike, tree=one_queue())
    share = fair_shares(hierarchy, unfinished=case.tasks, gpus=case.gpus, accepts=case.accepts)
    assert fits(case.tasks, case.accepts, case.gpus, share)
    for poor in range(len(share)):
        more = share + (np.arange(len(share)) == poor)
        if share[poor] == case.tasks[poor].sum():
            continue
        assert not fits(case.tasks, case.accepts, case.gpus, more)
        for rich in np.flatnonzero(share > share[poor] + 1).tolist():
            assert not fits(
                case.tasks, case.accepts, case.gpus, more - (np.arange(len(share)) == rich)
            )


@given(cases(ceilings=False), st.integers(0, 2))
def test_more_gpus_reduce_no_share(case: Case, kind: int) -> None:
    more = case.gpus.copy()
    more[kind % len(more)] += 1
    before = fair_shares(case.hierarchy, unfinished=case.tasks[:, :1], gpus=case.gpus[:1])
    after = fair_shares(case.hierarchy, unfinished=case.tasks[:, :1], gpus=more[:1])
    assert (after >= before).all()


def test_ten_jobs_of_one_user_get_one_users_share() -> None:
    hierarchy = Hierarchy(
        queue=np.zeros(11, np.int64),
        user=ints(*[0] * 10, 1),
        priority=np.zeros(11, np.int64),
        tree=one_queue(),
    )
    share = fair_shares(hierarchy, unfinished=np.full((11, 1), 50), gpus=ints(20))
    assert share.tolist() == [1] * 10 + [10]


def test_priority_orders_the_jobs_of_one_user_only() -> None:
    hierarchy = Hierarchy(
        queue=np.zeros(3, np.int64),
        user=ints(0, 0, 1),
        priority=ints(0, 5, -5),
        tree=one_queue(),
    )
    share = fair_shares(hierarchy, unfinished=np.full((3, 1), 4), gpus=ints(10))
    assert share.tolist() == [2, 4, 4]


@pytest.mark.parametrize(
    ("weight", "max_gpus", "expected"),
    [
        ((3.0, 1.0), (NO_CEILING, NO_CEILING), [75, 25]),
        ((3.0, 1.0), (10, NO_CEILING), [10, 90]),
        ((3.0, 1.0), (10, 20), [10, 20]),
        ((1e-3, 1e3), (NO_CEILING, NO_CEILING), [1, 99]),
    ],
)
def test_queues_share_by_weight_under_their_ceilings(
    weight: tuple[float, float], max_gpus: tuple[int, int], expected: list[int]
) -> None:
    hierarchy = Hierarchy(
        queue=ints(0, 1),
        user=ints(0, 0),
        priority=ints(0, 0),
        tree=QueueTree.flat(weight=np.array(weight), most=ints(*max_gpus)),
    )
    share = fair_shares(hierarchy, unfinished=np.full((2, 1), 1000), gpus=ints(100))
    assert share.tolist() == expected


def test_no_tasks_or_no_gpus_give_no_share() -> None:
    none = np.zeros(0, np.int64)
    empty = Hierarchy(queue=none, user=none, priority=none, tree=one_queue(5))
    assert fair_shares(empty, unfinished=np.zeros((0, 2), np.int64), gpus=ints(3, 4)).tolist() == []
    one = Hierarchy(queue=ints(0), user=ints(0), priority=ints(0), tree=one_queue(5))
    won = entitle(one, target=ints(0), held=ints(0), waiting=ints(4)[:, None], free=ints(0))
    assert won.most.tolist() == [0]


def test_columns_that_do_not_match_are_rejected() -> None:
    one, two = ints(0), ints(0, 0)
    with pytest.raises(ValueError, match="one value per job"):
        Hierarchy(queue=one, user=two, priority=one, tree=one_queue())
    with pytest.raises(ValueError, match="there is no queue 1"):
        Hierarchy(queue=ints(1), user=one, priority=one, tree=one_queue())
    hierarchy = Hierarchy(queue=one, user=one, priority=one, tree=one_queue())
    with pytest.raises(ValueError, match="1 jobs with 1 values each, but 2 values"):
        hierarchy.allocate(held=two, room=one, gpus=1)
    with pytest.raises(ValueError, match="1 jobs with 2 values each, but 3 values"):
        hierarchy.allocate_by_type(held=one, tasks=ints(1, 2, 3).reshape(1, 3), gpus=two)


def test_many_queues_share_by_weight() -> None:
    """Enough GPUs that most of the allocation is done in bulk."""
    rng = np.random.default_rng(5)
    weight, held = rng.uniform(0.1, 9.0, 60), rng.integers(0, 400, 60)
    one_each, room = np.arange(60), rng.integers(0, 500, 60)
    hierarchy = Hierarchy(
        queue=one_each,
        user=one_each,
        priority=np.zeros(60, np.int64),
        tree=QueueTree.flat(weight=weight, most=np.full(60, NO_CEILING)),
    )
    won = hierarchy.allocate(held=held, room=room, gpus=5000)
    assert won.sum() == 5000
    last = (held + won - 1) / weight  # what each held for its weight before its last GPU
    next_ = (held + won) / weight
    assert last[won > 0].max() <= next_[won < room].min()
