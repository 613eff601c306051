"""What crosses Ray between controller, job masters and executors: plain values that pickle.

What a job's `program` looks like is told by `headgate.spec.expand`, which writes it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from headgate.base.errors import InvariantBroken
from headgate.model import Job, Read, RunId
from headgate.protocol import FailureKind, LaunchTask, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProgram:
    """What one task runs, as a `function` or a `command`, as whom, and its place in its stage.

    Its result comes in `parts`. Below the directory `checkpoint` it saves what it has done, if at
    all. Below `results_path` the results of its job may be found, too.
    """

    user: str
    run: str
    kind: str
    index: int
    count: int
    parts: int = 1
    checkpoint: str = ""
    results_path: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    envs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRecord:
    """A `LaunchTask` with all that an executor needs to carry it out.

    `ray_id` is the Ray id of the node as it was when the command was made: a node that came back
    meanwhile is another one. `addresses` are the shard services of the sources, by node.
    """

    run: RunId
    node: str
    ray_id: str
    gpus: tuple[int, ...]
    reads: tuple[Read, ...]
    addresses: Mapping[str, tuple[str, int]]
    program: TaskProgram


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRecord:
    """A request to end a run, and where its executor is.

    It suffices by itself: a master that was restarted may not know the launch.
    """

    run: RunId
    node: str
    ray_id: str


class OutcomeKind(StrEnum):
    """What a master says about a launch: `started` first, then exactly one of the others."""

    STARTED = "started"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRecord:
    """One fact about a run; `message` and `failure` tell of a failure.

    `part_bytes` are the sizes of the parts of a result in several, whose sum is `output_bytes`.
    """

    run: RunId
    kind: OutcomeKind
    output_bytes: int = 0
    part_bytes: tuple[int, ...] = ()
    usage: Usage = field(default_factory=Usage)
    failure: FailureKind = FailureKind.ERROR
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a poll of a job master brings: numbered outcomes not yet acknowledged.

    `incarnation` is drawn anew when a master has been restarted. A new one knows no launch and has
    forgotten its numbers: send every outstanding launch again; none runs twice where its executor
    lives on.
    """

    incarnation: str
    outcomes: tuple[tuple[int, OutcomeRecord], ...]


def launch_record(
    command: LaunchTask,
    *,
    program: str,
    ray_id: str,
    addresses: Mapping[str, tuple[str, int]],
    gang_hosts: Sequence[str] = (),
) -> LaunchRecord:
    """Build the record of a command from `program_of` its job and the addresses of all sources.

    `gang_hosts` are the addresses of a gang's members, ordered by ordinal: its processes find each
    other by their settings HEADGATE_RANK, HEADGATE_GANG_SIZE and HEADGATE_GANG_HOSTS.
    """
    sources = {source for read in command.reads for source in read.sources}
    task = task_program(program, command.run.ordinal)
    if gang_hosts:
        gang = {
            "HEADGATE_RANK": str(command.run.ordinal),
            "HEADGATE_GANG_SIZE": str(len(gang_hosts)),
            "HEADGATE_GANG_HOSTS": ",".join(gang_hosts),
        }
        task = replace(task, envs={**task.envs, **gang})
    return LaunchRecord(
        run=command.run,
        node=command.node,
        ray_id=ray_id,
        gpus=command.gpus,
        reads=command.reads,
        addresses={node: at for node, at in addresses.items() if node in sources},
        program=task,
    )


def program_of(job: Job) -> str:
    """Return a job's program as `launch_record` takes it: with the user whose it is."""
    return json.dumps({**json.loads(job.program), "user": job.user})


def task_program(program: str, ordinal: int) -> TaskProgram:
    """Return what the task of this ordinal runs."""
    whole = json.loads(program)
    for stage in whole["stages"]:
        # a stage that comes but once lasts to the end of the job, as far as this tells
        times, every = stage.get("times", 1), stage.get("every", sys.maxsize)
        time, index = divmod(ordinal - stage["first"], every)
        if 0 <= time < times and index < stage["tasks"]:
            ((kind, run),) = stage["run"].items()
            return TaskProgram(
                user=whole.get("user", ""),  # no account has the empty name
                run=run,
                kind=kind,
                index=index,
                count=stage["tasks"],
                parts=stage.get("parts", 1),
                checkpoint=stage.get("checkpoint", ""),
                results_path=whole.get("results_path", ""),
                params=stage["params"],
                envs=whole["envs"],
            )
    raise InvariantBroken(f"task {ordinal} has no stage in its job's program: {program}")
