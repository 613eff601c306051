"""Limits of runs with real worker processes, without Ray: processes, memory, CPU weight, ends."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.live.accounts import OTHER, USER, readable_python, root_only
from tests.live.conftest import command, launch_of

from headgate.live.actors.executor import TaskExecutor
from headgate.live.base import account
from headgate.live.base.control_groups import ControlGroup
from headgate.live.base.records import GangRecord, LaunchRecord, OutcomeKind, OutcomeRecord
from headgate.live.node.run_logs import log_path
from headgate.live.run import process, run_limits
from headgate.live.run.run_limits import RunLimits, account_processes, limits_of, machine_processes
from headgate.model import Demand, ProgramType, RayProgram, RunId, Stage

pytestmark = root_only
__all__ = ["readable_python"]
MOST = 200
PATIENCE_S = 60.0
MIB = 1 << 20
# Parents have two children and exit, and children leave the session: longer than any test waits.
STORM = """
import os, sys, time
end = time.monotonic() + 300
for _ in range(60):
    try:
        child = os.fork()
    except OSError:
        continue
    if not child:
        open(sys.argv[1], "w").close()
        while time.monotonic() < end:
            try:
                if os.fork() and os.fork():
                    os._exit(0)
                os.setsid()
            except OSError:
                pass
        os._exit(0)
