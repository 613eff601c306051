"""Job files are parsed in separate processes: no file can block the controller or fill its memory.

`python -m headgate.live.controller.reader FD` is such a process. It responds to each text on the
connection with a `JobFile` or the SpecError, and ends with the process at the other end.
"""

from __future__ import annotations

import math
import os
import resource
import subprocess
import sys
import time
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

from headgate.base.errors import SpecError, WorldError
from headgate.live.base.user_slots import UserSlots
from headgate.spec import JobFile, load_job

_SMALL_CHARACTERS = 64 << 10
_LIMIT_CPU_S = 10
_LIMIT_BYTES = 1 << 30
_TURN_S = 30.0
_RESPONSE_S = 30.0  # elapsed time, for a machine under load


class JobReader:
    """Reads job files for any thread; one small and one large file are read at a time.

    So the small ones, which take milliseconds, never wait for a large one; users take turns. The
    memory of a large file is freed with its process, which reads no other.
    """

    def __init__(self, *, limit_cpu_s: int = _LIMIT_CPU_S, limit_bytes: int = _LIMIT_BYTES) -> None:
        """Limit each file to `limit_cpu_s` seconds of CPU time and `limit_bytes` of memory."""
        self._limit_cpu_s, self._limit_bytes = limit_cpu_s, limit_bytes
        self._small = UserSlots("small job files", 1, each=1)
        self._large = UserSlots("large job files", 1, each=1)
        self._kept: _Process | None = self._process()  # started ahead of the first file

    def read(self, text: str, *, user: str) -> JobFile:
        """Return the job file of a text that this user has sent.

        SpecError with every problem, or `too_large` for one that exceeds a limit; WorldError
        `unreachable` when it would wait for other files for more than 30 s.
        """
        small = len(text) <= _SMALL_CHARACTERS
        turns = self._small if small else self._large
        try:
            with turns.slot_in_thread(user, timeout_s=_TURN_S):
                found = self._read_small(text) if small else self._read_large(text)
        except TimeoutError:
            text = "too many job files are being read; nothing was changed"
            raise WorldError(text, code="unreachable") from None
        if isinstance(found, SpecError):
            raise found
        return found

    def close(self) -> None:
        """End the processes."""
        with self._small.slot_in_thread("", timeout_s=None):
            if self._kept is not None:
                self._kept.end()
                self._kept = None

    def _read_small(self, text: str) -> JobFile | SpecError:
        if self._kept is None or not self._kept.alive:
            self._kept = self._process()
        return self._kept.read(text) or self._too_much()

    def _read_large(self, text: str) -> JobFile | SpecError:
        process = self._process()
        try:
            return process.read(text) or self._too_much()
        finally:
            process.end()

    def _process(self) -> _Process:
        return _Process(str(self._limit_cpu_s), str(self._limit_bytes))

    def _too_much(self) -> SpecError:
        limits = f"{self._limit_cpu_s} s or {self._limit_bytes >> 20} MiB of memory"
        return SpecError(f"the job file takes more than {limits} to read", code="too_large")


class _Process:
    """A reading process and the connection to it, used by one thread at a time."""

    def __init__(self, *limits: str) -> None:
        self._connection, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(theirs.fileno()), *limits],
                stdin=subprocess.DEVNULL,
                # with them, pydantic's core hangs when it runs out of memory
                env={**os.environ, "RUST_BACKTRACE": "0"},
                pass_fds=(theirs.fileno(),),
            )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def read(self, text: str) -> JobFile | SpecError | None:
        """Return the result of a text; None if it exceeded a limit: the process has ended then."""
        with suppress(EOFError, OSError):  # it has died
            self._connection.send(text)
            if self._connection.poll(_RESPONSE_S):
                found: JobFile | SpecError = self._connection.recv()
                return found
        self.end()
        return None

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._connection.close()


def _serve(connection: Connection, limit_cpu_s: int, limit_bytes: int) -> None:
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + limit_bytes, held + limit_bytes))
    while True:
        try:
            text = connection.recv()
        except EOFError:
            return
        until_s = math.ceil(time.process_time()) + limit_cpu_s  # the kernel ends this process then
        resource.setrlimit(resource.RLIMIT_CPU, (until_s, resource.RLIM_INFINITY))
        response: JobFile | SpecError
        try:
            response = load_job(text)
        except SpecError as error:
            response = error.with_traceback(None)
        except MemoryError:
            os._exit(1)  # the other end reports the limit
        connection.send(response)


if __name__ == "__main__":
    with Connection(int(sys.argv[1])) as connection:
        _serve(connection, int(sys.argv[2]), int(sys.argv[3]))
