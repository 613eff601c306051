"""Executors: one Ray actor per account and node, which runs the tasks that its master launches.

It serves all jobs of the account, so that the only process that a job has to start is that of its
program. An executor is detached: neither the controller's death nor its master's ends it. It holds
no Ray resource, since the scheduler and not Ray decides which GPUs a run holds; it is placed on its
node by the node's id. Tasks run in worker processes, never in its own, so that one can be killed
and a crash of native code ends one run only.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from headgate.base.errors import WorldError
from headgate.base.units import format_seconds
from headgate.live.actors.executor_run import ExecutorRun
from headgate.live.base.account import Account, account_for
from headgate.live.base.exit_status import status_of
from headgate.live.base.log_limit import kept_within, open_log, tail_of
from headgate.live.base.permissions import PRIVATE_UMASK, make_private, make_traversable
from headgate.live.base.records import LaunchRecord, OutcomeKind, OutcomeRecord, Rendezvous
from headgate.live.node.flight import fetch_best
from headgate.live.node.result_files import opened_result
from headgate.live.node.run_files import RunFiles, forget_earlier, written_by
from headgate.live.node.run_logs import log_path
from headgate.live.node.scratch import make_scratch, remove_scratch
from headgate.live.node.shared import copy_shared
from headgate.live.node.store import ShardStore
from headgate.live.run.checkpoints import checkpoint_of, remove_checkpoint
from headgate.live.run.environment import environment_of
from headgate.live.run.hub import GangPlace
from headgate.live.run.over_notes import note_use, notes_directory
from headgate.live.run.process import WorkerProcess, failure_of
from headgate.live.run.ray_run import ray_place
from headgate.live.run.rendezvous import RendezvousMaker
from headgate.live.run.run_env import RunEnv, RunEnvs
from headgate.live.run.run_limits import limits_of
from headgate.live.run.worker import WORK, RunRequest
from headgate.model import (
    FILE_PREFIX,
    FailureKind,
    Launch,
    Locality,
    ProgramType,
    Read,
    RunId,
    Usage,
    result_ids,
)

_OUTPUT = "output"
_T = TypeVar("_T")


def shards_directory(root: Path, node: str) -> Path:
    """Return the directory of a node's shards; `root` is Headgate's directory on the node."""
    return root / node / "shards"


def token_path(root: Path, node: str) -> Path:
    """Return the file with the token that the shard services of the cluster require."""
    return root / node / "shard-token"


def scratch_directory(root: Path, node: str) -> Path:
    """Return the directory of scratch directories of runs, with one subdirectory per job."""
    return root / node / "runs"


class _RunError(Exception):
    """A run has failed; the message is for the user."""

    def __init__(self, message: str, failure: FailureKind) -> None:
        super().__init__(message)
        self.failure = failure


class TaskExecutor:
    """Runs tasks of one account on one node; its master makes it a Ray actor."""

    def __init__(self, *, node: str, root: str, linger_s: float = 1.0) -> None:
        """Open the node's store.

        Idle workers end after `linger_s`, as they may hold GPU memory.
        """
        self._root, self._node, self._linger_s = Path(root), node, linger_s
        self._notes = notes_directory(self._root, node)
        os.umask(PRIVATE_UMASK)  # no other user looks into what Headgate writes on a node
        make_traversable(self._root, node, scratch_directory(self._root, node).name)
        self._store = ShardStore(shards_directory(self._root, node))
        self._threads = ThreadPoolExecutor(32, thread_name_prefix="read")
        self._runs: dict[RunId, ExecutorRun] = {}
        self._idle: list[WorkerProcess] = []
        self._ending: dict[WorkerProcess, asyncio.Task[None]] = {}  # until they have ended
        self._rendezvous = RendezvousMaker()
        token = token_path(self._root, self._node)
        self._run_envs = RunEnvs(self._root, node, token.read_text)

    async def begin(self, launches: Sequence[LaunchRecord]) -> None:
        """Start these runs, except those that were started or stopped already."""
        for launch in launches:
            if launch.run not in self._runs:
                self._runs[launch.run] = ExecutorRun(
                    end=asyncio.create_task(self._carry_out(launch))
                )

    async def rendezvous(self, job: str, attempt: int) -> Rendezvous:
        """Return where the members of a gang meet whose first one runs here; repeatable.

        WorldError `no_port` when no port is free.
        """
        return self._rendezvous.of(job, attempt)

    async def outcome(self, run: RunId) -> OutcomeRecord:
        """Wait for the end of a started run and return its outcome; repeatable."""
        return await asyncio.shield(self._runs[run].end)

    async def forget(self, runs: Sequence[RunId]) -> None:
        """Drop ended runs whose end was acknowledged; see `JobMaster.poll`."""
        for run in runs:
            if run in self._runs and self._runs[run].end.done():
                if self._runs.pop(run).usage.kept is not None:
                    place = written_by(self._root, self._node, run)
                    await self._in_thread(partial(forget_earlier, place))
                if run.ordinal == 0:
                    self._rendezvous.release(run.job, run.attempt)

    async def known(self) -> tuple[str, tuple[RunId, ...]]:
        """Return this node and the runs whose end has not been acknowledged."""
        return self._node, tuple(self._runs)

    async def stop(
        self, runs: Sequence[RunId], now: bool = False, most_s: float = math.inf
    ) -> None:
        """End these runs with all their processes; one not started yet will never run.

        After notice and the job's grace period, of at most `most_s` seconds, or `now`, also where
        they have notice already.
        """
        for run in runs:
            if run not in self._runs:
                self._runs[run] = ExecutorRun(end=asyncio.create_task(_stopped_early(run)))
            self._runs[run].grace_s = min(most_s, self._runs[run].grace_s)
            self._runs[run].stopping.set()
            if now:
                self._runs[run].killing.set()

    async def expire(self, runs: Sequence[RunId]) -> None:
        """Give these runs, of a gang of which a member has reached its time limit, their notice."""
        for run in runs:
            if run in self._runs:
                self._runs[run].expired.set()

    async def over_limit(self, runs: Sequence[RunId]) -> bool:
        """Return whether one of these runs has reached its time limit."""
        return any(self._runs[run].timed_out for run in runs if run in self._runs)

    async def close(self) -> None:
        """End every run and every worker."""
        await self.stop(tuple(self._runs), now=True)
        ends = [run.end for run in self._runs.values()]
        await asyncio.gather(*ends, return_exceptions=True)  # after any failure the rest ends too
        for worker in tuple(self._idle):
            self._end_worker(worker)
        await asyncio.gather(*self._ending.values(), return_exceptions=True)
        self._rendezvous.close()

    async def _carry_out(self, launch: LaunchRecord) -> OutcomeRecord:
        """Execute a run and return its outcome; never raises for a failure of the run."""
        run = self._runs[launch.run]
        of_job = scratch_directory(self._root, self._node) / quote(launch.run.job, safe="")
        directory = of_job / f"{launch.run.ordinal}.{launch.run.attempt}"
        work = asyncio.create_task(self._read_and_run(launch, run, directory))
        await self._wait(launch, run, work)
        ended = work.done()
        if not ended:
            if run.worker is not None:
                run.has_exited(-signal.SIGKILL)
            work.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await work
        if run.keeping is not None:
            await run.keeping
        outcome = _outcome(launch, run, work if ended else None)
        if outcome.failure is FailureKind.TIMED_OUT:
            tail = tail_of(log_path(self._root, self._node, launch.run))
            outcome = replace(outcome, message=f"{outcome.message}\n{tail}".strip())
        kept = run.usage.kept
        if kept is None or kept.directory != str(directory / WORK):  # else it could not be moved
            await self._in_thread(lambda: remove_scratch(directory))
        if outcome.kind is OutcomeKind.FINISHED and (checkpoint := checkpoint_of(launch)):
            await self._in_thread(lambda: remove_checkpoint(launch.program.user, checkpoint))
        return outcome

    async def _wait(self, launch: LaunchRecord, run: ExecutorRun, work: asyncio.Task[Any]) -> None:
        """Wait until a run has ended, or must be killed: to be stopped, or at its time limit."""
        requests = (run.stopping, run.killing, run.expired)
        stop, kill, expired = (asyncio.create_task(request.wait()) for request in requests)
        first = partial(asyncio.wait, return_when=asyncio.FIRST_COMPLETED)
        limit_s = None if _stands_by(launch) else launch.time_limit_s
        await first((work, stop, kill, expired), timeout=limit_s)
        if not work.done() and not run.stopping.is_set():  # its time limit
            if run.computed:  # in time: only its result is still to be stored
                await first((work, stop))
            else:
                run.timed_out = True
        if not work.done() and not run.killing.is_set():
            await self._notify(launch, run, partial(first, (work, kill)))
        for task in (stop, kill, expired):
            task.cancel()

    async def _notify(
        self, launch: LaunchRecord, run: ExecutorRun, wait: Callable[..., Awaitable[Any]]
    ) -> None:
        """Give a run with a program notice, and its grace period until its end, as `wait` says.

        What the first member's program has started in a run that stands by gets no notice here:
        that program ends it.
        """
        grace_s = min(launch.grace_s, run.grace_s)
        if run.computed:  # only its result is still to be stored
            await wait(timeout=grace_s)
        elif run.worker is None:
            run.notice = "its program had not started"
        elif not grace_s:
            run.notice = "it was killed without notice"
        else:
            run.notice = "it ended after the notice"
            shortage = run.worker.shortage()
            await run.worker.notify(worker_alone=_stands_by(launch))
            done, _ = await wait(timeout=grace_s)
            if not done:
                run.notice = f"it was killed {format_seconds(grace_s)} after the notice"
            elif run.killing.is_set():
                run.notice = "it was killed in its grace period"
            if shortage:  # its other processes may have waited for the one that was killed
                run.notice += f"; {shortage}"

    async def _read_and_run(
        self, launch: LaunchRecord, run: ExecutorRun, directory: Path
    ) -> tuple[int, ...]:
        """Read the shards, run the program, store its result; return the bytes of its parts."""
        account = await self._in_thread(lambda: self._account(launch.program.user))
        log = log_path(self._root, self._node, launch.run)
        await self._in_thread(lambda: make_scratch(directory))
        await self._in_thread(lambda: make_private(log.parent))
        shards = await self._read_shards(launch, run, account, directory)
        await self._in_thread(lambda: os.chown(directory, account.uid, account.gid))
        async with self._run_env(launch, run, account, log) as run_env:
            try:
                outputs = await self._run_program(launch, run, account, directory, shards, run_env)
            finally:  # however it ends
                keeping = self._keep_files(launch, run, account, directory / WORK, run_env)
                run.keeping = asyncio.create_task(keeping)
                await asyncio.shield(run.keeping)
        results = result_ids(launch.run.job, launch.run.ordinal, launch.program.parts)
        return await self._in_thread(lambda: self._keep_result(results, outputs, account.uid))

    @asynccontextmanager
    async def _run_env(
        self, launch: LaunchRecord, run: ExecutorRun, account: Account, log: Path
    ) -> AsyncIterator[RunEnv]:
        """Yield what the node has prepared for a run; building it counts as reading."""
        opened, started = open_log(log, account), time.monotonic()
        try:
            async with AsyncExitStack() as stack:
                try:
                    tail = partial(tail_of, log)
                    what = self._run_envs.run_env(launch, account, opened, tail)
                    found = await stack.enter_async_context(what)
                except WorldError as error:
                    lost = error.code == "unreachable"
                    failure = FailureKind.LOST if lost else FailureKind.ERROR
                    raise _RunError(str(error), failure) from error
                finally:
                    read_s = run.usage.read_s + time.monotonic() - started
                    run.usage = replace(run.usage, read_s=read_s)
                yield found
        finally:
            os.close(opened)

    async def _run_program(
        self,
        launch: LaunchRecord,
        run: ExecutorRun,
        account: Account,
        directory: Path,
        shards: Sequence[Path],
        run_env: RunEnv,
    ) -> list[Path]:
        """Run the program of a run; return the files of its result."""
        program = launch.program
        output = directory / _OUTPUT
        outputs = [output]
        if program.parts > 1:
            outputs = [directory / f"output-{part}" for part in range(program.parts)]
        async with ray_place(launch, account.uid) as ray:
            request = RunRequest(
                program_type=program.stage.program_type,
                run=program.stage.run,
                index=program.index,
                count=program.stage.count,
                params=program.stage.params,
                gpus=launch.gpus,
                shards=[str(shard) for shard in shards],
                files=_files(launch),
                output=str(output),
                outputs=[str(part) for part in outputs],
                directory=str(directory),
                checkpoint=str(checkpoint_of(launch) or ""),
                first=launch.run.attempt == 1,
                gang=_gang_place(launch),
                tree=run_env.tree,
                fresh=not program.environment.directory,
                shared=program.environment.directory,
                inode=program.environment.inode,
                ray=ray,
            )
            await self._run_in_worker(launch, run, account, request, run_env)
        return outputs

    async def _keep_files(
        self, launch: LaunchRecord, run: ExecutorRun, account: Account, work: Path, run_env: RunEnv
    ) -> None:
        """Keep the files that a run has written into its working directory, if there are any."""
        keep = launch.program.keep_files
        if keep is None:
            return
        files = RunFiles(work, tree=run_env.tree, uid=account.uid, keep=keep)
        found = await self._in_thread(files.look)
        if found and await self._end_remains(run):
            found = await self._in_thread(files.look)
        if found:
            place = written_by(self._root, self._node, launch.run)
            kept = await self._in_thread(partial(files.keep, place))
            run.usage = replace(run.usage, kept=kept)

    async def _end_remains(self, run: ExecutorRun) -> bool:
        """End the worker that a run has left idle if it has left other processes, too."""
        worker = run.served
        if worker not in self._idle or worker is None or not await worker.has_left_processes():
            return False
        if worker in self._idle:  # no other run has it by now
            self._end_worker(worker)
            await asyncio.wait([self._ending[worker]])
        return True

    def _account(self, user: str) -> Account:
        try:
            return account_for(user)
        except WorldError as error:
            raise _RunError(f"{error} on node {self._node}", FailureKind.ERROR) from error

    def _keep_result(
        self, results: Sequence[str], outputs: Sequence[Path], uid: int
    ) -> tuple[int, ...]:
        """Copy a result into the store, replacing that of an earlier run; return its parts' bytes.

        It is copied, since processes of its user may still have the file open.
        """
        whole = outputs[0].with_name(_OUTPUT)
        if whole not in outputs and os.path.lexists(whole):
            problem = f"it wrote one result instead of {len(outputs)} parts: write to 'outputs'"
            raise _RunError(problem, FailureKind.ERROR)
        for output in outputs:
            with opened_result(output, uid):
                pass  # all parts are valid, or none is stored
        sizes = []
        for result, output in zip(results, outputs, strict=True):
            with opened_result(output, uid) as pieces:
                sizes.append(self._store.put(result, pieces).size_bytes)
        return tuple(sizes)

    async def _read_shards(
        self, launch: LaunchRecord, run: ExecutorRun, account: Account, directory: Path
    ) -> list[Path]:
        """Read the shards in order, counting bytes and time, and return their files."""
        paths = []
        for number, read in enumerate(launch.reads):
            started = time.monotonic()
            to = directory / f"shard-{number}"
            read_bytes = list(run.usage.read_bytes)
            try:
                path, locality, size_bytes = await self._in_thread(
                    partial(self._fetch, launch, read, to, account.uid)
                )
                read_bytes[locality] += size_bytes
                paths.append(path)
            finally:  # also when the run is stopped meanwhile
                run.usage = Usage(
                    read_bytes=(read_bytes[0], read_bytes[1], read_bytes[2]),
                    read_s=run.usage.read_s + time.monotonic() - started,
                )
        return paths

    def _fetch(self, launch: LaunchRecord, read: Read, to: Path, uid: int) -> tuple[Path, int, int]:
        """Provide a shard as a file that the run can change without changing what is stored."""
        try:
            token = token_path(self._root, self._node).read_text()
            return fetch_best(read, launch.addresses, self._store, to, token=token, uid=uid)
        except WorldError as error:
            shared, user = launch.program.results_path, launch.program.user
            if shared and copy_shared(shared, read.shard, to, user=user):
                return to, Locality.CLUSTER, read.shard.size_bytes
            # lost replicas are not caused by the program; a missing plain file may be
            lost = read.sources and error.code == "shard_unreadable"
            failure = FailureKind.LOST if lost else FailureKind.ERROR
            raise _RunError(str(error), failure) from error

    async def _run_in_worker(
        self,
        launch: LaunchRecord,
        run: ExecutorRun,
        account: Account,
        request: RunRequest,
        run_env: RunEnv,
    ) -> None:
        log = log_path(self._root, self._node, launch.run)
        opened = open_log(log, account)
        try:
            async with kept_within(opened, launch.log_limit_bytes):
                starting = self._worker_for(launch, account, request, run_env, opened)
                worker, error = await self._run_logged(launch, run, starting, request, opened)
        finally:
            os.close(opened)
        if run.notice:
            await worker.end()
            raise _RunError(run.notice, FailureKind.TIMED_OUT)
        if error:
            await worker.end()  # with all processes that the failed run has left
            raise _RunError(f"{error}\n{tail_of(log)}".strip(), failure_of(error))
        if launch.program.per_node is not None:
            await worker.end()  # no other run has its environment; with all daemons of MPI
            return
        self._idle.append(worker)
        run.served = worker
        asyncio.get_running_loop().call_later(self._linger_s, self._end_idle, worker, worker.runs)

    async def _run_logged(
        self,
        launch: LaunchRecord,
        run: ExecutorRun,
        starting: Awaitable[WorkerProcess],
        request: RunRequest,
        log: int,
    ) -> tuple[WorkerProcess, str]:
        """Run the program in a worker, which is returned, with the error or ''."""
        try:
            worker = run.worker = await starting
            note = partial(note_use, self._notes, launch.run, launch.holds)
            try:
                async with worker.measured(run.has_used, note):
                    error = await worker.run(request, log)
                if run.notice and not _stands_by(launch):
                    await worker.emptied()
            except BaseException:  # it is stopped, or its response is invalid
                await worker.end()
                raise
        finally:
            run.worker = None
        run.computed = not run.notice
        run.has_exited(status_of(error) if error else 0)
        return worker, error

    async def _worker_for(
        self,
        launch: LaunchRecord,
        account: Account,
        request: RunRequest,
        run_env: RunEnv,
        log: int,
    ) -> WorkerProcess:
        """Return an idle worker with the same GPUs and environment, or a new one.

        Idle workers that use any of these GPUs in another environment have ended by then.
        """
        gpus = launch.gpus
        envs = {**environment_of(launch), "HEADGATE_NODE": self._node, **run_env.envs}
        function = launch.program.stage.program_type is ProgramType.FUNCTION
        python = run_env.python if function else ""
        for worker in self._idle:
            same = (worker.gpus, worker.envs, worker.python) == (gpus, envs, python)
            if same and worker.alive:
                self._idle.remove(worker)
                return worker
        for worker in [w for w in self._idle if set(w.gpus) & set(gpus) or not w.alive]:
            self._end_worker(worker)
        conflicting = [end for w, end in self._ending.items() if set(w.gpus) & set(gpus)]
        if conflicting:  # `wait` does not cancel them when this run is stopped meanwhile
            await asyncio.wait(conflicting)
        directory = "" if request.ray is None else request.ray.directory
        limits = limits_of(launch, self._root)
        return await WorkerProcess.start(
            account, gpus, envs, log, limits=limits, python=python, directory=directory
        )

    def _end_idle(self, worker: WorkerProcess, runs: int) -> None:
        if worker in self._idle and worker.runs == runs:
            self._end_worker(worker)

    def _end_worker(self, worker: WorkerProcess) -> None:
        """End an idle worker; it leaves the list first, so that no run uses it any more."""
        self._idle.remove(worker)
        end = self._ending[worker] = asyncio.create_task(worker.end())
        end.add_done_callback(lambda _: self._ending.pop(worker))

    async def _in_thread(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


def _outcome(
    launch: LaunchRecord, run: ExecutorRun, work: asyncio.Task[tuple[int, ...]] | None
) -> OutcomeRecord:
    """Return the outcome of a run; `work` is None if it did not end by itself."""
    outcome = OutcomeRecord(
        run=launch.run, kind=OutcomeKind.STOPPED, usage=run.usage, message=run.notice
    )
    if run.timed_out and (work is not None or not run.stopping.is_set()):
        failure, message = FailureKind.TIMED_OUT, run.notice
    elif work is None or run.notice:  # a result that comes after the notice is void
        return outcome
    elif (error := work.exception()) is None:
        return replace(
            outcome,
            kind=OutcomeKind.FINISHED,
            output_bytes=sum(work.result()),
            part_bytes=work.result() if launch.program.parts > 1 else (),
        )
    else:
        failure = error.failure if isinstance(error, _RunError) else FailureKind.ERROR
        known = isinstance(error, _RunError | WorldError)
        message = str(error) if known else f"{type(error).__name__}: {error}"
    return replace(outcome, kind=OutcomeKind.FAILED, failure=failure, message=message)


def _stands_by(launch: LaunchRecord) -> bool:
    """Return whether a run has no program: it ends with the first member of its gang."""
    return launch.program.per_node is Launch.FIRST and launch.run.ordinal > 0


def _gang_place(launch: LaunchRecord) -> GangPlace | None:
    """Return the place of a run in its gang with one task per node, None without one."""
    gang, holds = launch.gang, launch.holds
    if gang is None or gang.rendezvous is None:
        return None
    return GangPlace(
        rank=launch.run.ordinal,
        hosts=gang.hosts,
        slots=1 if holds.in_part else max(1, holds.gpus),
        first_only=launch.program.per_node is Launch.FIRST,
        hub_port=gang.rendezvous.hub_port,
        token=gang.rendezvous.token,
    )


def _files(launch: LaunchRecord) -> list[str]:
    """Return the paths, given by the user, that a run needs to read."""
    script = [launch.program.stage.run] if launch.program.ray is not None else []
    ids = (read.shard.id for read in launch.reads)
    return script + [
        shard.removeprefix(FILE_PREFIX) for shard in ids if shard.startswith(FILE_PREFIX)
    ]


async def _stopped_early(run: RunId) -> OutcomeRecord:
    return OutcomeRecord(run=run, kind=OutcomeKind.STOPPED)
