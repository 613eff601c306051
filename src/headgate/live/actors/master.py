"""Masters: one Ray actor per account, between the controller and the account's executors.

A master is detached. When it dies, Ray restarts it without its memory: then the controller sends
every outstanding launch and stop again, and executors return the outcomes of runs that they have
started. So no state of a master needs to be durable.

Master and executor keep a run until its end is acknowledged. The controller acknowledges an end
once it is durable in the journal, and repeats launches only of runs whose end is not. So a
forgotten run is never launched again, and a launch that may be repeated finds its run, at least on
its executor, and does not run twice. Only if the end of the journal was lost, such a run may be
repeated.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from headgate.live.actors.agent import agent_name
from headgate.live.actors.executor import TaskExecutor
from headgate.live.base.records import Batch, LaunchRecord, OutcomeKind, OutcomeRecord, StopRecord
from headgate.live.base.supervise import supervise
from headgate.live.cluster.names import (
    account_actors,
    account_of,
    executor_name,
    is_executor,
    name_served,
    named_actor,
    node_of,
)
from headgate.live.cluster.ray_nodes import NAMESPACE
from headgate.model import FailureKind, Launch, RunId

log = logging.getLogger(__name__)

_RETRY_S = 0.5
_TRIES = 3
_SETTLE_S = 1.0  # when a node crashes, its processes do not all end at the same time
_LOOKS = 10
_RESPONSE_S = 5.0
_STOP_S = 30.0  # then an executor that does not respond is killed


@dataclass(slots=True, kw_only=True)
class _TrackedRun:
    """A run from its launch to the acknowledgement of its end, its job and its node."""

    job: str
    node: str
    ray_id: str
    accepted: bool = False  # by its executor
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    killing: asyncio.Event = field(default_factory=asyncio.Event)  # to be stopped without notice
    grace_s: float = math.inf  # its grace period at most, once it is stopped
    exited: asyncio.Event = field(default_factory=asyncio.Event)  # or it could not be tracked
    ended: asyncio.Event = field(default_factory=asyncio.Event)  # its end has been reported


class Master:
    """Launches the tasks of one account on its executors, and stores outcomes until acknowledged.

    One process serves all jobs of the account, so that a job starts without one of its own.
    """

    def __init__(
        self, *, root: str, account: str = "", spare: str = "", grace_s: float = 20.0
    ) -> None:
        """`root` is Headgate's directory on every node; the account is that of the spare if any.

        Runs that were lost with a node are reported after `grace_s` seconds, or once they are to be
        stopped: by then the controller has seen the loss and does not launch them there again.
        """
        self._known_account, self._spare = account, spare
        self._root, self._grace_s = root, grace_s
        self._incarnation = secrets.token_hex(4)
        self._executors: dict[str, tuple[str, Any]] = {}  # by node: its Ray id, the handle
        self._runs: dict[RunId, _TrackedRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._outbox: deque[tuple[int, OutcomeRecord]] = deque()
        self._reported = 0
        self._news = asyncio.Event()

    @property
    def _account(self) -> str:
        """The account; a spare looks it up at its first command, after a restart by Ray also."""
        if not self._known_account:
            self._known_account = account_of(name_served(self._spare))
        return self._known_account

    async def launch(self, launches: Sequence[LaunchRecord]) -> str:
        """Launch these runs, except those launched already; return the incarnation."""
        for launch in launches:
            if launch.run not in self._runs:
                tracked = self._runs[launch.run] = _TrackedRun(
                    job=launch.run.job, node=launch.node, ray_id=launch.ray_id
                )
                self._start(self._track(launch.run, tracked, self._carry_out(launch, tracked)))
        return self._incarnation

    async def stop(self, stops: Sequence[StopRecord]) -> str:
        """Stop these runs, whose ends are reported as usual; return the incarnation.

        A stop is delivered until the run's executor has accepted it. That gives the run notice and
        its grace period, or kills it `now`, also where it has notice; an executor that hangs is
        killed. A run that this incarnation has not launched is stopped on its executor, and never
        launched by this incarnation.
        """
        for stop in stops:
            if stop.run not in self._runs:
                tracked = self._runs[stop.run] = _TrackedRun(
                    job=stop.run.job, node=stop.node, ray_id=stop.ray_id
                )
                self._start(self._track(stop.run, tracked, self._stop_untracked(stop, tracked)))
            tracked = self._runs[stop.run]
            if stop.now:
                tracked.killing.set()
            if not tracked.stopping.is_set():
                tracked.grace_s = stop.grace_s
                tracked.stopping.set()
                enforce = partial(self._enforce_stop, tracked)
                self._start(supervise(f"stopping run {stop.run}", enforce))
        return self._incarnation

    async def keep_only(self, runs: Collection[RunId]) -> str:
        """Stop all runs of the account but these and those launched later; return the incarnation.

        After a loss of events, the engine lacks runs that it once launched. Runs that an earlier
        incarnation launched are also stopped, on their executors. Their ends are reported as usual.
        """
        kept = frozenset(runs)
        unknown = [
            StopRecord(run=run, node=tracked.node, ray_id=tracked.ray_id, now=True)
            for run, tracked in self._runs.items()
            if run not in kept and not tracked.ended.is_set()
        ]
        stop_unknown = partial(self._stop_unknown_runs, kept)
        self._start(supervise(f"stopping unknown runs of {self._account}", stop_unknown))
        return await self._stop_unknown(unknown)

    async def _stop_unknown(self, stops: Sequence[StopRecord]) -> str:
        if stops:
            log.warning(
                "account %s: %d runs are stopped, as the engine does not know them: %s",
                self._account,
                len(stops),
                ", ".join(str(stop.run) for stop in stops[:10]),
            )
        return await self.stop(stops)

    async def _stop_unknown_runs(self, kept: Collection[RunId]) -> None:
        """Stop the runs of all executors of the account, but `kept` and this incarnation's."""
        for name in await asyncio.to_thread(account_actors):
            if is_executor(name) and account_of(name) == self._account:
                stop_unknown = partial(self._stop_unknown_on, name, kept)
                self._start(supervise(f"stopping unknown runs on {name}", stop_unknown))

    async def _stop_unknown_on(self, name: str, kept: Collection[RunId]) -> None:
        from ray.exceptions import RayError

        try:
            executor = await asyncio.to_thread(named_actor, name)
            node, known = await _call_with_retry(executor.known)
        except (RayError, ValueError):  # it is dead, and so are its runs
            return
        ray_id = node_of(name)
        unknown = [run for run in known if run not in kept and run not in self._runs]
        stops = [StopRecord(run=run, node=node, ray_id=ray_id, now=True) for run in unknown]
        await self._stop_unknown(stops)

    async def poll(self, incarnation: str, acked: int, wait_s: float) -> Batch:
        """Forget the outcomes up to number `acked` of this incarnation and return all later ones.

        An acknowledged end must be durable: its run is also forgotten, here and at its executor.
        Waits up to `wait_s` seconds for the first; a poll for another incarnation returns
        immediately.
        """
        if incarnation == self._incarnation:
            self._forget(acked)
            if not self._outbox:
                self._news.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._news.wait()
        return Batch(incarnation=self._incarnation, outcomes=tuple(self._outbox))

    def _forget(self, acked: int) -> None:
        ended: dict[str, list[RunId]] = {}
        while self._outbox and self._outbox[0][0] <= acked:
            _, outcome = self._outbox.popleft()
            if outcome.kind is not OutcomeKind.STARTED:
                tracked = self._runs.pop(outcome.run)
                node, (ray_id, _) = tracked.node, self._executors.get(tracked.node, ("", None))
                if ray_id == tracked.ray_id:
                    ended.setdefault(node, []).append(outcome.run)
        for node, launches in ended.items():
            self._start(_forget_runs(self._executors[node][1], launches))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that handles its failures; the set keeps it from being collected."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _track(
        self, run: RunId, tracked: _TrackedRun, outcome: Coroutine[Any, Any, OutcomeRecord]
    ) -> None:
        """Report the end of a run; a run that cannot be tracked is stopped and has failed."""
        try:
            self._report(await outcome)
        except Exception as error:
            log.exception("tracking run %s failed", run)
            await self._abandon(run, tracked)
            message = f"the run could not be tracked to its end: {type(error).__name__}: {error}"
            self._report(_failed(run, FailureKind.ERROR, message))
        finally:
            tracked.ended.set()

    async def _enforce_stop(self, tracked: _TrackedRun) -> None:
        """Until a stopped run has ended, kill its executor if it hangs, with all its runs."""
        import ray

        while not await _in_time(tracked.ended.wait(), _STOP_S):
            ray_id, executor = self._executors.get(tracked.node, ("", None))
            if ray_id == tracked.ray_id and not await _in_time(
                executor.__ray_ready__.remote(), _RESPONSE_S
            ):
                log.error(
                    "the executor of %s on %s hangs; it is killed", self._account, tracked.node
                )
                await asyncio.to_thread(partial(ray.kill, executor, no_restart=True))

    async def _abandon(self, run: RunId, tracked: _TrackedRun) -> None:
        """End a run that cannot be tracked, so that its GPUs are free when it is reported."""
        ray_id, executor = self._executors.get(tracked.node, ("", None))
        if ray_id != tracked.ray_id:
            return
        try:
            await _call_with_retry(executor.stop, [run], True)
            await _call_with_retry(executor.outcome, run)
        except Exception:  # the first failure is reported
            log.exception("ending run %s failed", run)

    async def _carry_out(self, launch: LaunchRecord, tracked: _TrackedRun) -> OutcomeRecord:
        """Execute a run and return its outcome, that of a gang's member in view of the others."""
        try:
            outcome = await self._execute(launch, tracked)
        finally:
            tracked.exited.set()
        if launch.gang is None or outcome.kind is not OutcomeKind.FAILED:
            return outcome
        if outcome.failure is FailureKind.ERROR:
            outcome = await self._with_peers(outcome, tracked)
        if outcome.failure is FailureKind.TIMED_OUT and launch.program.per_node is not Launch.FIRST:
            await self._expire_peers(tracked, launch.grace_s)
        return outcome

    async def _execute(self, launch: LaunchRecord, tracked: _TrackedRun) -> OutcomeRecord:
        """Start a run on its executor and return its outcome; forward a stop."""
        from ray.exceptions import RayError, RayTaskError

        node, ray_id = launch.node, launch.ray_id
        try:
            if launch.gang is not None and launch.program.per_node is not None:
                node, ray_id = launch.gang.first_node, launch.gang.first_ray_id
                _, rendezvous = await self._call(
                    node, ray_id, tracked, "rendezvous", launch.run.job, launch.run.attempt
                )
                launch = replace(launch, gang=replace(launch.gang, rendezvous=rendezvous))
                node, ray_id = launch.node, launch.ray_id
            executor, _ = await self._call(node, ray_id, tracked, "begin", [launch])
            tracked.accepted = True
            self._report(OutcomeRecord(run=launch.run, kind=OutcomeKind.STARTED))
            return await _outcome(executor, launch.run, tracked)
        except RayTaskError:  # the executor is alive, and raised this error
            raise
        except (RayError, ValueError) as error:  # as in `_call`
            self._drop(node, ray_id)
            if tracked.stopping.is_set():  # the run has ended with its executor
                return OutcomeRecord(run=launch.run, kind=OutcomeKind.STOPPED)
            message = f"the executor on node {node} ended: {error}"
            if not await _stayed_up(ray_id):
                return await self._lost(launch.run, tracked, message)
            # an executor that cannot start on a node that is up would fail to start again
            kind = FailureKind.CRASHED if tracked.accepted else FailureKind.ERROR
            return _failed(launch.run, kind, message)

    async def _call(
        self, node: str, ray_id: str, tracked: _TrackedRun, method: str, *arguments: object
    ) -> tuple[Any, Any]:
        """Call a node's executor for a run; return the executor and its response.

        A dead one is replaced up to `_TRIES` times; not for a run that is to be stopped.
        """
        from ray.exceptions import ActorDiedError

        failures = 0
        while True:
            try:
                executor = self._executor_of(node, ray_id)
                return executor, await _call_with_retry(getattr(executor, method), *arguments)
            except (ActorDiedError, ValueError):  # ValueError: a dying one still has the name
                self._drop(node, ray_id)
                failures += 1
                if failures == _TRIES or tracked.stopping.is_set():
                    raise
            await asyncio.sleep(_RETRY_S)

    async def _with_peers(self, outcome: OutcomeRecord, tracked: _TrackedRun) -> OutcomeRecord:
        """Return the outcome of a member of a gang that failed, by what happened to the others.

        It is lost if the node or the executor of another one is, timed out if another one has
        reached the time limit: its program often fails first, as its connections to that member
        end.
        """
        peers = self._peers(tracked, lambda peer: not peer.ended.is_set())
        checks = asyncio.gather(*(self._failure_on(*place, runs) for place, runs in peers.items()))
        if not await _unless_stopping(tracked, checks):
            return outcome  # of no account
        failures = set(checks.result())
        if failures & {FailureKind.LOST, FailureKind.CRASHED}:
            what = "node" if FailureKind.LOST in failures else "executor"
            message = f"the {what} of another member of its gang was lost ({outcome.message})"
            return await self._lost(outcome.run, tracked, message)
        if FailureKind.TIMED_OUT in failures:
            message = f"another member of its gang did ({outcome.message})"
            return replace(outcome, failure=FailureKind.TIMED_OUT, message=message)
        return outcome

    async def _expire_peers(self, tracked: _TrackedRun, grace_s: float) -> None:
        """Give the other members of a gang at its time limit notice, and wait for their ends.

        The controller stops them as soon as one is reported: so also one whose executor hangs.
        """
        peers = self._peers(tracked, lambda peer: peer.accepted and not peer.exited.is_set())
        notices = [self._expire(*place, runs) for place, runs in peers.items()]
        exits = [self._runs[run].exited.wait() for runs in peers.values() for run in runs]
        both = asyncio.gather(*notices, *exits)
        await _unless_stopping(tracked, both, limit_s=grace_s + _STOP_S)

    def _peers(
        self, tracked: _TrackedRun, among: Callable[[_TrackedRun], bool]
    ) -> dict[tuple[str, str], list[RunId]]:
        """Return the other members of a gang, which is all of its job, by node and its Ray id."""
        peers: dict[tuple[str, str], list[RunId]] = {}
        for run, other in self._runs.items():
            if other.job == tracked.job and other is not tracked and among(other):
                peers.setdefault((other.node, other.ray_id), []).append(run)
        return peers

    async def _expire(self, node: str, ray_id: str, runs: Sequence[RunId]) -> None:
        from ray.exceptions import RayError

        known, executor = self._executors.get(node, ("", None))
        if known == ray_id:
            with suppress(RayError):  # its runs have ended with it
                await _call_with_retry(executor.expire, runs)

    async def _lost(self, run: RunId, tracked: _TrackedRun, message: str) -> OutcomeRecord:
        """Return the outcome of a run that was lost, once the controller has seen the cause."""
        await _in_time(tracked.stopping.wait(), self._grace_s)
        return _failed(run, FailureKind.LOST, message)

    async def _failure_on(
        self, node: str, ray_id: str, runs: Sequence[RunId]
    ) -> FailureKind | None:
        """Return whether a node or its executor is lost, or runs there reached their time limit.

        It takes a few seconds unless the executor responds. One that hangs is not lost.
        """
        from ray.exceptions import RayError

        known, executor = self._executors.get(node, ("", None))
        if_up: FailureKind | None = FailureKind.CRASHED  # also where that was seen before
        if known == ray_id:
            try:
                async with asyncio.timeout(_RESPONSE_S):
                    over = await executor.over_limit.remote(runs)
                return FailureKind.TIMED_OUT if over else None
            except TimeoutError:
                if_up = None
            except RayError:
                pass
        return if_up if await _stayed_up(ray_id) else FailureKind.LOST

    async def _stop_untracked(self, stop: StopRecord, tracked: _TrackedRun) -> OutcomeRecord:
        """Stop a run that this incarnation has not launched, and return its outcome."""
        from ray.exceptions import RayError, RayTaskError

        name = executor_name(self._account, stop.ray_id)
        try:
            executor = await asyncio.to_thread(named_actor, name)
            self._executors[stop.node] = (stop.ray_id, executor)
            await _call_with_retry(  # it may not know the run
                executor.stop, [stop.run], stop.now, stop.grace_s
            )
            return await _outcome(executor, stop.run, tracked)
        except RayTaskError:
            raise
        except (RayError, ValueError):  # no executor: the run has ended with it
            self._drop(stop.node, stop.ray_id)
            return OutcomeRecord(run=stop.run, kind=OutcomeKind.STOPPED)

    def _report(self, outcome: OutcomeRecord) -> None:
        self._reported += 1
        self._outbox.append((self._reported, outcome))
        self._news.set()

    def _executor_of(self, node: str, ray_id: str) -> Any:
        """Return the account's executor on a node, started at first use.

        One that an earlier incarnation of this master started is found by its name. One handle is
        kept per node: a node that returned has a new executor.
        """
        known, executor = self._executors.get(node, ("", None))
        if known != ray_id:
            executor = start_executor(self._account, node, ray_id, root=self._root)
            self._executors[node] = (ray_id, executor)
        return executor

    def _drop(self, node: str, ray_id: str) -> None:
        if self._executors.get(node, ("", None))[0] == ray_id:
            del self._executors[node]


