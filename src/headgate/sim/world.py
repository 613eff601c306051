"""The simulated world: a heap of future events, and a fluid network that transfers data.

Submissions are a stream: only the next one is on the heap.

A run reads its shards one after the other, then computes what its task's checkpoint has not saved
of `compute_s`, at the speed of its node, more slowly where its messages meet others'
(`headgate.sim.communicating`); at its time limit it is stopped, without a grace period. Runs report
their start and end as events; all events of one instant are passed to the engine together, ends
before faults, faults before submissions, equal ones in the order given.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from headgate.base.errors import InvariantBroken
from headgate.model import Job, Node, Read, RunId, Shard, result_ids
from headgate.planning.links.fluid_network import FluidNetwork, Transfer
from headgate.planning.rounds.decide import decide
from headgate.ports import Policy
from headgate.protocol import (
    AddNode,
    Command,
    Decide,
    Event,
    FailureKind,
    JobCancelled,
    JobsArchived,
    JobSubmitted,
    LaunchGang,
    LaunchTask,
    NodeJoined,
    NodeLost,
    NodeRemoved,
    PlanReady,
    RemoveNode,
    ReplicaAdded,
    ReplicaLost,
    SlotsWithdrawn,
    StopTask,
    TaskCancelled,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    TaskStopped,
    TimerFired,
    TopologyChanged,
    Usage,
    WakeAt,
)
from headgate.sim.communicating import Communicating
from headgate.sim.work_pools import WorkPools
from headgate.state import Snapshot

# Order within an instant: ends, time limits, changes of the cluster, submissions, starts, plans,
# timers; jobs are archived last. So a run that takes just its time limit finishes.
_RANKS: dict[type[Event], int] = {
    TaskFinished: 0,
    TaskFailed: 0,
    TaskStopped: 0,
    JobSubmitted: 3,
    JobCancelled: 3,
    TaskCancelled: 3,
    SlotsWithdrawn: 3,
    TaskStarted: 4,
    PlanReady: 5,
    TimerFired: 6,
    JobsArchived: 7,
}
_TIME_LIMIT = 1
_OTHER_FACTS = 2


@dataclass(slots=True, kw_only=True)
class _Run:
    """A run in progress: the index of its current read, and its usage."""

    launch: LaunchTask
    members: int = 1  # that start with it
    waits: bool = False  # for its launch delay
    read: int = 0
    transfer: Transfer | None = None  # under way
    read_bytes: list[int] = field(default_factory=lambda: [0, 0, 0])
    reading_since: float = 0.0
    read_s: float = 0.0
    end: TaskFinished | TaskFailed | None = None  # of computing, where that depends on others ...
    end_order: int = 0  # ... and where that is on the heap

    @property
    def usage(self) -> Usage:
        node, rack, cluster = self.read_bytes
        return Usage(read_bytes=(node, rack, cluster), read_s=self.read_s)


class SimulatedWorld:
    """Runs tasks in virtual time; the module describes a run.

    `facts` are external events, in any order: joins and losses of nodes, replicas, queues,
    cancellations; also submissions, if few. `submissions` are in order of time, are read one by one
    as time advances, and follow the facts of their instant. `fails_after_s` returns after how many
    seconds of computing, at speed 1, the program of a launch fails, or None. The n-th launch
    starts, and begins to read, after the n-th of `launch_delays_s`, used cyclically; none is no
    delay. A task's second and further launches take `resume_s` more before they start. A node that
    returns has the replicas that `facts` gave it, not the results of its tasks.
    """

    def __init__(
        self,
        facts: Iterable[Event],
        *,
        submissions: Iterable[tuple[float, Job]] = (),
        network: FluidNetwork,
        policy: Policy,
        seed: int = 0,
        decision_latency_s: float = 0.0,
        fails_after_s: Callable[[LaunchTask], float | None] = lambda launch: None,
        launch_delays_s: Sequence[float] = (),
        resume_s: float = 0.0,
    ) -> None:
        self.network = network
        self.decisions = 0
        self.finished = 0  # runs
        self.communicating = Communicating()
        self._pools = WorkPools()
        self._policy = policy
        self._seed = seed
        self._decision_latency_s = decision_latency_s
        self._fails_after_s = fails_after_s
        self._launch_delays_s = launch_delays_s
        self._resume_s = resume_s
        self._now = 0.0
        self._order = 0
        self._transfers = self._launches = 0
        self._heap: list[tuple[float, int, int, Event | RunId]] = []  # runs: at their time limits
        self._revised: set[int] = set()  # entries that are no longer valid, by order
        self._jobs: dict[str, Job] = {}
        self._runs: dict[RunId, _Run] = {}
        self._reading: dict[int, RunId] = {}  # by the number of their transfer
        self._moved = True  # nodes or topology may have changed since the last decision
        self._up: dict[str, Node] = {}
        self._rack = ""  # of nodes that are ordered
        self._on_disk: dict[str, dict[str, Shard]] = {}  # node -> replicas it was given
        self._holders: dict[str, list[str]] = {}  # shard -> nodes that are up and hold it
        for fact in facts:
            self._push(fact)
        self._submissions = iter(submissions)
        self._submitted: JobSubmitted | None = None  # the submission on the heap
        self._next_submission()

    # --- the world protocol ------------------------------------------------------------------

    def now(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def events(self) -> Iterator[tuple[Event, ...]]:
        """Yield the events of one instant after another, until none is left."""
        while True:
            self._revise_ends()
            self._drop_stale()
            completion = self.network.next_completion()
            times = [entry[0] for entry in self._heap[:1]]
            times += [completion[0]] if completion else []
            if not times:
                return
            self._now = max(self._now, min(times))
            batch = self._gather()
            if batch:
                yield batch

    def submit(self, commands: Sequence[Command], snapshot: Callable[[], Snapshot]) -> None:
        """Execute commands at this instant."""
        for command in commands:
            match command:
                case LaunchTask():
                    self._launch((command,))
                case LaunchGang():
                    self._launch(command.members)
                case StopTask():
                    self._stop(command)
                case Decide():
                    self._decide(command, snapshot())
                case AddNode():
                    self._add_node(command)
                case RemoveNode():
                    self._push(NodeLost(at=self._now, node=command.node))
                    self._push(NodeRemoved(at=self._now, order=command.order))
                case WakeAt():
                    at = max(command.at, self._now)
                    self._push(TimerFired(at=at, timer=command.timer))
                case _:
                    raise TypeError(f"no such command: {command!r}")

    def archive(self, jobs: tuple[str, ...]) -> None:
        """Drop jobs that have ended, and report them to the engine as archived, at this instant."""
        self.communicating.archive(jobs)
        self._pools.archive(jobs)
        for name in jobs:
            for ordinal, task in enumerate(self._jobs.pop(name).tasks):
                if task.output_bytes:
                    for shard in result_ids(name, ordinal, task.parts):
                        self._holders.pop(shard, None)
        self._push(JobsArchived(at=self._now, jobs=jobs))

    # --- time --------------------------------------------------------------------------------

    def _push(self, event: Event) -> None:
        self._order += 1
        rank = _RANKS.get(type(event), _OTHER_FACTS)
        heapq.heappush(self._heap, (event.at, rank, self._order, event))

    def _next_submission(self) -> None:
        last_s = -math.inf if self._submitted is None else self._submitted.at
        self._submitted = None
        for at, job in islice(self._submissions, 1):
            if at < last_s:
                raise InvariantBroken(f"job {job.id} is submitted at {at} s, after one at {last_s}")
            self._submitted = JobSubmitted(at=at, job=job)
            self._push(self._submitted)

    def _drop_stale(self) -> None:
        """Drop the next entries that are no instants.

        Time limits of runs that have ended, and ends of computing that were revised.
        """
        heap = self._heap
        while heap:
            _, _, order, event = heap[0]
            ended = isinstance(event, RunId) and event not in self._runs
            if not ended and order not in self._revised:
                return
            self._revised.discard(order)
            heapq.heappop(heap)

    def _revise_ends(self) -> None:
        """Compute the ends of runs that depend on others, as of the changes of this instant."""
        for name, at in (*self.communicating.revised(self._now), *self._pools.revised(self._now)):
            run = self._runs[name]
            assert run.end is not None, "it computes"
            if run.end_order:
                self._revised.add(run.end_order)
            self._push(replace(run.end, at=at))
            run.end_order = self._order

    def _gather(self) -> tuple[Event, ...]:
        """Apply all events of this instant and return those for the engine."""
        seen: list[tuple[int, int, Event]] = []
        while True:
            completion = self.network.next_completion()
            if completion is not None and completion[0] <= self._now:
                self._read_done(completion[1])
            elif self._heap and self._heap[0][0] <= self._now:
                _, rank, order, event = heapq.heappop(self._heap)
                if order in self._revised:
                    self._revised.remove(order)
                    continue
                if isinstance(event, RunId):
                    self._time_out(event)
                    continue
                if event is self._submitted:
                    self._next_submission()
                if self._apply(event):
                    seen.append((rank, order, event))
            else:
                break
        if len(seen) > 1:
            seen.sort(key=lambda entry: entry[:2])
        return tuple(event for _, _, event in seen)

    def _apply(self, event: Event) -> bool:
        """Apply an event to the world; return whether it is still valid."""
        match event:
            case TaskFinished():
                run = self._remove(event.run, finished=True)
                if run is None:
                    return False
                self.finished += 1
                self._keep_result(run, event.output_bytes)
            case TaskFailed():
                return self._remove(event.run) is not None
            case TaskStarted():
                return self._start(event.run)
            case JobSubmitted():
                self._jobs[event.job.id] = event.job
            case NodeJoined():
                self._join(event)
            case NodeLost():
                return self._lose(event.node)
            case ReplicaAdded() | ReplicaLost():
                self._change_replica(event)
            case TopologyChanged():
                self._moved = True
            case _:
                pass
        return True

    def _change_replica(self, event: ReplicaAdded | ReplicaLost) -> None:
        if isinstance(event, ReplicaAdded):
            self._add_replica(event)
        else:
            self._drop_replica(event)

    def _add_replica(self, event: ReplicaAdded) -> None:
        self._on_disk.setdefault(event.node, {})[event.shard.id] = event.shard
        holders = self._holders.setdefault(event.shard.id, [])
        if event.node in self._up and event.node not in holders:
            holders.append(event.node)

    def _drop_replica(self, event: ReplicaLost) -> None:
        self._on_disk.get(event.node, {}).pop(event.shard, None)
        holders = self._holders.get(event.shard, [])
        if event.node in holders:
            holders.remove(event.node)

    def _decide(self, command: Decide, snapshot: Snapshot) -> None:
        if self._moved:
            self._moved = False
            self.communicating.see(snapshot)
        plan = decide(self._policy, self._seed, command, snapshot)
        self.decisions += 1
        at = self._now + self._decision_latency_s
        self._push(PlanReady(at=at, seen=command.seen, plan=plan))

    # --- nodes -------------------------------------------------------------------------------

    def _join(self, event: NodeJoined) -> None:
        node = event.node
        if node.id in self._up:
            self._lose(node.id)
        self._up[node.id] = node
        self._rack = self._rack or node.rack
        self.network.add_node(node.id, node.rack)
        self._moved = True
        for shard in self._on_disk.get(node.id, {}).values():
            self._push(ReplicaAdded(at=event.at, shard=shard, node=node.id))

    def _add_node(self, command: AddNode) -> None:
        """Let a node join when its shape is ready, in the rack of the first node that was up."""
        at = self._now + command.shape.ready_after_s
        node = command.shape.node(command.order, self._rack)
        self._push(NodeJoined(at=at, node=node, order=command.order))

    def _lose(self, node: str) -> bool:
        if self._up.pop(node, None) is None:
            return False
        for shard in self._holders.values():
            if node in shard:
                shard.remove(node)
        cut_off = self.network.remove_node(node, self._now)
        for name in [name for name, run in self._runs.items() if run.launch.node == node]:
            self._remove(name)
        for transfer, moved_bytes in cut_off:
            run = self._runs.get(self._reading.pop(transfer.id))
            if run is not None:  # its source is lost: it reads the shard again from elsewhere
                self._read_ended(run, moved_bytes)
                self._read(run)
        return True

    # --- runs --------------------------------------------------------------------------------

    def _launch(self, launches: Sequence[LaunchTask]) -> None:
        """Launch runs of one job, those of a gang together."""
        for launch in launches:
            self._runs[launch.run] = _Run(launch=launch, members=len(launches))
        self.communicating.launched(launches, self._jobs[launches[0].run.job], self._now)
        for launch in launches:
            self._begin(self._runs[launch.run])

    def _begin(self, run: _Run) -> None:
        """Start a run after its delay, and count its time limit from there."""
        launch = run.launch
        delays_s = self._launch_delays_s
        delay_s = delays_s[self._launches % len(delays_s)] if delays_s else 0.0
        if launch.run.attempt > 1:
            training = self._jobs[launch.run.job].training
            delay_s += self._resume_s + (0.0 if training is None else training.restart_s)
        self._launches += 1
        run.waits = delay_s > 0
        self._push(TaskStarted(at=self._now + delay_s, run=launch.run))
        if launch.time_limit_s is not None:
            self._order += 1
            at = self._now + delay_s + launch.time_limit_s
            heapq.heappush(self._heap, (at, _TIME_LIMIT, self._order, launch.run))
        if not run.waits:
            self._read(run)

    def _start(self, name: RunId) -> bool:
        """Start the reads of a delayed run; return whether the run still exists."""
        run = self._runs.get(name)
        if run is None:
            return False
        if run.waits:
            run.waits = False
            self._read(run)
        return True

    def _time_out(self, name: RunId) -> None:
        """Stop a run at its time limit, unless it has ended."""
        run = self._runs.get(name)
        if run is not None:
            self._stop_reading(run)
            self._fail(run, FailureKind.TIMED_OUT, "")

    def _stop_reading(self, run: _Run) -> None:
        if run.transfer is not None:
            del self._reading[run.transfer.id]
            self._read_ended(run, self.network.abort(run.transfer.id, self._now))

    def _read(self, run: _Run) -> None:
        """Start a run's next read, or its computing after the last one."""
        launch = run.launch
        reads = launch.reads
        while run.read < len(reads) and self._is_empty(reads[run.read]):
            run.read += 1
        if run.read == len(reads):
            self._compute(run)
            return
        read = reads[run.read]
        if not self._readable(read):
            # Losing replicas during a run is no fault of the program; starting without any counts
            # as an error, or the task would be retried without limit.
            kind = FailureKind.LOST if read.sources else FailureKind.ERROR
            self._fail(run, kind, f"no replica of {read.shard.id} is left")
            return
        run.reading_since = self._now
        source = self._source(launch, read)
        self._transfers += 1
        self._reading[self._transfers] = launch.run
        run.transfer = self.network.start(
            self._transfers, launch.node, source, read.shard.size_bytes, self._now
        )

    def _is_empty(self, read: Read) -> bool:
        """Return whether nothing is transferred, though a replica is there."""
        return not read.shard.size_bytes and self._readable(read)

    def _readable(self, read: Read) -> bool:
        return read.shard.id not in self._holders or bool(self._holders[read.shard.id])

    def _source(self, launch: LaunchTask, read: Read) -> str | None:
        """Return the first planned source that still holds the shard, else any near one."""
        holders = self._holders.get(read.shard.id)
        if not holders:
            return None
        for source in read.sources:
            if source in holders:
                return source
        rack = self._up[launch.node].rack
        return min(holders, key=lambda n: (n != launch.node, self._up[n].rack != rack))

    def _read_done(self, number: int) -> None:
        transfer = self.network.finish(number, self._now)
        run = self._runs[self._reading.pop(number)]
        self._read_ended(run, transfer.size_bytes)
        run.read += 1
        self._read(run)

    def _read_ended(self, run: _Run, moved_bytes: int) -> None:
        assert run.transfer is not None, "only a transfer under way can end"
        run.read_bytes[run.transfer.locality] += moved_bytes
        run.read_s += self._now - run.reading_since
        run.transfer = None

    def _compute(self, run: _Run) -> None:
        launch, communicates = run.launch, run.launch.run in self.communicating
        job = self._jobs[launch.run.job]
        task = job.tasks[launch.run.ordinal]
        left_s = max(0.0, task.compute_s - launch.progress_s)
        if communicates:
            left_s = self.communicating.left_s(launch, task.compute_s)
        fails_after_s = self._fails_after_s(launch)
        end: TaskFinished | TaskFailed
        speed = self._up[launch.node].speed
        if job.training is not None:
            speed *= job.training.speed(run.members)
        if fails_after_s is not None and fails_after_s <= left_s:
            left_s = fails_after_s
            at = self._now + left_s / speed
            end = _failure(run, at, FailureKind.ERROR, "the program failed")
        else:
            end = TaskFinished(
                at=self._now + left_s / speed,
                run=launch.run,
                output_bytes=task.output_bytes,
                usage=run.usage,
            )
        if communicates:
            run.end = end  # at a time that its neighbours decide
            self.communicating.computes(launch.run, left_s, self._now, speed)
        elif job.elastic is not None and isinstance(end, TaskFinished):
            run.end = end  # likewise
            self._pools.computes(launch.run, job.elastic.work_s, self._now, speed)
        else:
            self._push(end)

    def _fail(self, run: _Run, kind: FailureKind, message: str) -> None:
        self._push(_failure(run, self._now, kind, message))

    def _remove(self, name: RunId, *, finished: bool = False) -> _Run | None:
        """Remove a run that ends, if it exists."""
        if name in self.communicating:
            self.communicating.ended(name, self._now, finished=finished)
        self._pools.ended(name, self._now)
        return self._runs.pop(name, None)

    def _keep_result(self, run: _Run, output_bytes: int) -> None:
        if output_bytes:
            job, ordinal, _ = run.launch.run
            parts = self._jobs[job].tasks[ordinal].parts
            for shard in result_ids(job, ordinal, parts):
                self._holders[shard] = [run.launch.node]

    def _stop(self, command: StopTask) -> None:
        run = self._remove(command.run)
        if run is None:
            return  # it ended in this instant; its end is in the batch
        self._stop_reading(run)
        self._push(TaskStopped(at=self._now, run=command.run, usage=run.usage))


def _failure(run: _Run, at: float, kind: FailureKind, message: str) -> TaskFailed:
    return TaskFailed(at=at, run=run.launch.run, kind=kind, message=message, usage=run.usage)
