"""Job masters: one Ray actor per job, between the controller and the job's executors.

A master is detached and comes back by itself when it dies, without memory: then the controller
sends every outstanding launch again, and executors answer those that they know. So nothing that a
master knows needs to be durable.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from headgate.live.executor import Executor
from headgate.live.ray_nodes import NAMESPACE
from headgate.live.records import Batch, LaunchRecord, OutcomeKind, OutcomeRecord
from headgate.model import RunId
from headgate.protocol import FailureKind

_MASTER, _EXECUTOR = "headgate-master:", "headgate-executor:"
_RETRY_S = 0.5
_TRIES = 3


class JobMaster:
    """Launches the tasks of one job through its executors and keeps what became of them."""

    def __init__(self, *, job: str, root: str, grace_s: float = 20.0) -> None:
        """`root` is Headgate's directory on every node.

        Runs that a node's loss has ended are reported after `grace_s`: by then the controller has
        seen the loss for itself and does not launch them there again.
        """
        self._job, self._root, self._grace_s = job, root, grace_s
        self._incarnation = secrets.token_hex(4)
        self._executors: dict[str, Any] = {}
        self._launches: dict[RunId, LaunchRecord] = {}
        self._following: set[asyncio.Task[None]] = set()
        self._outbox: deque[tuple[int, OutcomeRecord]] = deque()
        self._told = 0
        self._news = asyncio.Event()

    async def launch(self, launches: Sequence[LaunchRecord]) -> str:
        """Launch these runs, except those known already; return the incarnation that knows them."""
        for launch in launches:
            if launch.run not in self._launches:
                self._launches[launch.run] = launch
                task = asyncio.create_task(self._follow(launch))
                self._following.add(task)
                task.add_done_callback(self._following.discard)
        return self._incarnation

    async def stop(self, runs: Sequence[RunId]) -> None:
        """End these runs; how each ended is told as ever. One never launched here is ignored."""
        for run in runs:
            if run in self._launches:
                self._executor_of(self._launches[run]).stop.remote([run])

    async def poll(self, incarnation: str, acked: int, wait_s: float) -> Batch:
        """Forget the outcomes up to number `acked` of this incarnation and return all later ones.

        Waits up to `wait_s` for the first; a poll for another incarnation is answered at once.
        """
        if incarnation == self._incarnation:
            while self._outbox and self._outbox[0][0] <= acked:
                self._outbox.popleft()
            if not self._outbox:
                self._news.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), wait_s)
        return Batch(incarnation=self._incarnation, outcomes=tuple(self._outbox))

    async def _follow(self, launch: LaunchRecord) -> None:
        """Bring a run to its executor and tell how it ends."""
        from ray.exceptions import RayError

        accepted = False
        try:
            executor = await self._begin(launch)
            accepted = True
            self._tell(OutcomeRecord(run=launch.run, kind=OutcomeKind.STARTED))
            outcome = await _insist(executor.outcome, launch.run)
        except RayError as error:
            self._executors.pop(launch.ray_id, None)
            outcome = await self._lost(launch, error, accepted)
        self._tell(outcome)

    async def _begin(self, launch: LaunchRecord) -> Any:
        """Return the executor that has accepted the run; a dead one is replaced a few times."""
        from ray.exceptions import ActorDiedError

        for _ in range(_TRIES - 1):
            executor = self._executor_of(launch)
            try:
                await _insist(executor.begin, [launch])
            except ActorDiedError:
                self._executors.pop(launch.ray_id, None)
            else:
                return executor
        executor = self._executor_of(launch)
        await _insist(executor.begin, [launch])
        return executor

    async def _lost(self, launch: LaunchRecord, error: Exception, accepted: bool) -> OutcomeRecord:
        """Return the outcome of a run whose executor is gone, or was never to be had."""
        up = launch.ray_id in await asyncio.to_thread(_nodes_up)
        if not up:
            await asyncio.sleep(self._grace_s)
        # an executor that cannot even start on a node that is up would not start next time either
        return OutcomeRecord(
            run=launch.run,
            kind=OutcomeKind.FAILED,
            failure=FailureKind.LOST if accepted or not up else FailureKind.ERROR,
            message=f"the executor on node {launch.node} is gone: {error}",
        )

    def _tell(self, outcome: OutcomeRecord) -> None:
        self._told += 1
        self._outbox.append((self._told, outcome))
        self._news.set()

    def _executor_of(self, launch: LaunchRecord) -> Any:
        """Return the job's executor on a node, started at first use.

        One that an earlier incarnation of this master started is found again by its name.
        """
        if launch.ray_id not in self._executors:
            self._executors[launch.ray_id] = start_executor(
                self._job, launch.node, launch.ray_id, root=self._root
            )
        return self._executors[launch.ray_id]


def start_executor(job: str, node: str, ray_id: str, *, root: str) -> Any:
    """Return the handle of a job's executor on a node, started when there is none."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return (
        ray.remote(Executor)
        .options(
            name=f"{_EXECUTOR}{job}:{ray_id}",
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(ray_id, soft=False),
        )
        .remote(job=job, node=node, root=root)
    )


def start_master(job: str, root: Path, *, grace_s: float = 20.0) -> Any:
    """Return the handle of a job's master, started on this node when there is none."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = ray.get_runtime_context().get_node_id()
    return (
        ray.remote(JobMaster)
        .options(
            name=f"{_MASTER}{job}",
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            max_restarts=-1,
            scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False),
        )
        .remote(job=job, root=str(root), grace_s=grace_s)
    )


def end_job(job: str, *, wait_s: float = 5.0) -> None:
    """End a job's master, its executors and all their processes; results and logs stay.

    Runs that go on are killed. Idempotent; blocks for up to `wait_s` and a little.
    """
    import ray

    for name, owner in _actors():
        if owner != job:
            continue
        with suppress(ValueError):  # gone meanwhile
            actor = ray.get_actor(name, namespace=NAMESPACE)
            if name.startswith(_EXECUTOR):
                ray.wait([actor.close.remote()], timeout=wait_s)
            ray.kill(actor, no_restart=True)


def jobs_with_actors() -> tuple[str, ...]:
    """Return the ids of the jobs that have a master or an executor, to end those that are over."""
    return tuple(sorted({owner for _, owner in _actors()}))


def _actors() -> list[tuple[str, str]]:
    """Return the names of all masters and executors with their jobs, masters before executors."""
    from ray.util import list_named_actors

    found = []
    for entry in list_named_actors(all_namespaces=True):
        name = entry["name"]
        if entry["namespace"] == NAMESPACE and name.startswith(_MASTER):
            found.append((name, name.removeprefix(_MASTER)))
        elif entry["namespace"] == NAMESPACE and name.startswith(_EXECUTOR):
            found.append((name, name.removeprefix(_EXECUTOR).rpartition(":")[0]))
    return sorted(found, reverse=True)


def _nodes_up() -> set[str]:
    import ray

    return {entry["NodeID"] for entry in ray.nodes() if entry["Alive"]}  # type: ignore[no-untyped-call]


async def _insist(method: Any, *arguments: Any) -> Any:
    """Call an actor until it answers or is dead: being unavailable may pass."""
    from ray.exceptions import ActorUnavailableError

    while True:
        try:
            return await method.remote(*arguments)
        except ActorUnavailableError:
            await asyncio.sleep(_RETRY_S)