async def _outcome(executor: Any, run: RunId, tracked: _TrackedRun) -> OutcomeRecord:
    """Return the outcome of an accepted run; deliver its stops until the executor accepts them."""
    end = asyncio.create_task(_call_with_retry(executor.outcome, run))
    stops = [asyncio.create_task(e.wait()) for e in (tracked.stopping, tracked.killing)]
    try:
        for stop in stops:
            await asyncio.wait((end, stop), return_when=asyncio.FIRST_COMPLETED)
            now = tracked.killing.is_set()
            if not end.done():
                await _call_with_retry(executor.stop, [run], now, tracked.grace_s)
            if now:
                break
        outcome: OutcomeRecord = await end
        return outcome
    finally:
        for task in (end, *stops):
            task.cancel()


async def _unless_stopping(
    tracked: _TrackedRun, call: asyncio.Future[Any], *, limit_s: float | None = None
) -> bool:
    """Wait for a call, `limit_s` seconds at most; return False if the run is to be stopped before.

    A call that has not ended by then is cancelled.
    """
    stopping = asyncio.create_task(tracked.stopping.wait())
    try:
        await asyncio.wait((call, stopping), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        return not stopping.done()
    finally:
        stopping.cancel()
        call.cancel()


async def _in_time(call: Awaitable[object], limit_s: float) -> bool:
    """Return whether a call returned within `limit_s` seconds, even with an error."""
    from ray.exceptions import RayError

    with suppress(RayError):
        done = asyncio.ensure_future(call)
        await asyncio.wait({done}, timeout=limit_s)
        if not done.done():
            done.cancel()
            return False
        done.result()
    return True


async def _forget_runs(executor: Any, runs: Sequence[RunId]) -> None:
    """Make an executor forget ended runs; a dead one has forgotten them."""
    from ray.exceptions import RayError

    with suppress(RayError):
        await _call_with_retry(executor.forget, runs)


def _failed(run: RunId, failure: FailureKind, message: str) -> OutcomeRecord:
    return OutcomeRecord(run=run, kind=OutcomeKind.FAILED, failure=failure, message=message)


async def _stayed_up(ray_id: str) -> bool:
    """Return whether a node on which an actor died is still up: its agent responds.

    Ray often reports a process of a crashing node before the node, so its list is not enough.
    """
    import ray
    from ray.exceptions import RayError

    for _ in range(_LOOKS):
        await asyncio.sleep(_SETTLE_S)
        if ray_id not in await asyncio.to_thread(_nodes_up):
            return False
        find = partial(ray.get_actor, agent_name(ray_id), namespace=NAMESPACE)
        try:
            agent: Any = await asyncio.to_thread(find)
            async with asyncio.timeout(_RESPONSE_S):
                await agent.__ray_ready__.remote()
        except (RayError, ValueError, TimeoutError):
            continue  # the node is ending, or the agent is being restarted
        return True
    return False


def start_executor(account: str, node: str, ray_id: str, *, root: str) -> Any:
    """Return the handle of an account's executor on a node, started if it does not run."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    with suppress(ValueError):
        return named_actor(executor_name(account, ray_id))
    return (
        ray.remote(TaskExecutor)
        .options(
            name=executor_name(account, ray_id),
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(ray_id, soft=False),
        )
        .remote(node=node, root=root)
    )


def _nodes_up() -> set[str]:
    import ray

    return {entry["NodeID"] for entry in ray.nodes() if entry["Alive"]}  # type: ignore[no-untyped-call]


async def _call_with_retry(method: Any, *arguments: Any) -> Any:
    """Call an actor until it responds or is dead: it may be unavailable temporarily."""
    from ray.exceptions import ActorUnavailableError

    while True:
        try:
            return await method.remote(*arguments)
        except ActorUnavailableError:
            await asyncio.sleep(_RETRY_S)
