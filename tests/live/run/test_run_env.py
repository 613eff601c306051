"""What executors prepare for runs: packages, Python environments, setup; without Ray."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.live.accounts import OTHER, USER, readable_python, root_only
from tests.live.conftest import ME, TOKEN, command, launch_of, until

from headgate.api.packing import package_of
from headgate.live.actors.executor import TaskExecutor, token_path
from headgate.live.base.permissions import make_traversable
from headgate.live.base.records import LaunchRecord, OutcomeKind, OutcomeRecord
from headgate.live.node import env_cache
from headgate.live.node.env_cache import sweep
from headgate.live.node.flight import ShardServer
from headgate.live.node.packages import package_shard
from headgate.live.node.run_logs import log_path
from headgate.live.node.store import ShardStore
from headgate.live.run import run_env
from headgate.model import ProgramType, RunEnvironment, RunId, Stage
from headgate.protocol import FailureKind

__all__ = ["readable_python"]
PATIENCE_S = 120.0
WHEEL = "hgtest-1.0-py3-none-any.whl"
METADATA = "Metadata-Version: 2.1\nName: hgtest\nVersion: 1.0\n"
WHEEL_FACTS = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"

Steps = Callable[[TaskExecutor], Coroutine[Any, Any, Any]]


class Lab:
    """A node, and a controller's store of packages."""

    def __init__(self, tmp_path: Path) -> None:
        self.root, self.project = tmp_path / "root", tmp_path / "project"
        self.project.mkdir()
        make_traversable(self.root, "n0")
        token_path(self.root, "n0").write_text(TOKEN)
        self.store = ShardStore(tmp_path / "packages")
        self.server = ShardServer(self.store, "127.0.0.1", token=TOKEN)
        self.envs: dict[str, str] = {}
        self._runs = 0

    def write(self, **files: str) -> Lab:
        for name, text in files.items():
            (self.project / name.replace("_", ".")).write_text(text)
        return self

    def wheel(self, version_says: str = "1.0") -> None:
        """Put a wheel of a module beside the program."""
        with zipfile.ZipFile(self.project / WHEEL, "w") as wheel:
            wheel.writestr("hgtest.py", f"SAYS = {version_says!r}\n")
            wheel.writestr("hgtest-1.0.dist-info/METADATA", METADATA)
            wheel.writestr("hgtest-1.0.dist-info/WHEEL", WHEEL_FACTS)
            wheel.writestr("hgtest-1.0.dist-info/RECORD", "")

    def uv(self) -> Path:
        """Return a directory with a program that takes uv's arguments, and calls pip."""
        tool = self.root.parent / "bin" / "uv"
        tool.parent.mkdir()
        tool.write_text('#!/bin/sh\necho "uv $*"\nexec "$4" -m pip install --no-input -r "$6"\n')
        tool.chmod(0o755)
        return tool.parent

    def send(self, user: str = ME) -> str:
        """Store the project as a package of a user, and return its id."""
        package = package_of(self.project)
        self.store.put(package_shard(user, package.digest()), package.pieces())
        return package.digest()

    def launch(self, run: str, *, user: str = ME, **needs: Any) -> LaunchRecord:
        self._runs += 1
        environment = RunEnvironment(**needs)
        program = replace(command(run, envs=self.envs), environment=environment, user=user)
        address = ("127.0.0.1", self.server.port)
        return launch_of(self._runs, program=program, packages=address)

    def function(self, run: str, **needs: Any) -> LaunchRecord:
        launch = self.launch("true", **needs)
        stage = Stage(first=0, count=1, program_type=ProgramType.FUNCTION, run=run)
        return replace(launch, program=replace(launch.program, stage=stage))

    def log(self, launch: LaunchRecord) -> str:
        return log_path(self.root, "n0", launch.run).read_text()

    def served(self) -> int:
        return self.server.served_bytes().get("package", 0)

    def entries(self) -> list[Path]:
        return sorted((self.root / "n0" / "prepared").glob("*/*-*"))


@pytest.fixture
def lab() -> Iterator[Lab]:
    before = os.umask(0o022)
    with tempfile.TemporaryDirectory(prefix="hg-prepared-", dir="/tmp") as place:
        Path(place).chmod(0o755)  # other users may come in
        found = Lab(Path(place))
        yield found
        found.server.close()
    os.umask(before)


