"""Plans and explanations of a running cluster, which have no effect on it."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from tests.live.system import Gates, Headgate

pytestmark = pytest.mark.live
GPUS = 4


SYSTEM = {"nodes": 2, "gpus": 2, "up": ("--policy=fs",)}


def _events(headgate: Headgate, copy: Path) -> int:
    """Return the number of events in the journal but for empty plans and reports of use.

    Read from a copy, since the controller holds it.
    """
    copy.mkdir(exist_ok=True)
    for file in headgate.state.glob("journal.db*"):
        shutil.copy(file, copy)
    with contextlib.closing(sqlite3.connect(copy / "journal.db")) as database:
        (count,) = database.execute(
            "SELECT count(*) FROM events WHERE event NOT LIKE ? AND event NOT LIKE ?",
            ('["PlanAdmitted"%"starts":[],"stops":[]%', '["NodeReported"%'),
        ).fetchone()
    return int(count)


def test_plan_is_shown_and_not_executed(headgate: Headgate, tmp_path: Path) -> None:
    gates = Gates(tmp_path / "gates")

    def job(name: str, count: int) -> str:
        tasks = {"count": count, "run": gates.command(name=name)}
        return headgate.submit(json.dumps({"name": name, "tasks": tasks}))

    first = job("a", GPUS + 2)
    runs = headgate.running(first, GPUS)
    second = job("b", 3)
    headgate.until(lambda: headgate.client.job(second)["reason"], f"{second} waits")
    before = _events(headgate, tmp_path / "before")

    under_fsp = headgate.call("plan", "--policy", "fsp,slack=0")
    assert under_fsp["today"]["starts"] == []
    starts = {(s["job"], s["ordinal"]) for s in under_fsp["what_if"]["starts"]}
    assert starts == {(second, 0), (second, 1)}
    assert {c["job"] for c in under_fsp["what_if"]["cuts"]} == {first}
    larger = headgate.call("plan", "--nodes", "2", "--like", "n0")
    assert len(larger["what_if"]["starts"]) == 4
    explanation = headgate.call("why", f"{second}/2")
    assert explanation["share"]["share_gpus"] == 2
    assert explanation["if_freed"]["taken_by"] == f"{second}/0"
    assert explanation["if_freed"]["starts_on"] is None

    assert _events(headgate, tmp_path / "after") == before
    now = {(t["ordinal"], t["node"]) for t in headgate.running(first, GPUS)}
    assert now == {(t["ordinal"], t["node"]) for t in runs}

    gates.open(*range(GPUS + 2), name="a")
    gates.open(*range(3), name="b")
    for name in (first, second):
        headgate.ends(name)
