"""A queue gets its GPUs back from running borrowers on Ray, also if the controller is killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.live.notice import IGNORES, program, seen
from tests.live.system import Headgate

from headgate.base.units import format_seconds
from headgate.state.quotas import HELD_BACK_S

pytestmark = pytest.mark.live

GPUS = 20
GRACE_S, OWN_GRACE_S = 2.0, 300.0
QUEUES = f"""
queues:
- {{name: lends, guaranteed: {{gpus: {GPUS}}}, grace: {GRACE_S:g}s}}
- {{name: borrows}}
- {{name: default}}
"""
SYSTEM = {"nodes": 2, "gpus": GPUS // 2, "up": ("--policy=easy-backfill",)}


def submit(headgate: Headgate, name: str, run: str, **options: Any) -> str:
    tasks = {"count": GPUS, "run": run}
    return headgate.submit(json.dumps({"name": name, "tasks": tasks, **options}))


@pytest.mark.parametrize("killed", [False, True], ids=["", "the controller is killed"])
def test_a_lender_gets_its_gpus_back_within_its_own_grace(
    headgate: Headgate, tmp_path: Path, killed: bool
) -> None:
    """Programs ignore their notice, and their job has a long grace period: the lender's counts."""
    file = tmp_path / "queues.yaml"
    file.write_text(QUEUES)
    headgate.call("queues", "apply", str(file), "--yes")
    script = program(tmp_path, IGNORES)
    run = f"python {script}"
    borrower = submit(headgate, "work", run, queue="borrows", grace=f"{OWN_GRACE_S:g}s")
    # The lender lends nothing for `HELD_BACK_S` after the other test has taken its GPUs back.
    headgate.until(
        lambda: seen(tmp_path).count("begun") == GPUS, "all GPUs are borrowed", HELD_BACK_S + 60.0
    )
    lender = submit(headgate, "serve", "true", queue="lends")
    if killed:
        headgate.until(lambda: "notice" in seen(tmp_path), "runs have notice")
        headgate.kill_controller()
        headgate.up()
    headgate.ends(lender)
    stopped = [task["stops"][-1] for task in headgate.call("get", borrower)["task_list"]]
    assert [stop["kind"] for stop in stopped] == ["reclaimed"] * GPUS
    assert {(stop["for_job"], stop["lender"]) for stop in stopped} == {(lender, "lends")}
    assert {stop["end"] for stop in stopped} == {
        f"it was killed {format_seconds(GRACE_S)} after the notice"
    }
    assert "queue lends takes back what it lent" in headgate.run("get", borrower).stdout
    starts = [task["started_at"] for task in headgate.call("get", lender)["task_list"]]
    last = max(starts) - max(stop["at"] for stop in stopped)
    assert last < OWN_GRACE_S, "no run had the grace of its job"
    headgate.call("cancel", borrower, "--now")
    headgate.ends(borrower, "cancelled")