@pytest.fixture
def run(lab: Lab) -> Callable[[Steps], Any]:
    """Run steps with an executor, and close it."""

    def run_steps(steps: Steps) -> Any:
        async def whole() -> Any:
            executor = TaskExecutor(node="n0", root=str(lab.root))
            try:
                async with asyncio.timeout(PATIENCE_S):
                    return await steps(executor)
            finally:
                await executor.close()

        return asyncio.run(whole())

    return run_steps


@pytest.fixture
def ends(run: Any) -> Callable[..., list[OutcomeRecord]]:
    """Run launches at the same time, and return their outcomes."""

    def outcomes(*launches: LaunchRecord) -> list[OutcomeRecord]:
        async def steps(executor: TaskExecutor) -> list[OutcomeRecord]:
            await executor.begin(launches)
            return list(await asyncio.gather(*(executor.outcome(one.run) for one in launches)))

        found: list[OutcomeRecord] = run(steps)
        return found

    return outcomes


def finished(outcomes: list[OutcomeRecord]) -> None:
    assert [(o.kind, o.message) for o in outcomes] == [(OutcomeKind.FINISHED, "")] * len(outcomes)


def test_every_run_starts_in_a_copy_of_its_own(lab: Lab, ends: Any) -> None:
    lab.write(train_py="import util; util.main()", util_py="def main(): print('trained')")
    (lab.project / "latest").symlink_to("train.py")
    digest = lab.send()
    script = f"test ! -e mine && touch mine && {sys.executable} latest && cp mine {{output}}"
    launches = [lab.launch(script, package=digest) for _ in range(3)]
    finished(ends(*launches))
    assert all("trained\n" in lab.log(launch) for launch in launches)
    finished(ends(lab.launch(script, package=digest)))
    archive = sum(map(len, package_of(lab.project).pieces()))
    assert lab.served() == archive  # fetched once
    assert len(lab.entries()) == 1


def test_function_of_a_package_is_imported_from_it(lab: Lab, ends: Any) -> None:
    lab.write(steps_py="from util import NAME\ndef main(task): task.output.write_text(NAME)")
    lab.write(util_py="NAME = 'one'")
    finished(ends(lab.function("steps:main", package=lab.send())))
    lab.write(util_py="NAME = 'two'")
    finished(ends(lab.function("steps:main", package=lab.send())))
    store = ShardStore(lab.root / "n0" / "shards")
    assert [store.path(f"j/{n}").read_text() for n in (1, 2)] == ["one", "two"]


def test_functions_of_a_package_have_a_process_each_which_one_worker_starts(
    lab: Lab, run: Any
) -> None:
    lab.write(
        steps_py="import os, state\n"
        "def main(task):\n"
        "    state.RUNS += 1\n"
        "    task.output.write_text(f'{state.RUNS} {os.getpid()} {os.getppid()}')\n"
    )
    lab.write(state_py="RUNS = 0")
    launches = [lab.function("steps:main", package=lab.send()) for _ in range(3)]

    async def steps(executor: TaskExecutor) -> None:
        for launch in launches:
            await executor.begin([launch])
            finished([await executor.outcome(launch.run)])

    run(steps)
    store = ShardStore(lab.root / "n0" / "shards")
    found = [store.path(f"j/{n}").read_text().split() for n in (1, 2, 3)]
    runs, processes, workers = zip(*found, strict=True)
    assert runs == ("1", "1", "1"), "no run sees the modules of another"
    assert len(set(processes)) == 3
    assert len(set(workers)) == 1


def test_runs_in_a_shared_directory_see_its_current_files_and_leave_what_they_write(
    lab: Lab, ends: Any
) -> None:
    lab.write(train_py="import os\nos.makedirs('ckpt'); open('ckpt/model.pt', 'w').write('one')\n")
    shared = {"directory": str(lab.project), "inode": lab.project.stat().st_ino}
    launch = lab.launch("python train.py && pwd > {output}", **shared)
    (outcome,) = ends(launch)
    finished([outcome])
    assert outcome.usage.kept is None, "it stays where it is"
    assert (lab.project / "ckpt" / "model.pt").read_text() == "one"
    store = ShardStore(lab.root / "n0" / "shards")
    assert store.path("j/1").read_text() == f"{lab.project}\n"
    lab.write(steps_py="from ckpt.util import NAME\ndef main(task): task.output.write_text(NAME)")
    (lab.project / "ckpt" / "util.py").write_text("NAME = 'two'")
    finished(ends(lab.function("steps:main", **shared)))
    (lab.project / "ckpt" / "util.py").write_text("NAME = 'other'")
    finished(ends(lab.function("steps:main", **shared)))
    assert [store.path(f"j/{n}").read_text() for n in (2, 3)] == ["two", "other"]
    assert lab.entries() == []


