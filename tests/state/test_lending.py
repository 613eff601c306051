"""What queues borrow of each other: an example, and what holds of any tree."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headgate.machine.job_order import activate
from headgate.model import Demand, Gpu, Job, Node, Queue, Task
from headgate.model.queue import guaranteed_of
from headgate.state import State, check
from headgate.state.lending import loans
from headgate.state.quotas import Quotas


def holding(gpus: int, *queues: Queue, **held: int) -> State:
    """A node, and in each queue named in `held` a job that holds so many GPUs."""
    state = State()
    for queue in queues:
        state.set_queue(queue)
    state.add_node(Node(id="n", rack="r", gpus=(Gpu(memory_bytes=1),) * gpus, cpus=1))
    for name, count in held.items():
        if count:
            task = Task(demand=Demand(gpus=count))
            row = state.add_job(Job(id=name, name=name, user="u", queue=name, tasks=(task,)))
            activate(state, row)
            first = state.jobs.first_task[row]
            free = state.free_gpus_of(0)[:count].tolist()
            state.launch(first, 0, tuple(free), 1)
    check(state)
    return state


def guaranteed(gpus: int) -> tuple[tuple[str, int], ...]:
    return (("gpus", 1000 * gpus),) if gpus else ()


def named(state: State) -> dict[tuple[str, str], int]:
    return {
        (state.queue(each.borrower).name, state.queue(each.lender).name): each.gpus_milli // 1000
        for each in loans(state)
    }


def test_what_is_beyond_all_guarantees_is_borrowed_of_those_who_do_not_use_theirs() -> None:
    """Of 10 GPUs 2 are guaranteed to none: `c` holds these, and 4 of others."""
    queues = (
        Queue(name="a", guaranteed=guaranteed(3)),
        Queue(name="b", guaranteed=guaranteed(4)),
        Queue(name="c", guaranteed=guaranteed(1)),
    )
    state = holding(10, *queues, a=1, b=2, c=7)
    assert named(state) == {("c", "a"): 2, ("c", "b"): 2}
    assert named(holding(10, *queues, a=3, b=4, c=3)) == {}


def test_loans_within_a_queue_are_between_those_below_it() -> None:
    queues = (
        Queue(name="top", guaranteed=guaranteed(4)),
        Queue(name="x", parent="top", guaranteed=guaranteed(3)),
        Queue(name="y", parent="top"),
        Queue(name="other"),
    )
    state = holding(6, *queues, x=1, y=3, other=2)
    assert named(state) == {("y", "x"): 2}
    assert named(holding(6, *queues, x=1, other=4)) == {("other", "top"): 2}


@given(st.data())
def test_no_queue_lends_more_than_it_leaves_or_borrows_more_than_it_holds_beyond(
    data: st.DataObject,
) -> None:
    names = "abcd"[: data.draw(st.integers(1, 4))]
    parents = {"c": data.draw(st.sampled_from(["", "b"])), "d": data.draw(st.sampled_from("ac"))}
    queues = [
        Queue(name=name, guaranteed=guaranteed(data.draw(st.integers(0, 3))),
              parent=parents.get(name, "") if parents.get(name, "") in names else "")
        for name in names
    ]  # fmt: skip
    leaves = [q.name for q in queues if all(each.parent != q.name for each in queues)]
    held = {name: data.draw(st.integers(0, 3)) for name in leaves}
    state = holding(12, *queues, **held)
    quotas, lent, borrowed = Quotas(state), Counter[int](), Counter[int]()
    for loan in loans(state):
        assert loan.gpus_milli > 0
        assert state.queue(loan.borrower).parent == state.queue(loan.lender).parent
        lent[loan.lender] += loan.gpus_milli
        borrowed[loan.borrower] += loan.gpus_milli
    for row in range(len(queues)):
        own = guaranteed_of(queues, row, "gpus")
        assert lent[row] <= max(own - quotas.used(row), 0)
        assert borrowed[row] <= max(quotas.used(row) - own, 0)
    top = [row for row, queue in enumerate(queues) if not queue.parent]
    promised = sum(max(guaranteed_of(queues, row, "gpus"), quotas.used(row)) for row in top)
    if promised <= 12_000:
        assert not any(borrowed[row] for row in top), "there is enough for all"
