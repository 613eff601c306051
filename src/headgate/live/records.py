"""What crosses Ray between controller, job masters and executors: plain values that pickle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from headgate.base.errors import InvariantBroken
from headgate.model import Demand, Read, RunId, TaskProgram
from headgate.protocol import FailureKind, LaunchTask, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRecord:
    """A `LaunchTask` with all that an executor needs to carry it out.

    `ray_id` is the Ray id of the node as it was when the command was made: a node that came back
    meanwhile is another one. `addresses` are the shard services of the sources, by node.
    `gang_hosts` are the addresses of a gang's members, ordered by ordinal; none without a gang.
    """

    run: RunId
    node: str
    ray_id: str
    gpus: tuple[int, ...]
    reads: tuple[Read, ...]
    addresses: Mapping[str, tuple[str, int]]
    holds: Demand
    program: TaskProgram
    gang_hosts: tuple[str, ...] = ()


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
    ray_id: str,
    addresses: Mapping[str, tuple[str, int]],
    gang_hosts: Sequence[str] = (),
) -> LaunchRecord:
    """Build the record of a command; `addresses` may hold more than its sources.

    InvariantBroken for a run of a simulated job, which executes nothing.
    """
    if command.program is None:
        raise InvariantBroken(f"run {command.run} has no program")
    sources = {source for read in command.reads for source in read.sources}
    return LaunchRecord(
        run=command.run,
        node=command.node,
        ray_id=ray_id,
        gpus=command.gpus,
        reads=command.reads,
        addresses={node: at for node, at in addresses.items() if node in sources},
        holds=command.holds,
        program=command.program,
        gang_hosts=tuple(gang_hosts),
    )