def test_run_does_not_start_where_its_shared_directory_is_missing_or_another_one(
    lab: Lab, ends: Any
) -> None:
    gone = lab.project / "gone"
    other = lab.launch("touch ran", directory=str(lab.project), inode=1)
    missing, replaced = ends(lab.launch("touch ran", directory=str(gone)), other)
    assert missing.message == f"it cannot run in {gone} on n0: No such file or directory"
    problem = "there it is another directory than at submission"
    assert replaced.message == f"it cannot run in {lab.project} on n0: {problem}"
    assert {missing.failure, replaced.failure} == {FailureKind.CRASHED}, "no fault of the program"
    assert list(lab.project.iterdir()) == []


def test_setup_runs_in_a_shared_directory_once_for_a_job(lab: Lab, ends: Any) -> None:
    shared = {"directory": str(lab.project), "inode": lab.project.stat().st_ino}
    script = "echo made >> built"
    launches = [lab.launch("cat built", setup=(script,), **shared) for _ in range(2)]
    finished(ends(*launches))
    assert [lab.log(launch)[-5:] for launch in launches] == ["made\n"] * 2
    assert (lab.project / "built").read_text() == "made\n"
    job = replace(lab.launch("cat built", setup=(script,), **shared), run=RunId("k", 0, 1))
    finished(ends(job))
    assert (lab.project / "built").read_text() == "made\nmade\n"
    wrong = lab.launch("true", setup=("touch ran",), directory=str(lab.project), inode=1)
    (outcome,) = ends(wrong)
    assert outcome.failure is FailureKind.ERROR
    assert "it is another directory than at submission" in outcome.message
    assert not (lab.project / "ran").exists()


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("raise KeyError('x')", "KeyError: 'x'"),
        ("raise KeyboardInterrupt", "the function's process ended with exit status 1"),
        ("import sys; sys.exit(4)", "the function ended with exit status 4"),
        ("import os; os._exit(5)", "the function's process ended with exit status 5"),
        ("import os; os.kill(os.getpid(), 9)", "the function's process was ended by SIGKILL"),
    ],
)
def test_function_of_a_package_that_fails_is_reported(
    lab: Lab, ends: Any, body: str, problem: str
) -> None:
    lab.write(steps_py=f"def main(task):\n    {body}\n")
    (outcome,) = ends(lab.function("steps:main", package=lab.send()))
    assert outcome.failure is FailureKind.ERROR
    assert outcome.message.splitlines()[0] == problem


def test_function_of_a_package_gets_the_notice_and_its_worker_survives_it(
    lab: Lab, run: Any
) -> None:
    mark = lab.root.parent / "mark"
    lab.write(
        steps_py="import pathlib, signal, time\n"
        "def main(task):\n"
        "    def save(*_):\n"
        f"        pathlib.Path({str(mark)!r}).write_text('saved')\n"
        "        raise SystemExit\n"
        "    signal.signal(signal.SIGTERM, save)\n"
        f"    pathlib.Path({str(mark)!r}).write_text('begun')\n"
        "    time.sleep(600)\n"
    )
    launch = lab.function("steps:main", package=lab.send())

    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        await executor.begin([launch])
        while not (mark.exists() and mark.read_text()):  # noqa: ASYNC110  # bounded by `run`
            await asyncio.sleep(0.01)
        await executor.stop([launch.run])
        return await executor.outcome(launch.run)

    assert run(steps).kind is OutcomeKind.STOPPED
    assert mark.read_text() == "saved"


def test_package_that_is_no_longer_stored_fails_the_run(lab: Lab, ends: Any) -> None:
    (outcome,) = ends(lab.launch("true", package="0" * 64))
    assert outcome.kind is OutcomeKind.FAILED
    assert outcome.failure is FailureKind.ERROR
    assert outcome.message == "its working directory is no longer stored; submit the job again"


