"""The process in which tasks run: one JSON line from its executor per task, one line back.

`python -m headgate.live.run.worker REQUESTS RESPONSES` reads requests from the socket REQUESTS,
each after the descriptor of its log, and writes responses to the descriptor RESPONSES. It runs as
the job's user; its guard (`headgate.live.run.guard`) starts it, and ends it with all its
descendants.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from headgate.live.base.exit_status import ProcessEnd, how_it_ended, status_of
from headgate.live.run.hub import GangPlace, run_member
from headgate.live.run.ray_program import RayPlace, run_ray

WORK = "files"
"""The working directory of a run, in its scratch directory."""

NOT_SHARED = "it cannot run in"
"""The beginning of the error of a run whose shared working directory its node does not have."""

_PLACEHOLDER = re.compile(r"(?<!\$)\{(shard|shards|output|outputs|index)\}")
_LONGEST_ERROR = 4096  # characters
_LONGEST_VARIABLE = 100_000  # bytes; Linux limits a string of the environment to 128 KiB


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """One run to execute; all paths are on this node.

    `program_type` is a value of `ProgramType`; `params` are for a function, or have
    the `stdin` of a command. The program starts in
    `directory`, or in a copy of `tree` there, or, if `fresh`, in an empty directory there, or in
    the directory `shared`, if one is given; that has the number `inode`, unless it is 0. `files`
    are the paths given by the user. A result in one part is written to `output`, one in several to
    `outputs`. `checkpoint` is '' for a task without one; the `first` run of a task gets an empty
    one. `gang` is set in gangs with one task per node, and `gang` and `ray` for Ray programs, whose
    script is `run`.
    """

    program_type: str
    run: str
    index: int
    count: int
    params: Mapping[str, Any]
    gpus: Sequence[int]
    shards: Sequence[str]
    files: Sequence[str]
    output: str
    outputs: Sequence[str]
    directory: str
    checkpoint: str
    first: bool
    gang: GangPlace | None
    tree: str = ""
    fresh: bool = False
    shared: str = ""
    inode: int = 0
    ray: RayPlace | None = None

    @property
    def own_modules(self) -> bool:
        """Whether a function may import modules from its working directory."""
        return bool(self.tree or self.shared)


def main() -> None:
    """Serve requests until the executor closes the socket."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    responses = os.fdopen(int(sys.argv[2]), "w")
    for descriptor in (channel.fileno(), responses.fileno()):
        os.set_inheritable(descriptor, False)  # programs of a task must not read requests
    requests = channel.makefile("r")
    while True:
        _, logs, _, _ = socket.recv_fds(channel, 1, 1)
        if not logs:
            return
        _log_to(logs[0])
        request = _request(requests.readline())
        error = _enter(request) or _run(request)
        sys.stdout.flush()
        sys.stderr.flush()
        print(_response(error), file=responses, flush=True)


def _response(error: str) -> str:
    """Return the line that reports the end of a run: its error or '', and its exit status."""
    return json.dumps({"error": error[:_LONGEST_ERROR], "exit": status_of(error) if error else 0})


def _request(line: str) -> RunRequest:
    fields = json.loads(line)
    gang, ray = fields.pop("gang"), fields.pop("ray")
    return RunRequest(
        **fields,
        gang=None if gang is None else GangPlace(**gang),
        ray=None if ray is None else RayPlace(**ray),
    )


def _log_to(descriptor: int) -> None:
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def _enter(request: RunRequest) -> str:
    """Enter the working directory, check files and checkpoint; return the error, or ''.

    This runs with the rights of the job's user, whose paths are therefore safe to open.
    """
    try:
        os.chdir(request.directory)
        _enter_own(request)
    except OSError as error:
        return f"its working directory cannot be entered: {error}"
    if request.shared and (problem := _enter_shared(request.shared, request.inode)):
        node = os.environ.get("HEADGATE_NODE", "this node")
        return f"{NOT_SHARED} {request.shared} on {node}: {problem}"
    if request.own_modules and request.ray is not None:
        # workers on other nodes import modules beside the script
        paths = (request.shared or str(Path.cwd()), os.environ.get("PYTHONPATH", ""))
        os.environ["PYTHONPATH"] = ":".join(filter(None, paths))
    for path in request.files:
        try:
            with Path(path).open("rb"):
                pass
        except OSError as error:
            return f"cannot read '{path}': {error}"
    if not request.checkpoint:
        return ""
    try:
        _make_checkpoint(Path(request.checkpoint), first=request.first)
    except OSError as error:
        return f"its checkpoint directory cannot be used: {error}"
    return ""


def _enter_shared(directory: str, inode: int) -> str:
    """Enter a directory that the nodes share; return why that is not possible, or ''."""
    try:
        os.chdir(directory)
        if inode and Path().stat().st_ino != inode:
            return "there it is another directory than at submission"
    except OSError as error:
        return str(error.strerror)
    return ""


def _enter_own(request: RunRequest) -> None:
    """Make and enter the working directory of a run in its scratch directory, if it gets one."""
    if request.tree:
        _copy_tree(request.tree, WORK)
    elif request.fresh:
        Path(WORK).mkdir(mode=0o700)
    if request.tree or request.fresh:
        os.chdir(WORK)


def _copy_tree(tree: str, to: str) -> None:
    """Copy a directory, without a copy of its blocks where the file system can share them."""
    command = ["cp", "-a", "--reflink=auto", "--", f"{tree}/.", to]
    done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode:
        raise OSError(done.stderr.decode(errors="replace").strip().rpartition("\n")[2])


