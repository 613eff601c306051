"""The run of a member of a Ray program, as its executor sees it: its place, and what it may leave.

Its guard ends all its processes and removes its directory. Only where something killed the guard
itself, is this left to the executor, which finds the processes by the directory in their
environment.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from contextlib import suppress
from pathlib import Path

import psutil

from headgate.live.ray_program import RayPlace
from headgate.live.records import LaunchRecord
from headgate.model import WHOLE

_PREFIX = "/tmp/hgr-"  # short: the paths of Ray's sockets are longer by 80, and 107 is the most
_PAUSE_S = 0.1


def ray_place(launch: LaunchRecord) -> RayPlace | None:
    """Return the place of a run in its Ray program's cluster, None for any other program."""
    gang, holds, ray = launch.gang, launch.holds, launch.program.ray
    if gang is None or gang.rendezvous is None or ray is None:
        return None
    return RayPlace(
        args=ray.args,
        node=launch.node,
        directory=f"{_PREFIX}{secrets.token_hex(4)}",
        port=gang.rendezvous.port,
        gpus=launch.gpus,
        cpus=None if ray.cpus_by_gpus else holds.cpus_milli // WHOLE,
        memory_bytes=holds.memory_bytes,
        custom=dict(holds.custom),
        node_cpus=launch.node_cpus,
        node_gpus=launch.node_gpus,
    )


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
