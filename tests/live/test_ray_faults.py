"""After the death of any process, ends are reported once, and no run is repeated or left over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from tests.live.conftest import NODES, Lab, LabJob, until

from headgate.live.actors.executor import shards_directory
from headgate.live.actors.masters import end_account, start_master
from headgate.live.base.records import OutcomeKind
from headgate.live.cluster.names import executor_name
from headgate.live.cluster.ray_nodes import (
    NAMESPACE,
    alive,
    kill_node,
    local_cluster,
    members,
    start_node,
)
from headgate.live.node.store import ShardStore
from headgate.model import RunId
from headgate.protocol import FailureKind

pytestmark = pytest.mark.live
NewJob = Callable[..., LabJob]


def _waits_for(go: Path) -> dict[str, str]:
    """Return a command that prints its process id, and ends when a file appears."""
    return {
        "command": f"echo $$ >> {go}.pids; while [ ! -e {go} ]; do sleep 0.1; done; "
        "echo result > {output}"
    }


def _pids(go: Path) -> list[int]:
    try:
        return [int(pid) for pid in Path(f"{go}.pids").read_text().split()]
    except FileNotFoundError:
        return []


def test_dead_executor_on_a_node_that_is_up_is_reported_as_crashed_and_replaced(
    new_job: NewJob, lab: Lab, tmp_path: Path
) -> None:
    import ray

    go = tmp_path / "go"
    job = new_job(_waits_for(go))
    lost = job.record(0, "n0", (0,))
    job.launch(lost)
    (pid,) = until(lambda: _pids(go), "the run continues")
    name = executor_name(job.id, lab.members["n0"].ray_id)
    os.kill(lab.pid(ray.get_actor(name, namespace=NAMESPACE)), signal.SIGKILL)
    (outcome,) = job.ends(lost)
    assert (outcome.kind, outcome.failure) == (OutcomeKind.FAILED, FailureKind.CRASHED)
    until(lambda: not psutil.pid_exists(pid), "its processes went with it")
    go.touch()
    assert job.run(0, "n0", (0,)).kind is OutcomeKind.FINISHED


def test_dead_master_is_restarted_and_runs_continue(
    new_job: NewJob, lab: Lab, tmp_path: Path
) -> None:
    done, going = tmp_path / "done", tmp_path / "going"
    done.touch()
    job = new_job(_waits_for(done), _waits_for(going))
    finished, running = job.record(0, "n0", (0,)), job.record(1, "n1", (1,))
    job.launch(finished, running)
    first = job.ends(finished)
    (pid,) = until(lambda: _pids(going), "the second run continues")
    os.kill(lab.pid(job.master), signal.SIGKILL)
    job.meet_new_master()
    job.launch(finished, running)
    going.touch()
    again, outcome = job.ends(finished, running)
    assert [again] == first
    assert outcome.kind is OutcomeKind.FINISHED
    assert _pids(done) == [*_pids(done)[:1]], "a finished run did not run again"
    assert _pids(going) == [pid], "a running one was not started again"
    assert job.result(1, "n1") == b"result\n"


def test_runs_continue_while_their_driver_is_dead(lab: Lab, tmp_path: Path) -> None:
    go = tmp_path / "go"
    command = _waits_for(go)["command"]
    driver = subprocess.run(
        [sys.executable, "-c", DRIVER, str(lab.state), command],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert driver.returncode == -signal.SIGKILL, driver.stderr
    incarnation = driver.stdout.strip()
    until(lambda: _pids(go), "the run continues")
    go.touch()
    master = start_master("driven", lab.root)
    outcomes = until(
        lambda: [
            outcome
            for _, outcome in lab.ask(master.poll, incarnation, 0, 1.0).outcomes
            if outcome.kind is not OutcomeKind.STARTED
        ],
        "the master reports to the next driver",
    )
    assert [(outcome.run, outcome.kind) for outcome in outcomes] == [
        (RunId("driven", 0, 7), OutcomeKind.FINISHED)
    ]
    end_account("driven")


DRIVER = """
import os, pwd, signal, sys
from pathlib import Path
from headgate.live.actors.masters import start_master
from headgate.live.cluster.ray_nodes import connect, local_cluster, members
from headgate.live.base.records import launch_record
from headgate.model import Demand, ProgramType, RunId, Stage, TaskProgram
from headgate.protocol import LaunchTask

