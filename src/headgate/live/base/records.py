"""Messages between controller, masters and executors: picklable values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from headgate.base.errors import InvariantBroken
from headgate.model import GRACE_S, Demand, FailureKind, Read, RunId, TaskProgram, Usage

if TYPE_CHECKING:  # with it, each process of a job would start a quarter of a second later
    from headgate.protocol import LaunchTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendezvous:
    """The ports on its first node at which the members of one attempt of a gang meet.

    `port` is for the job's program. With `Launch.FIRST` a hub listens on `hub_port`, which only
    accepts connections with the token (see `headgate.live.run.hub`).
    """

    port: int
    hub_port: int
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GangRecord:
    """The gang of a run: the addresses of its members by ordinal, and the first one's node.

    The master adds the `rendezvous` of gangs with one task per node.
    """

    hosts: tuple[str, ...]
    first_node: str
    first_ray_id: str
    rendezvous: Rendezvous | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRecord:
    """A `LaunchTask` with the data that an executor needs to execute it.

    `ray_id` is the Ray id of the node at the time of the command: a node that returned meanwhile
    has another one. `addresses` are (host, port) of the shard services of the sources, by node.
    `packages` is that of the controller's packages, for a run that needs one. The executor enforces
    `time_limit_s`, and gives notice `grace_s` seconds before it kills a run. Of a log of more than
    `log_limit_bytes` the middle is dropped. It has at most `max_processes` processes and threads. 0
    is no limit of both. `node_cpus` and `node_gpus` are all that its node has.
    """

    run: RunId
    node: str
    ray_id: str
    gpus: tuple[int, ...]
    reads: tuple[Read, ...]
    addresses: Mapping[str, tuple[str, int]]
    holds: Demand
    program: TaskProgram
    gang: GangRecord | None = None
    packages: tuple[str, int] | None = None
    time_limit_s: float | None = None
    grace_s: float = GRACE_S
    log_limit_bytes: int = 0
    max_processes: int = 0
    node_cpus: int = 0
    node_gpus: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRecord:
    """A request to stop a run, with the location of its executor.

    It is complete without the launch, which a restarted master may not have. `now`: without notice
    and grace period, which is at most `grace_s` seconds.
    """

    run: RunId
    node: str
    ray_id: str
    now: bool = False
    grace_s: float = math.inf


class OutcomeKind(StrEnum):
    """The outcomes of a launch: `started` first, then exactly one of the others."""

    STARTED = "started"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRecord:
    """One outcome of a run; `message` and `failure` describe a failure, `message` also a stop.

    `part_bytes` are the sizes of the parts of a result with several, whose sum is `output_bytes`.
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
    """The response to a poll of a master: numbered outcomes not yet acknowledged.

    A restarted master has another `incarnation`, no launches and new numbers: every outstanding
    launch must be sent again; none runs twice while its executor is alive.
    """

    incarnation: str
    outcomes: tuple[tuple[int, OutcomeRecord], ...]


def launch_record(
    command: LaunchTask,
    *,
    ray_id: str,
    addresses: Mapping[str, tuple[str, int]],
    packages: tuple[str, int] | None = None,
    gang: GangRecord | None = None,
    log_limit_bytes: int = 0,
    max_processes: int = 0,
    node_cpus: int = 0,
    node_gpus: int = 0,
) -> LaunchRecord:
    """Return the record of a command; `addresses` may contain more than its sources.

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
        addresses={node: address for node, address in addresses.items() if node in sources},
        holds=command.holds,
        program=command.program,
        gang=gang,
        packages=packages if command.program.environment.package else None,
        time_limit_s=command.time_limit_s,
        grace_s=command.grace_s,
        log_limit_bytes=log_limit_bytes,
        max_processes=max_processes,
        node_cpus=node_cpus,
        node_gpus=node_gpus,
    )
