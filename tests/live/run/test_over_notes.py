"""Notes of runs that use more than they hold, from their executors to the agent of their node."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from headgate.live.actors import agent
from headgate.live.run.over_notes import FRESH_S, note_use, noted, notes_directory
from headgate.live.run.run_meter import Peaks
from headgate.model import Demand, RunId
from headgate.protocol import OverUse

RUN = RunId("a job/..", 3, 1)
HOLDS = Demand(gpus=1, gpu_milli=500, memory_bytes=100, gpu_memory_bytes=10)


@pytest.mark.parametrize(
    ("holds", "uses", "over"),
    [
        (HOLDS, Peaks(101, 10, 9), (101, 0)),
        (HOLDS, Peaks(100, 11, 9), (0, 11)),
        (HOLDS, Peaks(101, 11, 9), (101, 11)),
        (HOLDS, Peaks(100, 10, 9000), None),
        (Demand(gpus=1, gpu_memory_bytes=10), Peaks(5000, 5000), None),
        (Demand(gpus=1, gpu_milli=500), Peaks(5000, 3), (0, 3)),
    ],
)
def test_note_is_there_while_a_run_uses_more(
    tmp_path: Path, holds: Demand, uses: Peaks, over: tuple[int, int] | None
) -> None:
    notes = notes_directory(tmp_path, "n0")
    assert noted(notes) == ()
    for _ in range(2):
        note_use(notes, RUN, holds, uses)
        assert noted(notes) == (() if over is None else (OverUse(RUN, *over),))
    note_use(notes, RUN, holds, Peaks())
    assert noted(notes) == ()
    assert [*tmp_path.rglob("*/over/*")] == []


def test_old_notes_and_damaged_ones_do_not_count(tmp_path: Path) -> None:
    note_use(tmp_path, RUN, HOLDS, Peaks(200))
    note_use(tmp_path, RunId("b", 0, 1), HOLDS, Peaks(300))
    (tmp_path / "damaged").write_text('["c", 0')
    (old,) = [path for path in tmp_path.iterdir() if path.name.startswith("a")]
    past = time.time() - FRESH_S - 1
    os.utime(old, (past, past))
    assert noted(tmp_path) == (OverUse(RunId("b", 0, 1), 300),)
    assert not old.exists()


def test_note_that_cannot_be_written_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    note_use(tmp_path / "file", RUN, HOLDS, Peaks(200))
    assert noted(tmp_path / "file") == ()


def test_agent_reports_what_executors_have_noted(tmp_path: Path) -> None:
    made = agent.NodeAgent(node="n0", host="127.0.0.1", root=str(tmp_path), token="t")
    note_use(notes_directory(tmp_path, "n0"), RUN, HOLDS, Peaks(200))
    assert made.report().machine.over == (OverUse(RUN, 200),)
    made._server.close()
