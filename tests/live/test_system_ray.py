"""Plain Ray programs, each on a Ray cluster of its own inside its grant."""

from __future__ import annotations

import venv
from pathlib import Path

import psutil
import pytest
from tests.live.ray_programs import LOOK, log_of, ray_job, seen
from tests.live.system import Headgate

pytestmark = pytest.mark.live

TRUTH = f"""{LOOK}
for name in sys.argv[1:]:
    ray.get(Left.options(name=name, lifetime="detached", namespace="any").remote().up.remote())
first = look()
ray.shutdown()
ray.init()
report(**first, again=ray.cluster_resources()["GPU"])
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
"""
STAYS = f"""{LOOK}
import subprocess
left = Left.options(name="left", lifetime="detached").remote()
ray.get(left.up.remote())
subprocess.Popen(["setsid", "sleep", "600"])
Path(sys.argv[1]).write_text(os.environ["RAY_TMPDIR"])
while ray.get(left.up.remote()):  # it fails soon when its cluster is lost
    time.sleep(0.1)
"""


SYSTEM = {"nodes": 2, "gpus": 2}


def processes(directory: str) -> list[psutil.Process]:
    """Return the processes of the Ray program with this directory."""
    found = []
    for process in psutil.process_iter():
        try:
            place = Path("/proc", str(process.pid))
            text = (place / "environ").read_bytes() + (place / "cmdline").read_bytes()
            if directory.encode() in text and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (OSError, psutil.Error):
            continue
    return found


def nothing_remains(headgate: Headgate, directory: str) -> None:
    headgate.until(
        lambda: not processes(directory) and not Path(directory).exists(),
        f"nothing of {directory} remains",
    )


def test_program_sees_exactly_its_grant_on_two_nodes_and_leaves_nothing(
    headgate: Headgate, tmp_path: Path
) -> None:
    job = headgate.submit(ray_job(tmp_path, TRUTH, "one", "two", resources={"gpus": 3, "cpus": 5}))
    headgate.ends(job)
    found = seen(headgate, job)
    assert (found["GPU"], found["CPU"], found["again"]) == (3, 5, 3)
    assert found["here"] == [["0"], ["0", "1"]]
    log = log_of(headgate, job)
    assert "headgate: 2 detached actors removed: one, two" in log
    assert "headgate: 1 process removed: python" in log
    nothing_remains(headgate, found["directory"])


def part(directory: str, kind: str) -> psutil.Process:
    """Return a process of a running program."""
    found = processes(directory)
    named = [p for p in found if any(kind in Path(word).name for word in p.cmdline()[:2])]
    if named:
        return named[0]
    (program,) = [p for p in found if p.cmdline()[1].endswith("script.py")]
    worker = program.parent()
    assert worker is not None
    above = [program, worker, *worker.parents()]
    return above[("program", "worker", "guard", "executor").index(kind)]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("raylet", "its Ray cluster lost node"),
        ("gcs_server", "its Ray cluster lost node"),
        ("program", "the program was ended by SIGKILL"),
        ("worker", "the task's process was ended by SIGKILL"),
        ("guard", "the task's guard was ended by SIGKILL"),
        ("executor", ""),
        ("", ""),
    ],
)
def test_nothing_of_a_program_remains_when_a_process_of_it_is_killed_or_it_is_cancelled(
    headgate: Headgate, tmp_path: Path, kind: str, reason: str
) -> None:
    place = tmp_path / "place"
    job = headgate.submit(ray_job(tmp_path, STAYS, place, resources={"gpus": 0}))
    directory = headgate.until(lambda: place.exists() and place.read_text(), "the program runs")
    assert len(processes(directory)) > 5
    if kind:
        part(directory, kind).kill()
    if not reason:  # a run whose executor was killed starts again
        headgate.client.cancel(job)
    view = headgate.ends(job, "failed" if reason else "cancelled")
    assert reason in (view["message"] or "")
    nothing_remains(headgate, directory)
    if not kind:  # what has left its session got no notice, and is not waited for
        (task,) = headgate.client.tasks(job)
        assert task["stops"][-1]["end"] == "it ended after the notice"


def test_program_ends_when_its_ray_node_on_another_node_is_lost(
    headgate: Headgate, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    job = headgate.submit(ray_job(tmp_path, STAYS, place, num_nodes=2, resources={"gpus": 0}))
    head = headgate.until(lambda: place.exists() and place.read_text(), "the program runs")
    other = other_directory(head)
    part(other, "raylet").kill()
    view = headgate.ends(job, "failed")
    assert "its Ray cluster lost node" in view["message"]
    nothing_remains(headgate, head)
    nothing_remains(headgate, other)


def other_directory(head: str) -> str:
    """Return the directory of the other Ray node of a program: it has the same token."""
    token = Path(head, "token").read_text()
    tokens = [path for path in Path(head).parent.glob("hgr-*/token") if path.read_text() == token]
    (other,) = [str(path.parent) for path in tokens if str(path.parent) != head]
    return other


def test_program_whose_python_has_no_ray_fails_with_the_path_of_that_python(
    headgate: Headgate, tmp_path: Path
) -> None:
    venv.create(tmp_path / "venv")
    envs = {"PATH": f"{tmp_path}/venv/bin:/usr/bin:/bin"}
    job = headgate.submit(ray_job(tmp_path, TRUTH, envs=envs, resources={"gpus": 0}))
    view = headgate.ends(job, "failed")
    assert f"{tmp_path}/venv/bin/python3, the Python of the program, has no Ray" in view["message"]


def test_program_whose_python_has_an_early_ray_fails_with_both_versions(
    headgate: Headgate, tmp_path: Path
) -> None:
    """Ray's version is all that is read of it before it is refused."""
    venv.create(tmp_path / "venv")
    (site,) = tmp_path.glob("venv/lib/python3*/site-packages")
    (site / "ray").mkdir()
    (site / "ray" / "__init__.py").write_text('__version__ = "2.51.2"\n')
    envs = {"PATH": f"{tmp_path}/venv/bin:/usr/bin:/bin"}
    job = headgate.submit(ray_job(tmp_path, TRUTH, envs=envs, resources={"gpus": 0}))
    view = headgate.ends(job, "failed")
    python = f"{tmp_path}/venv/bin/python3"
    assert f"{python} has Ray 2.51.2; Headgate needs 2.52 or later" in view["message"]
