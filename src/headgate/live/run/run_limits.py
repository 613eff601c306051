"""What the processes of a run may use of their node: limits of its control group.

Where there are no control groups for Headgate, the number of processes is limited by account.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
from dataclasses import dataclass
from pathlib import Path

from headgate.base.units import format_size
from headgate.live.base.control_groups import ControlGroup, sweep
from headgate.live.base.records import LaunchRecord
from headgate.model import WHOLE

_RUNS_SHARE = 0.75  # of the processes that the machine can have: the rest is not for runs
_ACCOUNT_SHARE = 0.5  # of the same, where they are limited by account
_NEAR = 0.9  # of the limit: more than what is free at a kill, as memory is given in batches

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """What the processes of one worker may use; 0 is no limit.

    The control groups of all workers of Headgate in the directory `root` are a family.
    """

    root: Path
    name: str
    processes: int = 0
    memory_bytes: int = 0
    cpus_milli: int = 0

    def group(self) -> ControlGroup | None:
        """Return a new control group with these limits, None where there are none for Headgate.

        A run that names no CPUs weighs as much as one of one CPU.
        """
        if os.geteuid() != 0:
            return None
        group = None
        try:
            group = ControlGroup.make(_family(self.root), self.name)
            most = int(_RUNS_SHARE * machine_processes())
            cores = WHOLE * (os.cpu_count() or 1)
            group.family().limit(processes=most, cpus_milli=cores)
            group.limit(
                processes=self.processes,
                memory_bytes=self.memory_bytes,
                cpus_milli=self.cpus_milli or WHOLE,
            )
        except OSError as error:
            _warn(error.strerror or str(error))
            if group is not None:
                group.end()
            return None
        return group

    def out_of_memory(self, used_bytes: int) -> str:
        """Return the words for a kill as memory was short; 0 `used_bytes` are not known."""
        asked = format_size(self.memory_bytes) if self.memory_bytes else "none"
        used = format_size(used_bytes) if used_bytes else "unknown"
        text = f"OutOfMemory(asked {asked}, used {used})"
        own = not used_bytes or used_bytes >= _NEAR * self.memory_bytes
        return text if self.memory_bytes and own else f"{text}, the memory of the node was used up"


def limits_of(launch: LaunchRecord, root: Path) -> RunLimits:
    """Return the limits of a run: what it holds of its node.

    The processes of a Ray program on one node belong to the run of one of its members there.
    """
    run, here = launch.run, 1
    if launch.program.ray is not None and launch.gang is not None:
        here = launch.gang.hosts.count(launch.gang.hosts[run.ordinal])
    return RunLimits(
        root=root,
        name=f"{run.job}.{run.ordinal}.{run.attempt}",
        processes=here * launch.max_processes,
        memory_bytes=here * launch.holds.memory_bytes,
        cpus_milli=here * (launch.holds.cpus_milli or WHOLE),
    )


def account_processes() -> int:
    """Return the most processes of a user where there are no control groups."""
    return int(_ACCOUNT_SHARE * machine_processes())


def machine_processes() -> int:
    """Return how many processes and threads this machine can have."""
    names = ("pid_max", "threads-max")
    return min(int(Path("/proc/sys/kernel", name).read_text()) for name in names)


def remove_groups(root: Path) -> None:
    """End the control groups of Headgate's dead processes; those of others remain."""
    if os.geteuid() == 0:
        sweep(_family(root))


@functools.cache  # once, for all runs
def _warn(problem: str) -> None:
    log.warning("runs have no control groups: %s", problem)


def _family(root: Path) -> str:
    return f"headgate-{hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:8]}"
