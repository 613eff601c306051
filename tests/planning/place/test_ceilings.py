"""Ceilings of queues: what runs, what has started and what is booked count, and nothing twice."""

from __future__ import annotations

from headgate.machine.job_order import activate
from headgate.model import Demand, Gpu, Job, Node, Queue, Task
from headgate.planning.place.ceilings import Ceilings
from headgate.planning.units.unit import one_task
from headgate.state import Scratch, State


def test_unit_counts_below_the_ceiling_from_its_booking_until_it_is_booked_no_longer() -> None:
    state = State()
    state.set_queue(Queue(name="capped", max_gpus=4))
    state.add_node(Node(id="n", rack="r", gpus=(Gpu(memory_bytes=1),) * 8, cpus=4))
    tasks = tuple(Task(demand=Demand(gpus=each)) for each in (1, 2, 2, 1))
    job = Job(id="j", name="j", user="u", queue="capped", tasks=tasks)
    activate(state, state.add_job(job))
    state.launch(0, 0, (0,), attempt=1)
    snapshot = state.freeze()
    scratch = Scratch(snapshot)
    ceilings, (booked, other, small) = (
        Ceilings(scratch), (one_task(snapshot, task) for task in (1, 2, 3)),
    )  # fmt: skip
    assert ceilings.quotas().room_milli().tolist() == [3000]
    ceilings.book(booked)
    assert ceilings.quotas().room_milli().tolist() == [1000]
    assert (ceilings.has_room(other), ceilings.has_room(small)) == (False, True)
    ceilings.unbook(booked)
    assert scratch.place(1, 0)  # it starts
    assert ceilings.quotas().room_milli().tolist() == [1000]
    assert (ceilings.has_room(other), ceilings.has_room(small)) == (False, True)
    ceilings.book(small)
    assert ceilings.quotas().room_milli().tolist() == [0]
    assert not ceilings.has_room(small)