def _make_checkpoint(place: Path, *, first: bool) -> None:
    """Create the directory of a task's checkpoint, empty for its first run."""
    if first:
        with suppress(FileNotFoundError):
            shutil.rmtree(place)  # of an earlier job of the same name
    with suppress(FileExistsError):
        place.mkdir(mode=0o700)  # without parents: they would be on this node alone
    found = place.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise OSError(f"'{place}' is not a directory that belongs to this user")


def _run(request: RunRequest) -> str:
    """Run one task; return the error, or ''."""
    if request.gang is None:
        return _run_program(request)
    if request.ray is not None:
        return run_ray(request.run, request.output, request.ray, request.gang)
    return run_member(request.gang, Path(request.directory), lambda: _run_program(request))


def _run_program(request: RunRequest) -> str:
    if request.program_type == "command":
        return _run_command(request)
    if request.own_modules and request.gang is None:
        return _run_forked(request)
    return _call(request)


def _run_forked(request: RunRequest) -> str:
    """Run a function in a child, as its modules are those of its own copy of the files.

    So this process, which has imported only what all functions need, serves further runs.
    """
    import headgate.workloads.task  # noqa: F401  # NumPy, once for all

    read_end, write_end = os.pipe()
    with _surviving_notice() as notices:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of threads: those of NumPy's libraries allow it
            child = os.fork()
        if child == 0:
            _answer_as_child(request, write_end, notified=bool(notices))
        os.close(write_end)
        if notices:  # it could not get that one yet
            os.kill(child, signal.SIGTERM)
        _, ended = os.waitpid(child, 0)
    with os.fdopen(read_end, "rb") as pipe:
        os.set_blocking(read_end, False)  # its own children may still have the other end
        answer = pipe.read() or b""
    if answer:
        found = json.loads(answer[1:])
        return ProcessEnd.of(found["error"], found["exit"])
    return how_it_ended("the function's process", os.waitstatus_to_exitcode(ended))


def _answer_as_child(request: RunRequest, pipe: int, *, notified: bool) -> NoReturn:
    """Call the function, write the response behind a `+` to the pipe, and end this process."""
    status = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if notified:
            os.kill(os.getpid(), signal.SIGTERM)
        response = _response(_call(request)).encode()
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(pipe, b"+" + response)  # a pipe holds as much
        status = 0
    except BaseException:  # noqa: BLE001  # what is no error of the function ends its process
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _call(request: RunRequest) -> str:
    """Call a function in this process; return the error, or ''."""
    try:
        _run_function(request)
    except SystemExit as error:
        if isinstance(error.code, int):
            return how_it_ended("the function", error.code & 0xFF) if error.code else ""
        return f"the function ended with exit status {error.code}" if error.code else ""
    except Exception as error:  # noqa: BLE001  # user code: any exception is reported
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"
    return ""


def _run_function(request: RunRequest) -> None:
    from headgate.workloads.task import TaskContext, resolve  # NumPy: not for commands

    if request.own_modules:
        sys.path.insert(0, str(Path.cwd()))  # this process runs no further function
    function = resolve(request.run)
    outputs = tuple(Path(output) for output in request.outputs)
    function(
        TaskContext(
            index=request.index,
            count=request.count,
            shards=tuple(Path(shard) for shard in request.shards),
            output=Path(request.output),
            outputs=outputs if len(outputs) > 1 else (),
            params=request.params,
            gpus=tuple(request.gpus),
            checkpoint=Path(request.checkpoint) if request.checkpoint else None,
        )
    )


def _run_command(request: RunRequest) -> str:
    shards, outputs = request.shards, request.outputs
    values = {
        "shard": shlex.quote(shards[0]) if shards else "''",
        "shards": " ".join(shlex.quote(shard) for shard in shards),
        "output": shlex.quote(request.output),
        "outputs": " ".join(shlex.quote(output) for output in outputs),
        "index": str(request.index),
    }
    stdin = Path(os.devnull)
    if (text := request.params.get("stdin")) is not None:
        stdin = Path(request.directory, "stdin")
        stdin.write_text(text, encoding="utf-8", newline="")
    script = Path(request.directory, "command.sh")
    script.write_text(_PLACEHOLDER.sub(lambda match: values[match[1]], request.run) + "\n")
    variables = {
        "HEADGATE_SHARD": shards[0] if shards else "",
        "HEADGATE_SHARDS": "\n".join(shards),
        "HEADGATE_OUTPUT": request.output,
        "HEADGATE_OUTPUTS": "\n".join(outputs),
        "HEADGATE_INDEX": values["index"],
    }
    if request.checkpoint:
        variables["HEADGATE_CHECKPOINT"] = request.checkpoint
    settings = {key: v for key, v in variables.items() if len(v.encode()) < _LONGEST_VARIABLE}
    with (
        _surviving_notice() as notices,
        stdin.open("rb") as given,
        subprocess.Popen(
            ["bash", str(script)], stdin=given, env={**os.environ, **settings}
        ) as process,
    ):
        if notices:  # it could not get that one yet
            process.terminate()
        status = process.wait()
    return how_it_ended("the command", status) if status else ""


@contextmanager
def _surviving_notice() -> Iterator[list[int]]:
    """Keep SIGTERM from ending this process; yield those that came, which are for its child."""
    notices: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: notices.append(number))
    try:
        yield notices
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    main()
