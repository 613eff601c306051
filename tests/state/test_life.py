"""The life cycles: exactly the transitions of the tables are possible, and the page shows them."""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path

import pytest

from headgate.base.errors import InvariantBroken
from headgate.model import Gpu, Job, Node, Queue, Task
from headgate.state import JobState, State, TaskState
from headgate.state.life import ENDED, HOLDING, JOB_MOVES, TASK_MOVES

PAGE = Path(__file__).parents[2] / "docs" / "life-cycles.md"


def state() -> State:
    made = State()
    made.set_queue(Queue(name="q"))
    made.add_node(Node(id="a", rack="r", gpus=(Gpu(memory_bytes=1),)))
    made.add_job(Job(id="j", name="j", user="ada", queue="q", tasks=(Task(),)))
    return made


@pytest.mark.parametrize("to", TaskState)
@pytest.mark.parametrize("at", TaskState)
def test_a_task_moves_only_as_the_table_says(at: TaskState, to: TaskState) -> None:
    made = state()
    made.tasks.state[0] = at
    if to in TASK_MOVES[at]:
        made.move_task(0, to)
        assert made.tasks.state[0] == to
    else:
        with pytest.raises(InvariantBroken, match=f"task cannot go from {at.name} to {to.name}"):
            made.move_task(0, to)
        assert made.tasks.state[0] == at


@pytest.mark.parametrize("to", JobState)
@pytest.mark.parametrize("at", JobState)
def test_a_job_moves_only_as_the_table_says(at: JobState, to: JobState) -> None:
    made = state()
    made.jobs.state[0] = at
    if to in JOB_MOVES[at]:
        made.move_job(0, to)
        assert made.jobs.state[0] == to
    else:
        with pytest.raises(InvariantBroken, match=f"job cannot go from {at.name} to {to.name}"):
            made.move_job(0, to)
        assert made.jobs.state[0] == at


def test_every_state_is_in_its_table_and_can_be_reached() -> None:
    for states, moves, first in (
        (TaskState, TASK_MOVES, TaskState.HELD),
        (JobState, JOB_MOVES, JobState.QUEUED),
    ):
        assert list(moves) == list(states)
        assert {to for row in moves.values() for to in row} | {first} == set(states)


def test_ended_states_have_no_transitions() -> None:
    assert all(JOB_MOVES[s] == () for s in ENDED)
    assert all(JOB_MOVES[s] for s in JobState if s not in ENDED)
    assert not set(HOLDING) & {TaskState.FINISHED, TaskState.FAILED, TaskState.CANCELLED}


def diagram(moves: dict[IntEnum, tuple[IntEnum, ...]]) -> str:
    """Return the table as a Mermaid state diagram; what leads nowhere ends."""
    first, *_ = moves
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first.name}"]
    for at, row in moves.items():
        lines += [f"    {at.name} --> {to.name}" for to in row]
        lines += [] if row else [f"    {at.name} --> [*]"]
    return "\n".join([*lines, "```"])


@pytest.mark.parametrize("moves", [TASK_MOVES, JOB_MOVES], ids=["tasks", "jobs"])
def test_the_page_shows_the_tables(moves: dict[IntEnum, tuple[IntEnum, ...]]) -> None:
    assert diagram(moves) in PAGE.read_text(), diagram(moves)
