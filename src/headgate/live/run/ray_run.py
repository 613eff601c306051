"""The run of a member of a Ray program, as its executor sees it: its place, and what it may leave.

Its guard ends all its processes and removes its directory. Only where something killed the guard
itself, is this left to the executor, which finds the processes by the directory in their
environment.
"""

from __future__ import annotations

import asyncio
import os
import platform
import secrets
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil

from headgate.live.base.records import LaunchRecord
from headgate.live.cluster.packet_filter import Shield, remove_shield, set_shield
from headgate.live.cluster.ray_ports import PortBlock, claimed_ports
from headgate.live.run.environment import environment_of
from headgate.live.run.ray_program import RayPlace
from headgate.model import WHOLE, RayMode

_PREFIX = "/tmp/hgr-"  # short: the paths of Ray's sockets are longer by 80, and 107 is the most
_PORTS = 200
_PAUSE_S = 0.1
_TOKEN = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


@asynccontextmanager
async def ray_place(launch: LaunchRecord, user: int) -> AsyncIterator[RayPlace | None]:
    """Yield the place of a run in its Ray program's cluster, None for any other program.

    Meanwhile its ports are claimed and, where that is possible, closed to all but this user, root
    and the nodes of the program. WorldError `no_port` when no ports are free.
    """
    gang, ray = launch.gang, launch.program.ray
    if gang is None or gang.rendezvous is None or ray is None:
        yield None
        return
    name = secrets.token_hex(4)
    directory = f"{_PREFIX}{name}"
    if ray.mode is RayMode.SHARED:
        yield replace(_place(launch, directory), shared=_shared(launch))
        return
    with claimed_ports(_PORTS) as (ports, _):
        hub = gang.rendezvous.hub_port
        shield = Shield(
            ports=[ports, PortBlock(first=hub, last=hub)] if launch.run.ordinal == 0 else [ports],
            owner=os.getpid(),
            users=[user],
            hosts=gang.hosts,
            name=name,
        )
        setting = asyncio.create_task(asyncio.to_thread(set_shield, shield))
        try:
            await asyncio.shield(setting)
            yield replace(_place(launch, directory), ports=(ports.first, ports.last))
        finally:
            await asyncio.wait((setting,))  # also of a run that is stopped meanwhile
            await asyncio.to_thread(remove_shield, shield)


def _place(launch: LaunchRecord, directory: str) -> RayPlace:
    holds, ray = launch.holds, launch.program.ray
    assert ray is not None
    return RayPlace(
        args=ray.args,
        node=launch.node,
        directory=directory,
        ports=(0, 0),
        gpus=launch.gpus,
        cpus=None if ray.cpus_by_gpus else holds.cpus_milli // WHOLE,
        memory_bytes=holds.memory_bytes,
        custom=dict(holds.custom),
        node_cpus=launch.node_cpus,
        node_gpus=launch.node_gpus,
        ray_id=launch.ray_id,
    )


def _shared(launch: LaunchRecord) -> dict[str, dict[str, str]]:
    """Return how a shared program reaches the Ray cluster that this process, an actor, is of."""
    import ray

    hidden = ("CUDA_VISIBLE_DEVICES",)  # Ray sets it for each task and actor
    address = ray.get_runtime_context().gcs_address
    return {
        "env": {name: os.environ[name] for name in _TOKEN if name in os.environ}
        | {"RAY_ADDRESS": address, "RAY_USAGE_STATS_ENABLED": "0"},
        "versions": {"Ray": ray.__version__, "Python": platform.python_version()},
        "envs": {n: v for n, v in environment_of(launch).items() if n not in hidden},
    }


def remove_remains(directory: str) -> None:
    """Kill all processes of a Ray program that has lost its guard, then remove its directory.

    Until two looks find none: one in `exec` has no environment for a moment. O(processes).
    """
    unseen = 0
    while unseen < 2:
        processes = _processes(directory)
        for process in processes:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(processes, timeout=5)
        unseen = 0 if processes else unseen + 1
        time.sleep(_PAUSE_S)
    shutil.rmtree(directory, ignore_errors=True)


def _processes(directory: str) -> list[psutil.Process]:
    """Return the processes that have the directory in their environment or their arguments."""
    mark, found = directory.encode(), []
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):  # it has ended, or belongs to another user
            place = Path("/proc", str(process.pid))
            text = (place / "environ").read_bytes() + (place / "cmdline").read_bytes()
            if mark in text and process.pid != os.getpid() and _runs(process):
                found.append(process)
    return found


def _runs(process: psutil.Process) -> bool:
    return process.status() != psutil.STATUS_ZOMBIE
