"""Preparation of runs: files of a package, a Python environment and setup, once per node.

The files of a package and a Python environment are kept separately, since code changes more often
than requirements. Where `setup` or a requirement uses the files, both are one entry. Programs of
the job's user build them, and only that user can read them; their progress is in the run's log.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import quote

import headgate
from headgate.base.errors import WorldError
from headgate.live.base import account as accounts
from headgate.live.base.account import SYSTEM_PATH, Account
from headgate.live.base.permissions import make_traversable
from headgate.live.base.records import LaunchRecord
from headgate.live.node.env_cache import BuildError, cached
from headgate.live.node.flight import fetch
from headgate.live.node.packages import package_shard
from headgate.live.run import unpack
from headgate.live.run.process import WorkerProcess
from headgate.live.run.run_limits import RunLimits
from headgate.live.run.worker import RunRequest
from headgate.model import ProgramType, RunEnvironment, names_files

_FILES, _VENV, _ARCHIVE, _SCRIPT = "files", "venv", "package.tar", "prepare.sh"
_CHECK_S = 60.0
_NEEDED = "import headgate.live.run.worker, headgate.workloads.task"
_DIRECTORY = "prepared"
_PATH_FILE = "headgate-packages.pth"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnv:
    """What a run uses: files to copy ('' for none), variables, and a Python of its own or ''."""

    tree: str = ""
    envs: dict[str, str] = field(default_factory=dict)
    python: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """One entry that a node keeps; its content follows from the fields, which also name it.

    The files in a `directory` that the nodes share may change: so an entry that uses them is of one
    `job`. The directory's number is `inode`, unless that is 0.
    """

    package: str = ""
    pip: tuple[str, ...] = ()
    venv: str = ""
    setup: tuple[str, ...] = ()
    directory: str = ""
    inode: int = 0
    job: str = ""

    @property
    def name(self) -> str:
        """The name of the entry; a Python environment also depends on Headgate's interpreter."""
        ours = (sys.version, accounts.INTERPRETER, *_our_packages()) if self.pip else ()
        shared = (self.directory, self.inode, self.job) if self.directory else ()
        text = json.dumps((self.package, self.pip, self.venv, self.setup, ours, *shared))
        kind = "env" if self.pip else "files"
        return f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


class RunEnvs:
    """Prepares the environments of runs on one node; used by one executor."""

    def __init__(self, root: Path, node: str, token: Callable[[], str]) -> None:
        """`root` is Headgate's directory on the node; `token` reads that of shard services."""
        self._root, self._node, self._token = root, node, token
        self._checked: set[tuple[str, str, str]] = set()

    @asynccontextmanager
    async def run_env(
        self, launch: LaunchRecord, account: Account, log: int, tail: Callable[[], str]
    ) -> AsyncIterator[RunEnv]:
        """Yield what a run uses, built if the node does not have it.

        `log` is the run's, `tail` returns the end of it. BuildError when the run is to fail with
        its message; WorldError `unreachable` when the controller does not send the package.
        """
        needs = launch.program.environment
        found, envs = RunEnv(), dict(launch.program.envs)
        if needs.venv:
            found = _with_python(found, Path(needs.venv), envs)
            await self._check(launch, account, found)
        async with AsyncExitStack() as stack:
            for layer in _layers(needs, launch.run.job):
                build = partial(self._build, layer, launch, account, log, tail)
                entry = self._place(launch.program.user) / layer.name
                content = await stack.enter_async_context(
                    cached(
                        entry, build, partial(_write, log, "waiting for another run's preparation")
                    )
                )
                if (layer.package or layer.setup) and not layer.directory:
                    found = RunEnv(tree=str(content / _FILES), envs=found.envs, python=found.python)
                if layer.pip:
                    found = _with_python(found, content / _VENV, envs)
            await self._check(launch, account, found)
            yield found

    def _place(self, user: str) -> Path:
        return make_traversable(self._root, self._node, _DIRECTORY, quote(user, safe=""))

    async def _build(
        self,
        layer: _Layer,
        launch: LaunchRecord,
        account: Account,
        log: int,
        tail: Callable[[], str],
        content: Path,
    ) -> None:
        """Build the content of an entry in an empty directory."""
        if layer.package:
            await asyncio.to_thread(self._fetch, launch, layer.package, content / _ARCHIVE)
        await asyncio.to_thread(_hand_over, layer, content, account)
        envs = dict(launch.program.envs)
        if layer.pip or layer.venv:
            venv = content / _VENV if layer.pip else Path(layer.venv)
            envs |= _with_python(RunEnv(), venv, envs).envs
        user = launch.program.user
        limits = RunLimits(
            root=self._root, name=f"preparing-{user}", processes=launch.max_processes
        )
        error = await _run_as(account, envs, content, log, limits)
        if error:
            text = f"its environment could not be prepared: {error}\n{tail()}"
            raise BuildError(text.strip())

    def _fetch(self, launch: LaunchRecord, digest: str, to: Path) -> None:
        shard = package_shard(launch.program.user, digest)
        if launch.packages is None:
            raise WorldError("the controller serves no packages", code="unreachable")
        host, port = launch.packages
        try:
            fetch(host, port, shard, to, token=self._token(), reader="package")
        except WorldError as error:
            if error.code == "shard_absent":
                text = "its working directory is no longer stored; submit the job again"
                raise BuildError(text) from error
            raise

    async def _check(self, launch: LaunchRecord, account: Account, found: RunEnv) -> None:
        """Check that the Python of a run can be used; BuildError if not."""
        function = launch.program.stage.program_type is ProgramType.FUNCTION
        key = (found.python, account.name, _NEEDED if function else "")
        if not found.python or key in self._checked:
            return
        problem = await asyncio.to_thread(_why_unusable, *key[::2], account)
        if problem and function:
            hint = (
                "functions need headgate in their environment: install it there, or run a command"
            )
            raise BuildError(f"{found.python} on {self._node}: {problem}; {hint}")
        if problem:
            raise BuildError(f"{found.python} on {self._node} cannot be used: {problem}")
        self._checked.add(key)