def test_package_with_a_link_that_leads_outside_fails_the_run_with_its_name(
    lab: Lab, ends: Any
) -> None:
    package = lab.root.parent / "hostile.tar"
    with tarfile.open(package, "w") as archive:
        link = tarfile.TarInfo("shadow")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/shadow"
        archive.addfile(link)
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    lab.store.put(package_shard(ME, digest), [package.read_bytes()])
    (outcome,) = ends(lab.launch("true", package=digest))
    assert outcome.failure is FailureKind.ERROR
    assert "member 'shadow': is a link that leads outside, to '/etc/shadow'" in outcome.message
    assert "Traceback" not in outcome.message


def test_run_is_lost_where_the_controller_is_away(lab: Lab, ends: Any) -> None:
    digest = lab.send()
    lab.server.close()
    (outcome,) = ends(lab.launch("true", package=digest))
    assert (outcome.kind, outcome.failure) == (OutcomeKind.FAILED, FailureKind.LOST)


def test_environment_is_built_once_and_has_headgates_packages_behind(lab: Lab, ends: Any) -> None:
    lab.wheel()
    lab.write(steps_py="import hgtest, numpy, sys\ndef main(task): print(hgtest.SAYS, sys.prefix)")
    needs = {"package": lab.send(), "pip": (f"./{WHEEL}",)}
    lab.envs = {"PATH": f"{lab.uv()}:/usr/bin:/bin"}
    script = "python -c 'import hgtest, sys; print(hgtest.SAYS, sys.prefix)'; echo $VIRTUAL_ENV"
    launches = [lab.launch(script, **needs) for _ in range(2)]
    function = lab.function("steps:main", **needs)
    outcomes = ends(*launches, function)
    finished(outcomes)
    logs = [lab.log(launch) for launch in (*launches, function)]
    assert sorted("making the Python environment" in log for log in logs) == [False, False, True]
    assert sum("uv pip install" in log for log in logs) == 1  # where there is one
    assert sum("waiting for another run's preparation" in log for log in logs) == 2
    prefixes = {prefix for log in logs for prefix in re.findall(r"^1\.0 (.*)", log, re.MULTILINE)}
    assert len(prefixes) == 1
    assert [log.splitlines()[-1] for log in logs[:2]] == [*prefixes, *prefixes]
    assert all(outcome.usage.read_s > 0 for outcome in outcomes)


def test_preparation_that_failed_is_not_repeated_for_a_while(
    lab: Lab, ends: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (lab.launch("true", setup=("echo oops; false",)) for _ in range(3))
    (outcome,), (again,) = ends(first), ends(second)
    assert outcome.message == (
        "its environment could not be prepared: the command ended with exit status 1\n"
        "headgate: running setup\noops"
    )
    assert again.message == outcome.message
    assert lab.log(second) == ""
    monkeypatch.setattr(env_cache, "_FAILED_S", 0)
    ends(third)
    assert "oops" in lab.log(third)


def test_setup_runs_once_and_its_files_are_in_every_copy(lab: Lab, ends: Any) -> None:
    lab.write(source_txt="built")
    digest = lab.send()
    needs = {"package": digest, "setup": ("cp source.txt result.txt", "echo once >> result.txt")}
    launches = [lab.launch("cat result.txt; rm result.txt", **needs) for _ in range(2)]
    finished(ends(*launches))
    assert all("builtonce\n" in lab.log(launch) for launch in launches)
    assert len(lab.entries()) == 1


def test_setup_without_a_package_leaves_its_files_in_the_working_directory(
    lab: Lab, ends: Any
) -> None:
    launch = lab.launch("ls", setup=("touch made",))
    finished(ends(launch))
    assert "made" in lab.log(launch).splitlines()


def test_stop_while_an_environment_is_built_leaves_no_process_and_the_next_run_builds_it(
    lab: Lab, run: Any
) -> None:
    mark = lab.project / "mark"
    setup = (f"test -e {mark} || {{ touch {mark}; sleep 600; }}",)
    first, second = lab.launch("true", setup=setup), lab.launch("true", setup=setup)

    async def steps(executor: TaskExecutor) -> list[OutcomeRecord]:
        await executor.begin([first])
        await asyncio.to_thread(until, mark.exists, "setup runs")
        await executor.stop([first.run])
        stopped = await executor.outcome(first.run)
        left = psutil.Process().children(recursive=True)
        assert [p for p in left if "sleep" in p.name()] == []
        await executor.begin([second])
        return [stopped, await executor.outcome(second.run)]

    outcomes = run(steps)
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.STOPPED, OutcomeKind.FINISHED]