time.sleep(600)
"""
EATS = "import sys; sys.stdout.write(str(len(bytearray(int(sys.argv[1])))))"

Steps = Callable[[TaskExecutor], Coroutine[Any, Any, Any]]


def _groups_at_hand() -> bool:
    try:
        ControlGroup.make(f"headgate-test{os.getpid()}", "try").remove()
    except OSError:
        return False
    return True


needs_groups = pytest.mark.skipif(not _groups_at_hand(), reason="needs control groups")


@pytest.fixture
def place(readable_python: str) -> Iterator[Path]:
    """A directory that all users can enter."""
    before = os.umask(0o022)
    made = Path(tempfile.mkdtemp(prefix="hg-limits-", dir="/tmp"))
    made.chmod(0o777)
    yield made
    shutil.rmtree(made)
    os.umask(before)


@pytest.fixture
def run(place: Path) -> Iterator[Callable[[Steps], Any]]:
    """Run steps with an executor, and close it; no control group may be left."""

    def run_steps(steps: Steps) -> Any:
        async def whole() -> Any:
            executor = TaskExecutor(node="n0", root=str(place / "nodes"), linger_s=600)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    return await steps(executor)
            finally:
                await executor.close()

        return asyncio.run(whole())

    yield run_steps
    assert groups(place) == []


def groups(place: Path) -> list[Path]:
    """Return the directories of the control groups of this Headgate."""
    family = run_limits._family(place / "nodes")
    found = Path("/sys/fs/cgroup").glob(f"**/{family}/*")
    return [path for path in found if path.is_dir()]


def launch(text: str, number: int = 0, user: str = USER, **fields: Any) -> LaunchRecord:
    """Return the launch of a command of a user with at most 200 processes."""
    program = command(text, user=user)
    return launch_of(number, program=program, **{"max_processes": MOST, "grace_s": 0, **fields})


async def outcomes(executor: TaskExecutor, *records: LaunchRecord) -> list[OutcomeRecord]:
    await executor.begin(records)
    return list(await asyncio.gather(*(executor.outcome(record.run) for record in records)))


def finished(found: list[OutcomeRecord]) -> None:
    assert [(o.kind, o.message) for o in found] == [(OutcomeKind.FINISHED, "")] * len(found)


def result(place: Path, number: int = 0) -> str:
    """Return what a run has printed."""
    return log_path(place / "nodes", "n0", RunId("j", number, 1)).read_text()


def python(script: str, *words: object) -> str:
    """Return the command that runs a script of one line in the Python of all users."""
    return " ".join([account.INTERPRETER, "-c", f"'{script}'", *map(str, words)])


def write(path: Path, text: str) -> None:
    """Write a file for all users."""
    path.write_text(text)
    path.chmod(0o644)


async def seen(path: Path) -> None:
    while not os.path.exists(path):  # noqa: ASYNC110, ASYNC240, PTH110  # a file, here
        await asyncio.sleep(0.02)


def left(place: Path) -> list[psutil.Process]:
    """Return the processes that have the directory in their arguments."""
    word = str(place)
    found = psutil.process_iter(["cmdline", "status"])
    return [p for p in found if any(word in each for each in p.info["cmdline"] or ())]


# ------------------------------------------------------------------------------- control groups


@needs_groups
def test_run_has_limits_as_it_demands(run: Any, place: Path) -> None:
    async def steps(executor: TaskExecutor) -> dict[str, str]:
        holds = Demand(cpus_milli=2500, memory_bytes=512 * MIB)
        await executor.begin([launch(f"touch {place}/begun; sleep 600", holds=holds)])
        await seen(place / "begun")
        files = [file for group in groups(place) for file in group.iterdir()]
        return {file.name: file.read_text().strip() for file in files if file.name in names}

    version_1 = {"pids.max": "200", "memory.limit_in_bytes": str(512 * MIB), "cpu.shares": "2560"}
    version_2 = {"pids.max": "200", "memory.max": str(512 * MIB), "cpu.weight": "250"}
    names = {*version_1, *version_2}
    assert run(steps) in (version_1, version_2)


@needs_groups
def test_run_that_names_no_amounts_weighs_as_one_cpu_without_a_limit_of_memory(
    run: Any, place: Path
) -> None:
    async def steps(executor: TaskExecutor) -> dict[str, str]:
        await executor.begin([launch(f"touch {place}/begun; sleep 600")])
        await seen(place / "begun")
        files = [file for group in groups(place) for file in group.iterdir()]
        return {file.name: file.read_text().strip() for file in files if file.name in names}

    names = {"memory.limit_in_bytes", "memory.max", "cpu.shares", "cpu.weight"}
    found = run(steps)
    assert (found.get("cpu.shares", "1024"), found.get("cpu.weight", "100")) == ("1024", "100")
    assert int(found.get("memory.limit_in_bytes", 1 << 62)) > 1 << 60
    assert found.get("memory.max", "max") == "max"


@needs_groups
def test_user_cannot_change_or_leave_the_group_of_a_run(run: Any, place: Path) -> None:
    async def steps(executor: TaskExecutor) -> list[OutcomeRecord]:
        record = launch(f"until [ -e {place}/attack ]; do sleep 0.1; done; . {place}/attack")
        await executor.begin([record])
        while not groups(place):  # noqa: ASYNC110  # directories
            await asyncio.sleep(0.02)
        lines = [
            line
            for group in groups(place)
            for line in (
                f"! echo max > {group}/pids.max",
                f"! echo $$ > {group.parent}/cgroup.procs",
                f"! echo $$ > {group.parents[1]}/cgroup.procs",
                f"! mkdir {group}/inner",
                f"! rmdir {group}",
            )
        ]
        write(place / "draft", "\n".join(["set -e", *lines]))
        (place / "draft").rename(place / "attack")
        return [await executor.outcome(record.run)]

    finished(run(steps))


@needs_groups
@pytest.mark.parametrize("how", ["command", "function"])
def test_run_that_is_killed_for_its_memory_says_what_it_asked_and_used(
    run: Any, place: Path, how: str
) -> None:
    record = launch(python(EATS, 1024 * MIB), holds=Demand(memory_bytes=256 * MIB))
    if how == "function":
        write(place / "eats.py", f"def main(_):\n    bytearray({1024 * MIB})\n")
        stage = Stage(first=0, count=1, program_type=ProgramType.FUNCTION, run="eats:main")
        program = replace(record.program, stage=stage, envs={"PYTHONPATH": str(place)})
        record = replace(record, program=program)

    async def steps(executor: TaskExecutor) -> list[OutcomeRecord]:
        return await outcomes(executor, record)

    (outcome,) = run(steps)
    assert outcome.kind is OutcomeKind.FAILED
    found = re.match(r"OutOfMemory\(asked 256 MiB, used (\d+)[.\d]* MiB\): (.*)", outcome.message)
    assert found is not None, outcome.message
    assert 230 <= int(found[1]) <= 260
    ended = ("the command ended with exit status 137", "the task's process was ended by SIGKILL")
    assert found[2] == ended[how == "function"]


@needs_groups
def test_kill_that_a_run_survives_is_in_its_log_and_not_held_against_the_next(
    run: Any, place: Path
) -> None:
    holds = Demand(memory_bytes=256 * MIB)

    async def steps(executor: TaskExecutor) -> list[OutcomeRecord]:
        first = launch(f"{python(EATS, 1024 * MIB)} || true", holds=holds)
        second = launch("exit 3", number=1, holds=holds)
        return [*await outcomes(executor, first), *await outcomes(executor, second)]

    first, second = run(steps)
    finished([first])
    assert "headgate: a process was killed: OutOfMemory(asked 256 MiB, used " in result(place)
    assert second.message == "the command ended with exit status 3"


@needs_groups
def test_run_at_its_time_limit_says_that_a_process_of_it_was_killed(run: Any, place: Path) -> None:
    record = launch(
        f"{python(EATS, 1024 * MIB)} || touch {place}/killed; sleep 600",
        holds=Demand(memory_bytes=256 * MIB),
        grace_s=3.0,
        time_limit_s=600.0,
    )

    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        await executor.begin([record])
        await seen(place / "killed")
        await executor.expire([record.run])
        return await executor.outcome(record.run)

    assert " after the notice; OutOfMemory(asked 256 MiB, used " in run(steps).message


async def storms(executor: TaskExecutor, place: Path, record: LaunchRecord) -> OutcomeRecord:
    """Start a storm of forks, run a program as another user meanwhile, and cancel the storm."""
    await executor.begin([record])
    await seen(place / "begun")
    for _ in range(20):
        other = account.account_for(OTHER).options()
        ended = await asyncio.create_subprocess_exec("/bin/true", **other)
        assert await ended.wait() == 0
    finished(await outcomes(executor, launch("true & true & wait", number=1, user=OTHER)))
    await executor.stop([record.run], now=True)
    return await executor.outcome(record.run)


@needs_groups
@pytest.mark.parametrize("user", [USER, "root"])
def test_storm_of_forks_leaves_the_machine_usable_and_ends_with_its_run(
    run: Any, place: Path, user: str
) -> None:
    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        write(place / "storm.py", STORM)
        text = f"{account.INTERPRETER} {place}/storm.py {place}/begun"
        return await storms(executor, place, launch(text, user=user))

    assert run(steps).kind is OutcomeKind.STOPPED
    assert left(place) == []


@needs_groups
def test_run_whose_guard_was_killed_leaves_no_process_and_no_group(run: Any, place: Path) -> None:
    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        record = launch(
            f"setsid sleep 600.5 & setsid bash -c 'touch {place}/begun; sleep 601' & wait"
        )
        await executor.begin([record])
        await seen(place / "begun")
        guard = executor._runs[record.run].worker._process.pid  # type: ignore[union-attr]
        os.kill(guard, signal.SIGKILL)
        outcome = await executor.outcome(record.run)
        assert groups(place) == []
        return outcome

    assert "the task's guard was ended by SIGKILL" in run(steps).message
    assert left(place) == []


DIES = """
import asyncio, os, sys
from pathlib import Path
from headgate.live.base.account import account_for
from headgate.live.run.process import WorkerProcess
from headgate.live.run.run_limits import RunLimits

