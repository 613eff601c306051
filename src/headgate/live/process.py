"""The other end of a worker process: started, fed and ended by an executor."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

_LONGEST_ANSWER = 1 << 20


class WorkerProcess:
    """A process that leads a group and runs one task at a time on the GPUs that it sees."""

    def __init__(
        self,
        process: Process,
        answers: asyncio.StreamReader,
        gpus: tuple[int, ...],
        envs: dict[str, str],
    ) -> None:
        """See `start`."""
        self._process, self._answers = process, answers
        self.gpus, self.envs = gpus, envs
        self.runs = 0

    @classmethod
    async def start(cls, gpus: tuple[int, ...], envs: dict[str, str], log: Path) -> WorkerProcess:
        """Start a worker; what it says before its first task goes to `log`."""
        read_end, write_end = os.pipe()
        try:
            with log.open("ab") as file:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "headgate.live.worker", str(write_end)),
                    stdin=PIPE,
                    stdout=file,
                    stderr=file,
                    pass_fds=(write_end,),
                    start_new_session=True,
                    env=_environment(gpus, envs),
                )
        finally:
            os.close(write_end)
        answers = asyncio.StreamReader(limit=_LONGEST_ANSWER)
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(answers), os.fdopen(read_end, "rb")
        )
        return cls(process, answers, gpus, envs)

    @property
    def alive(self) -> bool:
        """Whether the process has not ended yet."""
        return self._process.returncode is None

    async def run(self, request: Mapping[str, Any]) -> str:
        """Run one task; return what went wrong, or nothing."""
        self.runs += 1
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        with suppress(ConnectionError):  # it died: its end is told below
            await self._process.stdin.drain()
        answer = asyncio.create_task(self._answers.readline())
        end = asyncio.create_task(self._process.wait())
        try:
            await asyncio.wait((answer, end), return_when=asyncio.FIRST_COMPLETED)
            if answer.done() and answer.result():
                return str(json.loads(answer.result())["error"])
            status = await end
        finally:
            answer.cancel()
            end.cancel()
        if status < 0:
            return f"the task's process was ended by {signal.Signals(-status).name}"
        return f"the task's process ended with exit status {status}"

    async def end(self) -> None:
        """Kill the whole group: its guard keeps the group's number ours even when it died."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()


def _environment(gpus: tuple[int, ...], envs: Mapping[str, str]) -> dict[str, str]:
    """Return a task's environment: ours without what Ray set for itself."""
    inherited = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("RAY_") and key != "OMP_NUM_THREADS"
    }
    return {**inherited, **envs, "CUDA_VISIBLE_DEVICES": ",".join(str(gpu) for gpu in gpus)}
