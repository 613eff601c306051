"""What queues are guaranteed, borrow and lend, as far as shares and limits go."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.policies.test_queue_tree import SHARING, add, decide, reasons, started, tree

from headgate.app import POLICIES
from headgate.model import Demand, Queue
from headgate.model.queue import guaranteed_of
from headgate.protocol.queue_reasons import NotLent
from headgate.protocol.reasons import QueueLimit


def gpus(count: int) -> tuple[tuple[str, int], ...]:
    return (("gpus", 1000 * count),)


@pytest.mark.parametrize("policy", SHARING)
def test_guarantees_come_before_weights(policy: str) -> None:
    """By weight alone, 3 to 1, the small queue would get 2 of 8 GPUs."""
    state = tree(Queue(name="large", weight=3.0), Queue(name="small", guaranteed=gpus(5)))
    add(state, "l", "large")
    add(state, "s", "small")
    assert started(state, decide(policy, state)) == {"l": 3, "s": 5}


@pytest.mark.parametrize("policy", SHARING)
def test_what_a_queue_does_not_need_of_its_guarantee_others_borrow(policy: str) -> None:
    state = tree(Queue(name="large"), Queue(name="small", guaranteed=gpus(5)))
    add(state, "l", "large")
    add(state, "s", "small", tasks=1)
    assert started(state, decide(policy, state)) == {"l": 7, "s": 1}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_queue_that_does_not_lend_keeps_what_it_is_guaranteed(policy: str) -> None:
    state = tree(Queue(name="large"), Queue(name="small", guaranteed=gpus(5), lend=False))
    add(state, "l", "large")
    add(state, "s", "small", tasks=1)
    plan = decide(policy, state)
    assert started(state, plan) == {"l": 3, "s": 1}
    assert NotLent(queue="small", resource="GPUs") in reasons(state, plan, "l")


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_not_lent_is_kept_of_cpus_as_well(policy: str) -> None:
    keeps = Queue(name="small", guaranteed=(("cpus", 30_000),), lend=False)
    state = tree(Queue(name="large"), keeps)
    add(state, "l", "large", demand=Demand(gpus=0, cpus_milli=1000))  # of 32 CPUs
    plan = decide(policy, state)
    assert started(state, plan) == {"l": 2}
    assert NotLent(queue="small", resource="cpus") in reasons(state, plan, "l")


# Under `new-capacity`, jobs with GPUs do not borrow.
@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "new-capacity"])
def test_a_queue_borrows_at_most_its_limit(policy: str) -> None:
    state = tree(Queue(name="q", guaranteed=gpus(2), borrow_limit=gpus(3)))
    add(state, "j", "q")
    plan = decide(policy, state)
    assert started(state, plan) == {"j": 5}
    assert QueueLimit(queue="q", used_gpus=5, max_gpus=5) in reasons(state, plan, "j")


@pytest.mark.parametrize("policy", SHARING)
def test_a_queue_is_guaranteed_at_least_what_those_below_it_are_together(policy: str) -> None:
    queues = (
        Queue(name="other", weight=9.0),
        Queue(name="top"),
        Queue(name="a", parent="top", guaranteed=gpus(3)),
        Queue(name="b", parent="top", guaranteed=gpus(2)),
    )
    assert [guaranteed_of(queues, row, "gpus") for row in range(4)] == [0, 5000, 3000, 2000]
    state = tree(*queues)
    for name, queue in (("o", "other"), ("ja", "a"), ("jb", "b")):
        add(state, name, queue)
    assert started(state, decide(policy, state)) == Counter(o=3, ja=3, jb=2)


@pytest.mark.parametrize("policy", POLICIES)
def test_queues_start_within_their_guarantees_though_nodes_are_lost_that_were_to_keep_them(
    policy: str,
) -> None:
    """Both are guaranteed 5 of 8 GPUs: each starts within that as long as some are free."""
    keeps = [Queue(name=name, guaranteed=gpus(5), lend=False) for name in ("one", "two")]
    state = tree(*keeps)
    add(state, "a", "one", tasks=4)
    add(state, "b", "two", tasks=4)
    assert started(state, decide(policy, state)) == {"a": 4, "b": 4}
