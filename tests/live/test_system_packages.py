"""Where runs start: in their directory itself, or in a copy that is sent; what is made for them."""

from __future__ import annotations

import json
import os
import signal
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.live.system import Headgate

from headgate.api.packing import package_of

pytestmark = pytest.mark.live
WHEEL = "hgtest-1.0-py3-none-any.whl"
FACTS = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
TRAIN = "import hgtest, os, util\nprint(util.NAME, hgtest.SAYS, os.environ['NODE_RANK'])\n"

SPREAD = """
import ray, util
ray.init()

@ray.remote(num_gpus=1)
def name():
    import util
    return util.NAME, ray.get_runtime_context().get_node_id()

found = ray.get([name.options(scheduling_strategy="SPREAD").remote() for _ in range(2)])
print([name for name, _ in found], len({node for _, node in found}))
"""


SYSTEM = {"nodes": 2, "gpus": 1}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "util.py").write_text("NAME = 'mine'\n")
    (tmp_path / "job.yaml").write_text(
        f"{{name: train, num_nodes: 2, run: python train.py, pip: [./{WHEEL}]}}"
    )
    with zipfile.ZipFile(tmp_path / WHEEL, "w") as wheel:
        wheel.writestr("hgtest.py", "SAYS = 'installed'\n")
        about = "hgtest-1.0.dist-info"
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: hgtest\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", FACTS)
        wheel.writestr(f"{about}/RECORD", "")
    return tmp_path


def test_files_and_requirements_travel_to_both_nodes_once_and_survive_the_controller(
    headgate: Headgate, project: Path
) -> None:
    job = str(project / "job.yaml")
    first = headgate.call("submit", job)["id"]
    headgate.ends(first)
    logs = [headgate.client.log(first, task, attempt=None, offset=0)["text"] for task in (0, 1)]
    assert ["making the Python environment" in log for log in logs] == [True, True]
    assert [log.splitlines()[-1] for log in logs] == ["mine installed 0", "mine installed 1"]

    headgate.kill_controller()
    headgate.up()
    assert headgate.client.has_package(package_of(project).digest())
    again = headgate.call("submit", job)["id"]
    headgate.ends(again)
    log = headgate.client.log(again, 1, attempt=None, offset=0)["text"]
    assert log.splitlines() == ["mine installed 1"]

    (project / "util.py").write_text("NAME = 'changed'\n")  # fetched from the new controller
    plain_job = "{name: plain, run: 'cat util.py > {output}', working_dir: .}"
    (project / "job.yaml").write_text(plain_job)
    plain = headgate.call("submit", job)["id"]
    headgate.ends(plain)
    assert headgate.result(plain) == b"NAME = 'changed'\n"


@pytest.mark.parametrize("working_dir", [".", "shared"])
def test_ray_program_finds_its_modules_on_all_its_nodes(
    headgate: Headgate, project: Path, working_dir: str
) -> None:
    text = f"{{ray: {{script: spread.py}}, num_nodes: 2, working_dir: {working_dir}}}"
    (project / "job.yaml").write_text(text)
    (project / "spread.py").write_text(SPREAD)
    job = headgate.call("submit", str(project / "job.yaml"))["id"]
    headgate.ends(job)
    log = headgate.client.log(job, 0, attempt=None, offset=0)["text"]
    assert log.splitlines()[-1] == "['mine', 'mine'] 2"


def test_pip_that_fails_fails_the_job_with_its_end(headgate: Headgate, project: Path) -> None:
    text = "{name: broken, run: python train.py, pip: [./missing.whl]}"
    (project / "job.yaml").write_text(text)
    job = headgate.call("submit", str(project / "job.yaml"))["id"]
    message = headgate.ends(job, "failed")["message"]
    assert "its environment could not be prepared" in message
    assert "missing.whl" in message


SAVE = """
import os, pathlib
rank = os.environ.get("RANK", "0")
pathlib.Path("checkpoints").mkdir(exist_ok=True)
pathlib.Path(f"checkpoints/model-{rank}.pt").write_text(pathlib.Path("rate.txt").read_text())
print("saved in", os.getcwd())
"""


@contextmanager
def agents_hang(headgate: Headgate) -> Iterator[None]:
    """Stop the agents of the nodes meanwhile."""
    agents = headgate.actors("NodeAgent")
    assert agents
    for agent in agents:
        agent.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for agent in agents:
            agent.send_signal(signal.SIGCONT)


