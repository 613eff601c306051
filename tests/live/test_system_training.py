"""Data-parallel training on several nodes, while parts of the cluster are killed."""

from __future__ import annotations

import io
import json
import signal
from pathlib import Path

import numpy as np
import psutil
import pytest
from tests.live.system import Gates, Headgate

from headgate.workloads.training import solution

pytestmark = pytest.mark.live
STEPS = 400


SYSTEM = {"nodes": 3, "gpus": 1}


class Training:
    """A training of two processes under way."""

    def __init__(self, headgate: Headgate, shared: Path, *, retries: int = 0) -> None:
        """Submit it, and wait for its first checkpoint."""
        self.headgate = headgate
        saved = shared / "saved"
        saved.mkdir()
        tasks = {
            "run": "headgate.workloads.training:train",
            "params": {"steps": STEPS, "pause_s": 0.02},
            "resources": {"gpus": 1},
            "checkpoint": {"every_s": 1, "path": str(saved)},
            "retries": retries,
        }
        self.mark = str(shared)
        envs = {"TRAINING": self.mark}
        self.job = headgate.submit(
            json.dumps({"name": "train", "num_nodes": 2, "tasks": tasks, "envs": envs})
        )
        self.checkpoint = saved / f"{self.job}.0" / "model.npz"
        headgate.until(self.checkpoint.exists, "the first checkpoint is saved")

    def saved(self) -> int:
        """Return how many steps its checkpoint contains."""
        with np.load(self.checkpoint) as arrays:
            return int(arrays["step"])

    def processes(self) -> dict[str, psutil.Process]:
        """Return its processes by rank."""
        found = {}
        for process in psutil.process_iter():
            try:
                environment = process.environ()
            except psutil.Error:
                continue
            if environment.get("TRAINING") == self.mark:
                found[environment["RANK"]] = process
        return found

    def nodes(self) -> list[str]:
        """Return the nodes of its processes by rank."""
        return [task["node"] for task in self.headgate.client.tasks(self.job)]

    def ends(self) -> tuple[int, list[tuple[int, int]]]:
        """Wait for its end, check the model; return its first step, attempts and failures."""
        self.headgate.ends(self.job)
        with np.load(io.BytesIO(self.headgate.result(self.job, 0))) as model:
            assert np.allclose(model["weights"], solution(), rtol=1e-9)
            first = int(model["first"])
        tasks = self.headgate.client.tasks(self.job)
        return first, [(task["attempts"], task["failures"]) for task in tasks]


def test_training_continues_while_its_master_and_the_controller_are_killed(
    headgate: Headgate, tmp_path: Path
) -> None:
    training = Training(headgate, tmp_path)
    (master,) = headgate.actors("Master")
    master.send_signal(signal.SIGKILL)
    headgate.kill_controller()
    headgate.up()
    assert training.ends() == (0, [(1, 0), (1, 0)])


@pytest.mark.parametrize("rank", ["0", "1"])
def test_training_continues_from_its_checkpoint_when_a_process_is_killed_and_counts_it_once(
    headgate: Headgate, tmp_path: Path, rank: str
) -> None:
    training = Training(headgate, tmp_path, retries=1)
    training.processes()[rank].send_signal(signal.SIGKILL)
    first, tasks = training.ends()
    assert 0 < first < STEPS
    assert [attempts for attempts, _ in tasks] == [2, 2]
    assert sum(failures for _, failures in tasks) == 1


def test_training_continues_from_its_checkpoint_when_an_executor_dies_and_counts_no_failure(
    headgate: Headgate, tmp_path: Path
) -> None:
    training = Training(headgate, tmp_path)
    (executor,) = headgate.actors("TaskExecutor", training.nodes()[1])
    executor.send_signal(signal.SIGKILL)
    first, tasks = training.ends()
    assert 0 < first < STEPS
    assert tasks == [(2, 0), (2, 0)]


@pytest.mark.parametrize("rank", [0, 1])
def test_training_continues_on_other_nodes_when_one_is_lost_and_counts_no_failure(
    headgate: Headgate, tmp_path: Path, rank: int
) -> None:
    training = Training(headgate, tmp_path)
    node = training.nodes()[rank]
    headgate.kill_node(node)
    first, tasks = training.ends()
    headgate.restart_node(node)
    headgate.until(lambda: len(headgate.up_nodes()) == 3, "the node has returned")
    assert 0 < first < STEPS
    assert tasks == [(2, 0), (2, 0)]
    assert sorted(training.nodes()) == sorted({"n0", "n1", "n2"} - {node})


@pytest.mark.parametrize("killed", [False, True])
def test_training_moves_to_another_node_also_while_the_controller_is_killed(
    headgate: Headgate, tmp_path: Path, *, killed: bool
) -> None:
    training = Training(headgate, tmp_path)
    stays, leaves = training.nodes()
    (free,) = {"n0", "n1", "n2"} - {stays, leaves}
    before = training.saved()
    moved = headgate.call("migrate", training.job, "-y", "--from", leaves)
    assert moved["moves"] == [
        {"task": 0, "from": stays, "to": stays, "gpus": [0]},
        {"task": 1, "from": leaves, "to": free, "gpus": [0]},
    ]
    if killed:  # soon after the notice, and as a rule before the next runs
        headgate.kill_controller()
        headgate.up()
    first, tasks = training.ends()
    assert before <= first < STEPS
    assert tasks == [(2, 0), (2, 0)]
    assert training.nodes() == [stays, free]
    view = headgate.client.task(training.job, 1)
    (stop,) = view["stops"]
    assert stop["kind"] == "moved"
    assert stop["reason"].startswith(f"moved from {leaves} to {free}: requested by ")


def test_gang_that_waits_behind_maps_and_they_run_once_while_the_controller_is_killed(
    headgate: Headgate, tmp_path: Path
) -> None:
    gates = Gates(tmp_path / "gates")
    maps = {"count": 6, "run": gates.command(), "retries": 0}
    job = headgate.submit(json.dumps({"name": "maps", "tasks": maps}))
    headgate.running(job, 3)
    member = {"run": gates.command(name="gang"), "retries": 0}
    gang = headgate.submit(json.dumps({"name": "gang", "num_nodes": 2, "tasks": member}))
    headgate.until(lambda: headgate.call("why", gang)["reason"], "the gang waits")
    for master in headgate.actors("Master"):
        master.send_signal(signal.SIGKILL)
    headgate.kill_controller()
    gates.open(*range(6))
    gates.open(0, 1, name="gang")
    headgate.up()
    headgate.ends(job)
    headgate.ends(gang)
    numbers = [str(number) for number in range(6)]
    assert sorted(gates.seen("start")) == sorted([*numbers, "gang0", "gang1"])
    assert sorted(gates.seen("end")) == sorted(gates.seen("start"))
    for each in (job, gang):
        tasks = headgate.client.tasks(each)
        assert {(task["attempts"], task["failures"]) for task in tasks} == {(1, 0)}