def test_ready_environment_is_used_as_it_stands(lab: Lab, ends: Any) -> None:
    launch = lab.launch("python -c 'import sys; print(sys.executable)'", venv=sys.prefix)
    finished(ends(launch))
    assert lab.log(launch).strip() == str(Path(sys.prefix, "bin", "python"))
    assert lab.entries() == []


@pytest.mark.parametrize(
    ("venv", "problem"), [("/no/venv", "there is no such file"), ("/proc", "there is no such file")]
)
def test_missing_environment_fails_the_run(lab: Lab, ends: Any, venv: str, problem: str) -> None:
    (outcome,) = ends(lab.launch("true", venv=venv))
    assert outcome.failure is FailureKind.ERROR
    assert outcome.message == f"{venv}/bin/python on n0 cannot be used: {problem}"


def test_function_is_rejected_in_an_environment_without_headgate(lab: Lab, ends: Any) -> None:
    venv = lab.project / "bare"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.base_prefix}/bin/python3 -I "$@"\n')
    (venv / "bin" / "python").chmod(0o755)
    (outcome,) = ends(lab.function("steps:main", venv=str(venv)))
    assert "No module named 'headgate'" in outcome.message
    assert "functions need headgate in their environment" in outcome.message


def test_sweep_removes_what_was_not_used_for_long_and_is_not_in_use(lab: Lab, run: Any) -> None:
    lab.write(a_txt="a")
    place = lab.root / "n0" / "prepared"
    launch = lab.launch("sleep 600", package=lab.send())
    late_s = time.time() + 2 * env_cache.KEEP_S["files"]

    async def steps(executor: TaskExecutor) -> list[list[Path]]:
        await executor.begin([launch])
        await asyncio.to_thread(until, lambda: list(place.glob("*/*/ready")), "it runs")
        seen = []
        sweep(place, now_s=late_s)
        seen.append(lab.entries())
        await executor.stop([launch.run])
        await executor.outcome(launch.run)
        sweep(place)
        seen.append(lab.entries())
        sweep(place, now_s=late_s)
        return [*seen, lab.entries()]

    in_use, recent, late = run(steps)
    assert (len(in_use), len(recent), late) == (1, 1, [])


@pytest.mark.root
@root_only[1]
def test_package_is_unreadable_for_other_users(lab: Lab, ends: Any, readable_python: str) -> None:
    lab.write(secret_txt="secret")
    digest = lab.send(USER)
    finished(ends(lab.launch("cat secret.txt; id -un", user=USER, package=digest)))
    (entry,) = lab.entries()
    (outcome,) = ends(lab.launch(f"cat {entry}/content/files/secret.txt", user=OTHER))
    assert "Permission denied" in outcome.message
    (outcome,) = ends(lab.launch("cat secret.txt", user=OTHER, package=digest))
    assert outcome.message.startswith("its working directory is no longer stored")


def test_layers_separate_code_from_requirements_unless_they_depend_on_it() -> None:
    package, pip = "a" * 64, ("numpy>=2", "x @ https://host/x.whl", "--pre")
    names = [layer.name for layer in run_env._layers(RunEnvironment(package=package, pip=pip))]
    other = [layer.name for layer in run_env._layers(RunEnvironment(package="b" * 64, pip=pip))]
    assert (names[0] != other[0], names[1] == other[1]) == (True, True)
    for local in ("./x", "-e .", "wheels/x.whl", "x.whl", "-c constraints.txt"):
        (layer,) = run_env._layers(RunEnvironment(package=package, pip=(local,)))
        assert layer.package == package
    (layer,) = run_env._layers(RunEnvironment(package=package, pip=pip, setup=("make",)))
    assert (layer.package, layer.pip, layer.setup) == (package, pip, ("make",))
    assert run_env._layers(RunEnvironment(venv="/shared/venv")) == []