state, command = Path(sys.argv[1]), sys.argv[2]
cluster = local_cluster(state)
connect(cluster.address, token=cluster.token)
import ray
node = members()[0]
user = pwd.getpwuid(os.geteuid()).pw_name
stage = Stage(first=0, count=1, program_type=ProgramType.COMMAND, run=command)
launch = launch_record(
    LaunchTask(
        run=RunId("driven", 0, 7), node=node.name, gpus=(0,), reads=(), holds=Demand(gpus=1),
        program=TaskProgram(user=user, stage=stage, index=0),
    ),
    ray_id=node.ray_id, addresses={},
)
print(ray.get(start_master("driven", state / "nodes").launch.remote([launch])), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_crashed_node_loses_its_runs_but_not_its_shards(
    new_job: NewJob, lab: Lab, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    job = new_job(_waits_for(go), grace_s=0.2)
    lab.put("n2", "kept/0", b"kept")
    before = lab.members["n2"]
    lost = job.record(0, "n2", (0,))
    job.launch(lost)
    (pid,) = until(lambda: _pids(go), "the run continues")
    kill_node(lab.state, "n2")
    assert not psutil.pid_exists(pid)
    (outcome,) = job.ends(lost)
    assert (outcome.kind, outcome.failure) == (OutcomeKind.FAILED, FailureKind.LOST)
    until(lambda: "n2" not in {member.name for member in members()}, "Ray has seen it")
    again = job.run(0, "n2", (0,))
    assert (again.kind, again.failure) == (OutcomeKind.FAILED, FailureKind.LOST)

    start_node(lab.state, NODES[2])
    until(lambda: "n2" in {member.name for member in members()}, "it is back")
    lab.refresh()
    assert lab.members["n2"].ray_id != before.ray_id
    assert "kept/0" in {shard.id for shard in lab.report("n2").shards}
    go.touch()
    assert job.run(0, "n2", (0,)).kind is OutcomeKind.FINISHED
    cluster = local_cluster(lab.state)
    assert cluster is not None
    assert set(alive(cluster)) == {"head", "n0", "n1", "n2"}


def test_restarted_agent_has_its_shards(lab: Lab) -> None:
    lab.put("n1", "steady/0", b"steady")
    os.kill(lab.pid(lab.agents["n1"]), signal.SIGKILL)

    def answers() -> bool:
        try:
            return "steady/0" in {shard.id for shard in lab.report("n1").shards}
        except Exception:  # noqa: BLE001  # it is on its way
            return False

    until(answers, "the agent is back")
    lab.refresh()
    report = lab.reports["n1"]
    lab.ask(lab.agents["n0"].copy_from, "steady/0", report.host, report.port)
    assert ShardStore(shards_directory(lab.root, "n0")).verify("steady/0")
    assert lab.ask(lab.agents["n0"].remove_shard, "steady/0")
    assert lab.ask(lab.agents["n0"].time_transfer, report.host, report.port) > 0


def test_unknown_runs_are_stopped_also_on_executors_of_an_earlier_master(
    new_job: NewJob, lab: Lab, tmp_path: Path
) -> None:
    kept, lost = tmp_path / "kept", tmp_path / "lost"
    job = new_job(_waits_for(kept), _waits_for(lost))
    stays, goes = job.record(0, "n0", (0,)), job.record(1, "n1", (0,))
    job.launch(stays, goes)
    (first,) = until(lambda: _pids(kept), "one run continues")
    (second,) = until(lambda: _pids(lost), "and the other")
    lab.ask(job.master.keep_only, (stays.run,))
    (outcome,) = job.ends(goes)
    assert outcome.kind is OutcomeKind.STOPPED
    until(lambda: not psutil.pid_exists(second), "its processes are gone")
    assert psutil.pid_exists(first)

    os.kill(lab.pid(job.master), signal.SIGKILL)
    job.meet_new_master()
    incarnation = lab.ask(job.master.keep_only, ())
    until(lambda: not psutil.pid_exists(first), "the executor has ended what it alone knew")
    until(
        lambda: (
            [
                outcome.kind
                for _, outcome in lab.ask(job.master.poll, incarnation, 0, 1.0).outcomes
                if outcome.run == stays.run
            ]
            == [OutcomeKind.STOPPED]
        ),
        "and its end is reported",
    )
