"""Time limits on Ray: notice and a grace period, also while the controller is down."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.live.notice import SAVES, program, seen
from tests.live.system import Headgate

pytestmark = pytest.mark.live


SYSTEM = {"nodes": 2, "gpus": 1}


def _job(tmp_path: Path, time_limit: str) -> str:
    script = program(tmp_path, f"print('epoch 3 of 10', flush=True)\n{SAVES}")
    return f"""
name: train
run: "python {script}"
estimated_runtime: 1min
time_limit: {time_limit}
"""


def test_run_over_its_time_limit_may_save_and_fails_its_job(
    headgate: Headgate, tmp_path: Path
) -> None:
    job = headgate.submit(_job(tmp_path, "5s"))
    view = headgate.ends(job, "failed")
    assert view["message"] == (
        "task 0 ran over its time limit of 5.0 s: it ended after the notice\nepoch 3 of 10"
    )
    assert (view["estimated_s"], view["time_limit_s"]) == (60.0, 5.0)
    assert seen(tmp_path) == ["begun", "notice", "saved"], "it ran once"
    assert view["message"] in headgate.call("why", job)["message"]
    assert "Run time: estimated 1 min, limit 5.0 s" in headgate.run("get", job).stdout


def test_time_limit_is_kept_while_the_controller_is_down(
    headgate: Headgate, tmp_path: Path
) -> None:
    job = headgate.submit(_job(tmp_path, "12s"))
    headgate.until(lambda: seen(tmp_path) == ["begun"], "it runs")
    headgate.kill_controller()
    headgate.until(lambda: seen(tmp_path) == ["begun", "notice", "saved"], "it had its notice")
    headgate.up()
    view = headgate.ends(job, "failed")
    assert view["message"].startswith("task 0 ran over its time limit of 12 s: it ended after")
    assert seen(tmp_path) == ["begun", "notice", "saved"], "it did not run again"


def test_every_member_of_a_gang_may_save_at_the_time_limit(
    headgate: Headgate, tmp_path: Path
) -> None:
    script = program(tmp_path, SAVES, save_s="5 * int(sys.argv[1])")
    text = f"""
name: gang
num_nodes: 2
time_limit: 5s
tasks: {{run: "exec python {script} $RANK"}}
"""
    job = headgate.submit(text)
    view = headgate.ends(job, "failed")
    assert "ran over its time limit of 5.0 s: it ended after the notice" in view["message"]
    assert sorted(seen(tmp_path)) == sorted(["begun", "notice", "saved"] * 2), "each once"
