"""Time limits on Ray: notice and a grace period, also while the controller is down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.system import Headgate

pytestmark = pytest.mark.live

TRAINS = r"""
import signal, sys, time
seen = open(sys.argv[1], "a", 1)
def save(*_):
    seen.write("notice\n")
    time.sleep(1)
    seen.write("saved\n")
    raise SystemExit
signal.signal(signal.SIGTERM, save)
seen.write("begun\n")
print("epoch 3 of 10", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def headgate() -> Iterator[Headgate]:
    with Headgate(nodes=2, gpus=1) as headgate:
        yield headgate


def _job(tmp_path: Path, time_limit: str) -> str:
    script = tmp_path / "train.py"
    script.write_text(TRAINS)
    return f"""
name: train
run: "python {script} {tmp_path}/seen"
estimated_runtime: 1min
time_limit: {time_limit}
"""


def _seen(tmp_path: Path) -> list[str]:
    path = tmp_path / "seen"
    return path.read_text().split() if path.exists() else []


def test_run_over_its_time_limit_may_save_and_fails_its_job(
    headgate: Headgate, tmp_path: Path
) -> None:
    job = headgate.submit(_job(tmp_path, "5s"))
    view = headgate.ends(job, "failed")
    assert view["message"] == (
        "task 0 ran over its time limit of 5.0 s: it ended after the notice\nepoch 3 of 10"
    )
    assert (view["estimated_s"], view["time_limit_s"]) == (60.0, 5.0)
    assert _seen(tmp_path) == ["begun", "notice", "saved"], "it ran once"
    assert view["message"] in headgate.call("why", job)["message"]
    assert "Run time: estimated 1 min, limit 5.0 s" in headgate.run("get", job).stdout


def test_time_limit_is_kept_while_the_controller_is_down(
    headgate: Headgate, tmp_path: Path
) -> None:
    job = headgate.submit(_job(tmp_path, "12s"))
    headgate.until(lambda: _seen(tmp_path) == ["begun"], "it runs")
    headgate.kill_controller()
    headgate.until(lambda: _seen(tmp_path) == ["begun", "notice", "saved"], "it had its notice")
    headgate.up()
    view = headgate.ends(job, "failed")
    assert view["message"].startswith("task 0 ran over its time limit of 12 s: it ended after")
    assert _seen(tmp_path) == ["begun", "notice", "saved"], "it did not run again"


def test_every_member_of_a_gang_may_save_at_the_time_limit(
    headgate: Headgate, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAINS.replace("time.sleep(1)", "time.sleep(5 * int(sys.argv[2]))"))
    text = f"""
name: gang
num_nodes: 2
time_limit: 5s
tasks: {{run: "exec python {script} {tmp_path}/seen $RANK"}}
"""
    job = headgate.submit(text)
    view = headgate.ends(job, "failed")
    assert "ran over its time limit of 5.0 s: it ended after the notice" in view["message"]
    assert sorted(_seen(tmp_path)) == sorted(["begun", "notice", "saved"] * 2), "each once"
