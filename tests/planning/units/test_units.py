"""First fit of units: gangs of which each member starts on another node."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from headgate.machine.job_order import activate
from headgate.model import Demand, Gpu, Job, Node, Queue, Task
from headgate.planning.units.fit import members_that_fit
from headgate.planning.units.unit import FirstFit, waiting_units
from headgate.state import Scratch, State

NODES = st.lists(
    st.builds(
        lambda gpus, cpus: Node(id="n", rack="r", gpus=(Gpu(memory_bytes=1),) * gpus, cpus=cpus),
        st.integers(0, 3),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=5,
)


@given(NODES, st.integers(1, 5), st.integers(1, 2), st.sampled_from((None, 1.0)), st.booleans())
def test_gang_is_placed_exactly_when_all_members_fit_on_a_node_each_if_it_must(
    nodes: list[Node], members: int, gpus: int, cpus: float | None, apart: bool
) -> None:
    nodes = [replace(node, id=f"n{number}") for number, node in enumerate(nodes)]
    tasks = (Task(demand=Demand.of(gpus=gpus, cpus=cpus)),) * members
    state = State()
    state.set_queue(Queue(name="q"))
    for node in nodes:
        state.add_node(node)
    job = Job(id="g", name="g", user="u", queue="q", tasks=tasks, gang=True, distinct_nodes=apart)
    row = state.add_job(job)
    activate(state, row)
    snapshot = state.freeze()
    scratch = Scratch(snapshot)
    placed = [
        FirstFit(scratch).place(unit) for units in waiting_units(snapshot, row) for unit in units
    ]
    fits = members_that_fit(tasks, nodes, distinct_nodes=apart) == members
    assert placed == [fits]
    used = [start.node for start in scratch.starts]
    assert len(used) == (members * fits)
    assert not apart or len(set(used)) == len(used)
