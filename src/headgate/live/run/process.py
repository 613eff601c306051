"""A worker process as its executor uses it: started under a guard, given tasks, ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import asdict
from typing import Any

import psutil

from headgate.live.base import account as accounts
from headgate.live.base.account import Account
from headgate.live.base.control_groups import ControlGroup
from headgate.live.base.exit_status import ProcessEnd, how_it_ended, status_of
from headgate.live.cluster.ray_nodes import NODE_MARK
from headgate.live.run import guard
from headgate.live.run.ray_program import GIVEN_OUT
from headgate.live.run.ray_run import remove_remains
from headgate.live.run.run_limits import RunLimits, account_processes
from headgate.live.run.run_meter import Peaks, measured
from headgate.live.run.worker import NOT_SHARED, RunRequest
from headgate.model import FailureKind, ProgramType

_LONGEST_RESPONSE = 1 << 16
_END_S = 10.0
_LOOK_S = 0.2  # between two looks at what a notified worker has left
_SOON_S = 0.02


class WorkerProcess:
    """A process of a user that runs one task at a time, with these variables and GPUs."""

    def __init__(
        self,
        process: Process,
        requests: socket.socket,
        responses: asyncio.StreamReader,
        source: asyncio.ReadTransport,
        gpus: tuple[int, ...],
        envs: dict[str, str],
        python: str,
        directory: str,
        limits: RunLimits,
        group: ControlGroup | None,
    ) -> None:
        """See `start`."""
        self._process, self._requests, self._responses = process, requests, responses
        self._source = source  # of the responses
        self.gpus, self.envs, self.python = gpus, envs, python
        self._directory = directory
        self._limits, self._group = limits, group
        self._killed = 0  # processes of earlier runs, as memory was short
        self._starts_process = False  # for its task, beside those that a function starts
        self.runs = 0

    @classmethod
    async def start(
        cls,
        account: Account,
        gpus: tuple[int, ...],
        envs: dict[str, str],
        log: int,
        *,
        limits: RunLimits,
        python: str = "",
        directory: str = "",
    ) -> WorkerProcess:
        """Start a worker under a guard; its output before its first task goes to `log`.

        It has a control group of its own, with these limits, where Headgate can make one. It runs
        in the interpreter `python`, by default Headgate's. With `directory` it runs a Ray program,
        whose Ray node has its files there: a new directory of its user, which is removed at the
        end.
        """
        group = limits.group()
        request = {
            "command": [python or accounts.INTERPRETER, "-P", "-m", "headgate.live.run.worker"],
            "options": account.options(_marked(envs)),
            "directory": directory,
            "control_group": None if group is None else group.places,
            "most_processes": account_processes(),
        }
        try:
            guarded = await _start_guard(request, log)
        except BaseException:
            if group is not None:
                group.end()
            raise
        return cls(*guarded, gpus, envs, python, directory, limits, group)

    @property
    def alive(self) -> bool:
        """Whether the process has not ended yet."""
        return self._process.returncode is None

    def measured(
        self, report: Callable[[Peaks], None], note: Callable[[Peaks], None]
    ) -> AbstractAsyncContextManager[None]:
        """Measure in a block what its processes use, report it at the end, and note it meanwhile.

        Nothing is reported of a Ray program, whose processes belong to several runs.
        """
        if self._directory:
            return nullcontext()
        return measured(self._process.pid, on_gpus=bool(self.gpus), report=report, note=note)

    async def run(self, task: RunRequest, log: int) -> str:
        """Run one task, whose output goes to the descriptor `log`; return the error, or ''.

        `status_of` the error is that of its program.
        """
        self.runs += 1
        self._starts_process = task.program_type != ProgramType.FUNCTION or task.own_modules
        self._killed, _ = self._memory()
        with suppress(ConnectionError):  # it died: its exit status is read below
            socket.send_fds(self._requests, [b"\0"], [log])
            text = json.dumps(asdict(task)).encode() + b"\n"
            await asyncio.to_thread(self._requests.sendall, text)
        line = await self._responses.readline()
        if not line:
            return how_it_ended("the task's guard", await self._process.wait())
        response = json.loads(line)
        shortage = self.shortage(response.get("memory"))
        if "error" in response:
            # the guard, which could not start the program, has no status of it
            error = ProcessEnd.of(response["error"], response.get("exit"))
        else:
            error = how_it_ended("the task's process", int(response["status"]))
        if shortage and not error:
            os.write(log, f"headgate: a process was killed: {shortage}\n".encode())
        if shortage and error:
            return ProcessEnd.of(f"{shortage}: {error}", status_of(error))
        return error

    def shortage(self, memory: Sequence[int] | None = None) -> str:
        """Return how much memory the run used if a process of it was killed for that, or ''.

        `memory` is that of its control group if that was removed meanwhile.
        """
        killed, used_bytes = memory or self._memory()
        return self._limits.out_of_memory(used_bytes) if killed > self._killed else ""

    def _memory(self) -> tuple[int, int]:
        return (0, 0) if self._group is None else self._group.memory()

    async def notify(self, *, worker_alone: bool = False) -> None:
        """Send SIGTERM to the task's processes, or the worker: notice that they will be killed.

        A worker that runs a command survives it; one that runs a function passes it on to that. The
        Ray cluster of a Ray program, which its program still needs, gets none: it has left the
        session of the worker.
        """
        processes = await asyncio.to_thread(self._notified)
        while not processes and self.alive:  # its guard is about to start it
            await asyncio.sleep(_SOON_S)
            processes = await asyncio.to_thread(self._notified)
        _terminate(processes[:1])
        if worker_alone:
            return
        if len(processes) == 1 and self._starts_process:
            # One that the worker starts after its own notice gets it from the worker, one that it
            # has started before is found now.
            processes = await asyncio.to_thread(self._notified)
        _terminate(processes[1:])

    async def emptied(self) -> None:
        """Wait until no process that notice is for runs beside the worker, or it has ended too."""
        while len(await asyncio.to_thread(self._notified)) > 1:  # noqa: ASYNC110  # no event
            await asyncio.sleep(_LOOK_S)

    async def has_left_processes(self) -> bool:
        """Return whether anything that its tasks have started still runs."""
        return len(await asyncio.to_thread(self._descendants)) > 1

    def _notified(self) -> list[psutil.Process]:
        """Return the processes that a notice is for."""
        processes = self._descendants()
        if not self._directory or not processes:
            return processes
        return [process for process in processes if _session(process) == processes[0].pid]

    def _descendants(self) -> list[psutil.Process]:
        """Return the worker, then all its descendants that have not ended; O(processes)."""
        found: list[psutil.Process] = []
        with suppress(psutil.Error):
            for process in psutil.Process(self._process.pid).children(recursive=True):
                with suppress(psutil.Error):
                    if process.status() != psutil.STATUS_ZOMBIE:
                        found.append(process)
        return sorted(found, key=psutil.Process.create_time)

    async def end(self) -> None:
        """End the process and all its descendants, even those that left its session."""
        with suppress(OSError):  # it is closed already
            self._requests.shutdown(socket.SHUT_RDWR)  # also ends a request that is being sent
        self._requests.close()
        self._source.close()  # it does not close itself before all responses are read
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _END_S)
        except TimeoutError:  # a descendant cannot be killed, such as one that waits for a disk
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
        if self._group is not None:  # where something killed the guard
            await asyncio.to_thread(self._group.end)
        if self._directory and self._process.returncode != 0:
            await asyncio.to_thread(remove_remains, self._directory)


def failure_of(error: str) -> FailureKind:
    """Return how the error of a worker counts; what its node lacks is no fault of the program."""
    if error == GIVEN_OUT:
        return FailureKind.LOST
    return FailureKind.CRASHED if error.startswith(NOT_SHARED) else FailureKind.ERROR


async def _start_guard(
    request: Mapping[str, Any], log: int
) -> tuple[Process, socket.socket, asyncio.StreamReader, asyncio.ReadTransport]:
    """Start a guard with this request, to which what connects us with its worker is added.

    Return it, and the socket of requests and the stream of responses.
    """
    ours, theirs = socket.socketpair()
    read_end, write_end = os.pipe()
    passed = (theirs.fileno(), write_end)
    command = [*request["command"], *map(str, passed)]
    whole = {**request, "command": command, "pass_fds": passed, "responses": write_end}
    responses = asyncio.StreamReader(limit=_LONGEST_RESPONSE)
    try:  # the process last: it is not left behind when this is cancelled
        source, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(responses), os.fdopen(read_end, "rb")
        )
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", guard.__file__),
                stdin=PIPE,
                stdout=log,
                stderr=log,
                pass_fds=passed,
                start_new_session=True,
                env={},
            )
        except BaseException:
            source.close()
            raise
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
        os.close(write_end)
    assert process.stdin is not None
    process.stdin.write(json.dumps(whole).encode() + b"\n")
    return process, ours, responses, source


def _terminate(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.Error):  # it has ended
            process.terminate()


def _session(process: psutil.Process) -> int:
    try:
        return os.getsid(process.pid)
    except OSError:  # it has ended
        return 0


def _marked(envs: dict[str, str]) -> dict[str, str]:
    """Return these variables and the mark of this virtual node, if it is one."""
    mark = os.environ.get(NODE_MARK)
    return envs if mark is None else {**envs, NODE_MARK: mark}