async def main():
    limits = RunLimits(root=Path(sys.argv[1]), name="run", processes=100)
    worker = await WorkerProcess.start(account_for(sys.argv[2]), (), {}, 2, limits=limits)
    print(worker._process.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


@needs_groups
def test_group_of_processes_that_died_together_is_ended_later(place: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", DIES, place / "nodes", "root"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert owner.stdout is not None
        guard = psutil.Process(int(owner.stdout.readline()))
        sleeps = dies(place, owner, guard)
    finally:
        owner.kill()
        owner.communicate()
    run_limits.remove_groups(place / "nodes")
    assert groups(place) == []
    assert sleeps.wait(timeout=30) == -signal.SIGKILL


def dies(
    place: Path, owner: subprocess.Popen[str], guard: psutil.Process
) -> subprocess.Popen[bytes]:
    """Kill a worker with its guard and its owner; return a process that is left in its group."""
    while not (members := guard.children()):
        time.sleep(0.02)
    run_limits.remove_groups(place / "nodes")
    assert len(groups(place)) > 0, "its owner lives"
    sleeps = subprocess.Popen(["sleep", "600"])
    for group in groups(place):
        leaf = group / "processes"
        (leaf if leaf.exists() else group).joinpath("cgroup.procs").write_text(str(sleeps.pid))
    guard.suspend()
    owner.kill()
    guard.kill()
    psutil.wait_procs([guard, *members], timeout=30)
    return sleeps


# ------------------------------------------------------------------------------- without them


@pytest.fixture
def without_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> ControlGroup:
        raise PermissionError("not here")

    monkeypatch.setattr(ControlGroup, "make", fails)


def test_processes_are_limited_by_account_where_there_are_no_groups(
    run: Any, place: Path, without_groups: None
) -> None:
    async def steps(executor: TaskExecutor) -> list[OutcomeRecord]:
        return await outcomes(executor, launch("ulimit -Su; ulimit -Hu"))

    finished(run(steps))
    most = account_processes()
    before = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    most = most if before == resource.RLIM_INFINITY else min(most, before)
    assert result(place) == f"{most}\n{most}\n"
    assert most < machine_processes()


def test_storm_of_forks_ends_with_its_run_where_there_are_no_groups(
    run: Any, place: Path, without_groups: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "account_processes", lambda: MOST)

    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        write(place / "storm.py", STORM)
        record = launch(f"{account.INTERPRETER} {place}/storm.py {place}/begun")
        await executor.begin([record])
        await seen(place / "begun")
        await executor.stop([record.run], now=True)
        return await executor.outcome(record.run)

    assert run(steps).kind is OutcomeKind.STOPPED
    assert left(place) == []


# ------------------------------------------------------------------------------- what is limited


def test_group_of_a_ray_program_has_what_its_members_on_the_node_hold(tmp_path: Path) -> None:
    holds = Demand(cpus_milli=1500, memory_bytes=MIB)
    hosts = ("10.0.0.1", "10.0.0.1", "10.0.0.2")
    gang = GangRecord(hosts=hosts, first_node="n0", first_ray_id="r0")
    program = command("true", ray=RayProgram())
    limits = [
        limits_of(launch_of(n, program=program, gang=gang, holds=holds, max_processes=10), tmp_path)
        for n in range(3)
    ]
    assert [(each.processes, each.memory_bytes, each.cpus_milli) for each in limits] == [
        (20, 2 * MIB, 3000),
        (20, 2 * MIB, 3000),
        (10, MIB, 1500),
    ]
    alone = limits_of(launch_of(1, gang=gang, holds=holds, max_processes=10), tmp_path)
    assert (alone.name, alone.memory_bytes) == ("j.1.1", MIB), "as in any other gang"


@pytest.mark.parametrize(
    ("asked", "used", "words"),
    [
        (2048, 2048, "OutOfMemory(asked 2 GiB, used 2 GiB)"),
        (2048, 2150, "OutOfMemory(asked 2 GiB, used 2.1 GiB)"),
        (2048, 0, "OutOfMemory(asked 2 GiB, used unknown)"),
        (2048, 100, "OutOfMemory(asked 2 GiB, used 100 MiB), the memory of the node was used up"),
        (0, 100, "OutOfMemory(asked none, used 100 MiB), the memory of the node was used up"),
    ],
)
def test_words_for_a_kill_as_memory_was_short(
    tmp_path: Path, asked: int, used: int, words: str
) -> None:
    limits = RunLimits(root=tmp_path, name="run", memory_bytes=asked * MIB)
    assert limits.out_of_memory(used * MIB) == words