def test_what_a_program_writes_is_in_its_directory_afterwards(
    headgate: Headgate, project: Path
) -> None:
    (project / "train.py").write_text(SAVE)
    (project / "rate.txt").write_text("0.1")
    done = headgate.run("run", "--gpus", "1", "--", "python", "train.py", cwd=project)
    assert (done.returncode, done.stdout) == (0, f"saved in {project}\n"), done.stderr
    model = project / "checkpoints" / "model-0.pt"
    assert (model.read_text(), model.stat().st_uid) == ("0.1", os.geteuid())

    blocker = headgate.submit("{name: blocker, num_nodes: 2, run: 'sleep 600'}")
    headgate.running(blocker, 2)
    done = headgate.run("submit", "--nodes", "2", "--", "python", "train.py", cwd=project)
    assert done.stderr == f"it runs in {project} itself, which all nodes share\n"
    job = done.stdout.split()[-1]
    (project / "rate.txt").write_text("0.2")  # while it waits
    headgate.client.cancel(blocker)
    assert headgate.ends(job)["working_dir"] == {"shared": str(project)}
    found = {file.name: file.read_text() for file in (project / "checkpoints").iterdir()}
    assert found == {"model-0.pt": "0.2", "model-1.pt": "0.2"}
    assert not list(project.glob(".headgate*"))


def test_directory_that_nodes_do_not_confirm_is_sent_as_a_copy(
    headgate: Headgate, project: Path
) -> None:
    (project / "train.py").write_text(SAVE)
    (project / "rate.txt").write_text("0.1")
    with agents_hang(headgate):
        done = headgate.run("submit", "train.py", cwd=project)
        (project / "job.yaml").write_text("{run: python train.py, working_dir: shared}")
        error = headgate.call("submit", str(project / "job.yaml"), code=2)
    assert done.stderr == "it runs in a copy of the directory at submission\n"
    view = headgate.ends(done.stdout.split()[-1])
    assert set(view["working_dir"]) == {"package"}
    assert not (project / "checkpoints").exists()
    assert error["problems"] == [
        {
            "path": "working_dir",
            "problem": f"{project} is not shared by all nodes: n0, n1: it did not answer in time",
            "hint": "'working_dir: .' sends a copy of it",
        }
    ]


def test_job_whose_directory_was_replaced_fails_with_node_and_path_and_runs_nowhere(
    headgate: Headgate, project: Path
) -> None:
    job = {"run": "touch ran", "working_dir": {"shared": str(project), "inode": 1}}
    message = headgate.ends(headgate.submit(json.dumps(job)), "failed")["message"]
    assert message.startswith("task 0 was lost, on nodes that stayed up, 3 times: it cannot run in")
    assert f"{project} on n" in message
    assert not (project / "ran").exists()


_SAVE = "mkdir -p checkpoints && echo saved > checkpoints/model.pt"


@pytest.mark.parametrize(
    ("run", "more", "state"),
    [
        (_SAVE, "", "finished"),
        (f"{_SAVE} && exit 3", "", "failed"),
        (f"{_SAVE} && sleep 600", "time_limit: 3s, grace: 1s", "failed"),
        (f"{_SAVE} && sleep 600", "grace: 1s", "cancelled"),
    ],
    ids=["finished", "failed", "time limit", "cancelled"],
)
def test_files_in_a_copy_are_kept_however_the_run_ends_and_fetched(
    headgate: Headgate, project: Path, tmp_path: Path, run: str, more: str, state: str
) -> None:
    (project / "job.yaml").write_text(f"{{run: '{run}', working_dir: ., {more}}}")
    job = headgate.run("submit", "job.yaml", cwd=project).stdout.split()[-1]
    if state == "cancelled":
        runs = headgate.state.rglob
        headgate.until(lambda: list(runs(f"{job}/0.1/files/checkpoints/model.pt")), "the file")
        headgate.client.cancel(job)
    view = headgate.ends(job, state)
    assert (view["files"]["count"], view["files"]["size_bytes"]) == (1, 6)
    there = tmp_path / "fetched"
    done = headgate.run("get", job, "--files", str(there))
    assert done.stdout == f"1 file, 6 B, in {there}\n", done.stderr
    assert [p.relative_to(there) for p in there.rglob("*.pt")] == [Path("checkpoints/model.pt")]
    assert (there / "checkpoints" / "model.pt").read_text() == "saved\n"
