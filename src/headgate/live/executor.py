"""Executors: one Ray actor per job and node, which runs the tasks that its job master launches.

An executor is detached: neither the controller's death nor its master's ends it. It holds no Ray
resource, since which GPUs a run holds is the scheduler's decision and not Ray's; it stands on its
node by id. Tasks run in worker processes, never in its own, so that one can be killed and a crash
of native code ends one run only.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from headgate.base.errors import WorldError
from headgate.live.flight import fetch_best
from headgate.live.process import WorkerProcess
from headgate.live.records import LaunchRecord, OutcomeKind, OutcomeRecord
from headgate.live.shared import find_shared
from headgate.live.store import ShardStore
from headgate.model import Locality, Read, RunId, result_ids
from headgate.protocol import FailureKind, Usage

_TAIL_BYTES = 4096
_TAIL_LINES = 20
_T = TypeVar("_T")


def shards_directory(root: Path, node: str) -> Path:
    """Return where a node keeps its shards, below the directory that Headgate has on it."""
    return root / node / "shards"


def logs_directory(root: Path, node: str) -> Path:
    """Return where a node keeps the logs of runs, in a directory per job (see `quote`)."""
    return root / node / "logs"


def scratch_directory(root: Path, node: str) -> Path:
    """Return where runs on a node have their scratch directories, in a directory per job."""
    return root / node / "runs"


def log_path(root: Path, node: str, run: RunId) -> Path:
    """Return the log file of a run on its node."""
    directory = logs_directory(root, node) / quote(run.job, safe="")
    return directory / f"{run.ordinal}.{run.attempt}.log"


@dataclass(slots=True, kw_only=True)
class _Run:
    """What is known of one run while it goes on; `end` is its outcome to come."""

    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    usage: Usage = field(default_factory=Usage)
    end: asyncio.Task[OutcomeRecord]


class _RunError(Exception):
    """A run cannot go on; the message is for the user."""

    def __init__(self, message: str, failure: FailureKind) -> None:
        super().__init__(message)
        self.failure = failure


class Executor:
    """Runs tasks of one job on one node; its job master makes it a Ray actor."""

    def __init__(self, *, job: str, node: str, root: str, linger_s: float = 1.0) -> None:
        """Open the node's store; idle workers end after `linger_s`, as they may hold GPU memory."""
        self._root, self._node, self._linger_s = Path(root), node, linger_s
        self._scratch = scratch_directory(self._root, node) / quote(job, safe="")
        self._store = ShardStore(shards_directory(self._root, node))
        self._threads = ThreadPoolExecutor(32, thread_name_prefix="read")
        self._runs: dict[RunId, _Run] = {}
        self._idle: list[WorkerProcess] = []
        self._retiring: dict[WorkerProcess, asyncio.Task[None]] = {}  # until they have ended

    async def begin(self, launches: Sequence[LaunchRecord]) -> None:
        """Start these runs, except those that are known already."""
        for launch in launches:
            if launch.run not in self._runs:
                self._runs[launch.run] = _Run(end=asyncio.create_task(self._carry_out(launch)))

    async def outcome(self, run: RunId) -> OutcomeRecord:
        """Wait for the end of a run that was begun, and say how it ended; may be asked again."""
        return await asyncio.shield(self._runs[run].end)

    async def forget(self, runs: Sequence[RunId]) -> None:
        """Drop what is kept of ended runs whose end was acknowledged; see `JobMaster.poll`."""
        for run in runs:
            if run in self._runs and self._runs[run].end.done():
                del self._runs[run]

    async def stop(self, runs: Sequence[RunId]) -> None:
        """End these runs with all their processes; one not begun yet will never run."""
        for run in runs:
            if run not in self._runs:
                self._runs[run] = _Run(end=asyncio.create_task(_stopped_early(run)))
            self._runs[run].stopping.set()

    async def close(self) -> None:
        """End every run and every worker."""
        await self.stop(tuple(self._runs))
        ends = [run.end for run in self._runs.values()]
        await asyncio.gather(*ends, return_exceptions=True)  # whatever they say, the rest ends too
        for worker in tuple(self._idle):
            self._retire(worker)
        await asyncio.gather(*self._retiring.values(), return_exceptions=True)
        shutil.rmtree(self._scratch, ignore_errors=True)

    async def _carry_out(self, launch: LaunchRecord) -> OutcomeRecord:
        """Carry a run through to its outcome, whatever happens on the way."""
        run = self._runs[launch.run]
        directory = self._scratch / f"{launch.run.ordinal}.{launch.run.attempt}"
        work = asyncio.create_task(self._read_and_run(launch, run, directory))
        stop = asyncio.create_task(run.stopping.wait())
        await asyncio.wait((work, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not work.done():
            work.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await work
            outcome = OutcomeRecord(run=launch.run, kind=OutcomeKind.STOPPED, usage=run.usage)
        elif (error := work.exception()) is None:
            outcome = OutcomeRecord(
                run=launch.run,
                kind=OutcomeKind.FINISHED,
                output_bytes=sum(work.result()),
                part_bytes=work.result() if launch.program.parts > 1 else (),
                usage=run.usage,
            )
        else:
            known = isinstance(error, _RunError | WorldError)
            outcome = OutcomeRecord(
                run=launch.run,
                kind=OutcomeKind.FAILED,
                failure=error.failure if isinstance(error, _RunError) else FailureKind.ERROR,
                message=str(error) if known else f"{type(error).__name__}: {error}",
                usage=run.usage,
            )
        done_with = [directory]
        if outcome.kind is OutcomeKind.FINISHED and (checkpoint := _checkpoint(launch)):
            done_with.append(checkpoint)
        await self._in_thread(lambda: _remove(done_with))
        return outcome

    async def _read_and_run(
        self, launch: LaunchRecord, run: _Run, directory: Path
    ) -> tuple[int, ...]:
        """Read the shards, run the program, keep its result; return the sizes of its parts."""
        log = log_path(self._root, self._node, launch.run)
        await self._in_thread(lambda: _make_directories(directory, log.parent))
        checkpoint = _checkpoint(launch)
        if checkpoint is not None:
            first = launch.run.attempt == 1
            await self._in_thread(lambda: _make_checkpoint(checkpoint, first=first))
        shards = await self._read_shards(launch, run, directory)
        program = launch.program
        output = directory / "output"
        outputs = [output]
        if program.parts > 1:
            outputs = [directory / f"output-{part}" for part in range(program.parts)]
        request = {
            "kind": program.kind,
            "run": program.run,
            "index": program.index,
            "count": program.count,
            "params": dict(program.params),
            "gpus": launch.gpus,
            "shards": [str(shard) for shard in shards],
            "output": str(output),
            "outputs": [str(part) for part in outputs],
            "directory": str(directory),
            "log": str(log),
            "checkpoint": str(checkpoint or ""),
        }
        await self._run_in_worker(launch, request, log)
        if output not in outputs and output.exists():
            problem = f"it wrote one result, and {program.parts} parts are read: write 'outputs'"
            raise _RunError(problem, FailureKind.ERROR)
        results = result_ids(launch.run.job, launch.run.ordinal, program.parts)
        return await self._in_thread(lambda: self._keep_result(results, outputs))

    def _keep_result(self, results: Sequence[str], outputs: Sequence[Path]) -> tuple[int, ...]:
        """Move a result into the store, replacing one of an earlier run; return its sizes."""
        for output in outputs:
            if not output.exists():
                output.touch()  # a task without a result has an empty one, so that it can be read
            if not output.is_file():
                raise _RunError("its output is not a file", FailureKind.ERROR)
        kept = zip(results, outputs, strict=True)
        return tuple(self._store.adopt(result, output).size_bytes for result, output in kept)

    async def _read_shards(self, launch: LaunchRecord, run: _Run, directory: Path) -> list[Path]:
        """Read the shards one after the other, counting bytes and time."""
        paths = []
        for number, read in enumerate(launch.reads):
            started = time.monotonic()
            to = directory / f"shard-{number}"
            read_bytes = list(run.usage.read_bytes)
            try:
                path, locality, size_bytes = await self._in_thread(
                    partial(self._fetch, launch, read, to)
                )
                read_bytes[locality] += size_bytes
                paths.append(path)
            finally:  # also when it is stopped meanwhile
                run.usage = Usage(
                    read_bytes=(read_bytes[0], read_bytes[1], read_bytes[2]),
                    read_s=run.usage.read_s + time.monotonic() - started,
                )
        return paths

    def _fetch(self, launch: LaunchRecord, read: Read, to: Path) -> tuple[Path, int, int]:
        try:
            return fetch_best(read, launch.addresses, self._store, to)
        except WorldError as error:
            shared = launch.program.results_path
            if shared and (path := find_shared(shared, read.shard)) is not None:
                return path, Locality.CLUSTER, read.shard.size_bytes
            # replicas that vanished are not the program's doing; a plain file's absence may be
            lost = read.sources and error.code == "shard_unreadable"
            failure = FailureKind.LOST if lost else FailureKind.ERROR
            raise _RunError(str(error), failure) from error

    async def _run_in_worker(
        self, launch: LaunchRecord, request: dict[str, object], log: Path
    ) -> None:
        worker = await self._worker_for(launch, log)
        try:
            error = await worker.run(request)
        except asyncio.CancelledError:
            await worker.end()
            raise
        if error:
            await worker.end()  # whatever the failure left behind goes with it
            raise _RunError(f"{error}\n{_tail(log)}".strip(), FailureKind.ERROR)
        self._idle.append(worker)
        asyncio.get_running_loop().call_later(self._linger_s, self._end_idle, worker, worker.runs)

    async def _worker_for(self, launch: LaunchRecord, log: Path) -> WorkerProcess:
        """Return an idle worker with these GPUs and settings, or a new one.

        Idle workers that hold any of these GPUs under other settings have ended by then.
        """
        gpus, envs = launch.gpus, dict(launch.program.envs)
        for worker in self._idle:
            if worker.gpus == gpus and worker.envs == envs and worker.alive:
                self._idle.remove(worker)
                return worker
        for worker in [w for w in self._idle if set(w.gpus) & set(gpus) or not w.alive]:
            self._retire(worker)
        in_the_way = [end for w, end in self._retiring.items() if set(w.gpus) & set(gpus)]
        if in_the_way:  # `wait` leaves them alone when this run is stopped meanwhile
            await asyncio.wait(in_the_way)
        return await WorkerProcess.start(gpus, envs, log)

    def _end_idle(self, worker: WorkerProcess, runs: int) -> None:
        if worker in self._idle and worker.runs == runs:
            self._retire(worker)

    def _retire(self, worker: WorkerProcess) -> None:
        """End an idle worker; off the list, no run takes it and no call ends it again."""
        self._idle.remove(worker)
        end = self._retiring[worker] = asyncio.create_task(worker.end())
        end.add_done_callback(lambda _: self._retiring.pop(worker))

    async def _in_thread(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


async def _stopped_early(run: RunId) -> OutcomeRecord:
    return OutcomeRecord(run=run, kind=OutcomeKind.STOPPED)


def _make_directories(scratch: Path, logs: Path) -> None:
    shutil.rmtree(scratch, ignore_errors=True)  # of an executor that died
    scratch.mkdir(parents=True)
    logs.mkdir(parents=True, exist_ok=True)


def _remove(directories: Sequence[Path]) -> None:
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)


def _checkpoint(launch: LaunchRecord) -> Path | None:
    """Return the directory where a task's runs save what they have done, if they do."""
    if not launch.program.checkpoint:
        return None
    return Path(launch.program.checkpoint, f"{quote(launch.run.job, safe='')}.{launch.run.ordinal}")


def _make_checkpoint(place: Path, *, first: bool) -> None:
    """See to it that there is a place for a task's checkpoint, an empty one for its first run."""
    try:
        if first:
            with suppress(FileNotFoundError):
                shutil.rmtree(place)  # of another job that had this name
        place.mkdir(exist_ok=True)  # without parents: made here, they would be on this node alone
    except OSError as error:
        problem = f"there is no place for its checkpoint: {error}"
        raise _RunError(problem, FailureKind.ERROR) from error


def _tail(log: Path) -> str:
    """Return the last lines of a log."""
    with suppress(FileNotFoundError), log.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:])
    return ""