def env_directory(root: Path, node: str) -> Path:
    """Return the directory of what a node keeps for runs, with one subdirectory per user."""
    return root / node / _DIRECTORY


def _layers(needs: RunEnvironment, job: str = "") -> list[_Layer]:
    """Return the entries that a run of a job needs."""
    has_files = needs.package or needs.directory
    if needs.setup or (has_files and names_files(needs.pip)):
        return [
            _Layer(
                package=needs.package,
                pip=needs.pip,
                venv=needs.venv if needs.setup else "",
                setup=needs.setup,
                directory=needs.directory,
                inode=needs.inode,
                job=job if needs.directory else "",
            )
        ]
    layers = [_Layer(package=needs.package)] if needs.package else []
    return [*layers, _Layer(pip=needs.pip)] if needs.pip else layers


def _with_python(found: RunEnv, venv: Path, envs: dict[str, str]) -> RunEnv:
    """Return what a run uses with a Python environment, which comes first in its PATH."""
    path = f"{venv / 'bin'}:{envs.get('PATH', SYSTEM_PATH)}"
    return RunEnv(
        tree=found.tree,
        envs={"PATH": path, "VIRTUAL_ENV": str(venv)},
        python=str(venv / "bin" / "python"),
    )


def _our_packages() -> tuple[str, ...]:
    """Return where Headgate and its own packages are: at the end of what a `pip` job imports."""
    ours = str(Path(headgate.__file__).parents[1])
    return tuple(
        dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), ours))
    )


def _script(layer: _Layer) -> list[str]:
    """Return the shell script that builds a layer in the current directory."""
    lines = ["set -e", f"mkdir -p {_FILES}", "here=$PWD"]
    python = f"'{accounts.INTERPRETER}'"
    if layer.package:
        lines += [
            "echo 'headgate: unpacking the working directory'",
            f"{python} -I -S '{unpack.__file__}' {_ARCHIVE} {_FILES}",
            f"rm -f {_ARCHIVE}",
        ]
    lines += _enter_shared(layer) if layer.directory else [f"cd {_FILES}"]
    if layer.pip:
        venv, file = f'"$here/{_VENV}"', '"$here/requirements.txt"'
        pip = f"{venv}/bin/python -I -m pip install --no-input --disable-pip-version-check"
        lines += [
            "echo 'headgate: making the Python environment'",
            f"{python} -I -m venv {venv}",
            "if command -v uv > /dev/null",
            f"then uv pip install --python {venv}/bin/python -r {file}",
            f"else {pip} -r {file}",
            "fi",
            f'cp "$here/{_PATH_FILE}" {venv}/lib/python*/site-packages/',
        ]
    if layer.setup:
        lines += ["echo 'headgate: running setup'", 'bash -e "$here/setup.sh"']
    return lines


def _enter_shared(layer: _Layer) -> list[str]:
    """Return the lines that enter a shared directory, one preparation of this machine at a time."""
    lines = [f"cd {shlex.quote(layer.directory)}"]
    if layer.inode:
        problem = "headgate: on this node it is another directory than at submission"
        test = f'[ "$(stat -c %i .)" = {layer.inode} ]'
        lines.append(f"{test} || {{ echo {shlex.quote(problem)}; exit 1; }}")
    return [*lines, "exec 9< .", "flock 9 || true  # file systems may have no locks"]


def _hand_over(layer: _Layer, content: Path, account: Account) -> None:
    """Write the files that build a layer, and give its directory to the user."""
    files = {
        "requirements.txt": layer.pip,
        "setup.sh": layer.setup,
        _PATH_FILE: _our_packages(),
        _SCRIPT: _script(layer),
    }
    for name, lines in files.items():
        (content / name).write_text("".join(f"{line}\n" for line in lines))
    for path in (*content.iterdir(), content):
        os.chown(path, account.uid, account.gid)


async def _run_as(
    account: Account, envs: dict[str, str], content: Path, log: int, limits: RunLimits
) -> str:
    """Run the script in a directory as a user, guarded as a run is; return the error, or ''."""
    request = RunRequest(
        program_type=ProgramType.COMMAND,
        run=f"exec bash {_SCRIPT}",
        index=0,
        count=1,
        params={},
        gpus=(),
        shards=(),
        files=(),
        output=str(content / "output"),
        outputs=(),
        directory=str(content),
        checkpoint="",
        first=False,
        gang=None,
    )
    envs = {**envs, "CUDA_VISIBLE_DEVICES": ""}
    worker = await WorkerProcess.start(account, (), envs, log, limits=limits)
    try:
        return await worker.run(request, log)
    finally:
        await worker.end()


def _why_unusable(python: str, needed: str, account: Account) -> str:
    """Return why a user cannot run a Python with these imports, or ''."""
    options = ["-P", "-c", needed] if needed else ["-c", ""]
    try:
        done = subprocess.run(
            [python, *options],
            **account.options(),
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=_CHECK_S,
        )
    except FileNotFoundError:
        return "there is no such file"
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr.strip().rpartition("\n")[2] if done.returncode else ""


def _write(log: int, text: str) -> None:
    os.write(log, f"headgate: {text}\n".encode())
