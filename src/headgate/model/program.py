"""Programs: what the tasks of a job run. The scheduler carries them and never looks inside."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import JsonValue

from headgate.base.errors import InvariantBroken

_LOCAL = re.compile(r"(\.|-e|--editable|-c|--constraint|-f|--find)|.*(/|\.whl$|\.gz$|\.zip$)")

SLOT = "headgate.live.item_worker:serve"
"""What the slots of a lease run; journals have this name."""


class ProgramType(StrEnum):
    """How a `run` is executed.

    A Python function is called, a command goes to the shell; of a Ray program it is the script.
    """

    FUNCTION = "function"
    COMMAND = "command"
    RAY = "ray"


class Launch(StrEnum):
    """Which members of a gang with one task per node execute its program.

    With `FIRST` the others hold their grants, and run what the first one starts on their nodes.
    """

    ALL = "all"
    FIRST = "first"


class RayMode(StrEnum):
    """Which Ray cluster a Ray program runs on: one of its own inside its grant, or Headgate's."""

    PRIVATE = "private"
    SHARED = "shared"


@dataclass(frozen=True, slots=True, kw_only=True)
class RayProgram:
    """A plain Ray program, besides its script: its arguments, and the Ray cluster it runs on.

    With `cpus_by_gpus` it holds its GPUs' part of the CPUs of each node, else what its tasks name.
    """

    args: tuple[str, ...] = ()
    mode: RayMode = RayMode.PRIVATE
    cpus_by_gpus: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """`count` tasks of a job that run the same; only their index differs, from `first_index` on.

    The first of them has the ordinal `first`. A stage that occurs several `times` is repeated every
    `every` ordinals. A function is called with `params`; a command reads the text of
    its parameter `stdin`, if there is one, on its stdin. Below the directory `checkpoint`,
    if it is not empty, the tasks save their progress.
    """

    first: int
    count: int
    program_type: ProgramType
    run: str
    params: dict[str, JsonValue] = field(default_factory=dict)
    times: int = 1
    every: int = 0
    checkpoint: str = ""
    first_index: int = 0

    def index_of(self, ordinal: int) -> int | None:
        """Return the index of a task, None for a task of another stage."""
        time, index = 0, ordinal - self.first
        if self.every:
            time, index = divmod(index, self.every)
        known = 0 <= time < self.times and 0 <= index < self.count
        return self.first_index + index if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnvironment:
    """What a node prepares for the runs of a job, once for all runs that need the same.

    `package` is the id of the files of which each run gets a copy as its working directory.
    Instead, `directory` is the path of one that the nodes share, in which the runs start
    themselves; `inode` is its number on all nodes, 0 where that is not known. Python packages come
    from the requirements `pip`, or from the existing environment at the path `venv`. The shell
    commands `setup` follow. Empty fields need nothing.
    """

    package: str = ""
    pip: tuple[str, ...] = ()
    venv: str = ""
    setup: tuple[str, ...] = ()
    directory: str = ""
    inode: int = 0


BARE = RunEnvironment()


def names_files(pip: Iterable[str]) -> bool:
    """Return whether any of these requirements names files of the working directory."""
    return any("://" not in line and _LOCAL.match(line) for line in pip)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepFiles:
    """Which files that a run has written into its working directory are kept.

    `include` are patterns as in `.gitignore`; without any it is all files. The newest are kept, up
    to `limit_bytes` of each run.
    """

    include: tuple[str, ...] = ()
    limit_bytes: int = 1 << 30


KEEP_ALL = KeepFiles()


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a job runs, by stages; every run has the variables `envs` in its environment.

    All tasks of the job share it. `launch` applies to gangs with one task per node. With `ray` its
    one stage is a Ray program, whose tasks are the members of a gang on one or more nodes. None of
    the files that its runs write are kept if `keep_files` is None.
    """

    stages: tuple[Stage, ...] = ()
    envs: dict[str, str] = field(default_factory=dict)
    launch: Launch = Launch.ALL
    environment: RunEnvironment = BARE
    ray: RayProgram | None = None
    keep_files: KeepFiles | None = KEEP_ALL

    def stage_of(self, ordinal: int) -> tuple[Stage, int]:
        """Return the stage of a task and the task's index there; O(stages).

        InvariantBroken for a task of no stage.
        """
        for stage in self.stages:
            index = stage.index_of(ordinal)
            if index is not None:
                return stage, index
        raise InvariantBroken(f"task {ordinal} belongs to no stage of its program: {self.stages}")


NO_PROGRAM = Program()
"""Of simulated jobs, whose tasks execute nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProgram:
    """What one task runs, and as which user.

    `stage`, `envs`, `environment` and `keep_files` are its job's. Its result has `parts`. Below the
    directory `results_path`, if it is not empty, its job keeps further copies of results.
    `per_node` is set for members of gangs with one task per node, and is `Launch.FIRST` for those
    of a Ray program, whose members on one node have one Ray node.
    """

    user: str
    stage: Stage
    index: int
    envs: dict[str, str] = field(default_factory=dict)
    parts: int = 1
    results_path: str = ""
    per_node: Launch | None = None
    environment: RunEnvironment = BARE
    ray: RayProgram | None = None
    keep_files: KeepFiles | None = KEEP_ALL
