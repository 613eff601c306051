"""When runs end in a simulation of the future: each reads through the network, then computes.

Runs of before share the network with those that follow. What those under way have read by now is
unknown; it follows from the same model of the network, applied to them, to the runs that have
ended since the oldest of them was launched, to those that have ended since the launch of these, ...
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from headgate.base.arrays import Floats, Ints
from headgate.model import Read
from headgate.planning.links.fluid_network import FluidNetwork
from headgate.planning.times.estimates import ComputeTimes, Estimates, after_one_run
from headgate.state import Snapshot, State, TaskState
from headgate.state.life import HOLDING

_FIRST_S = 180.0  # what runs take at least, in the median, before any has ended
_REPLAYED = 3  # generations of runs that have ended: with one, reads under way end 5 ms off


@dataclass(slots=True, eq=False)
class ExpectedRun:
    """A run of the simulation, from now or its launch on, whichever is later: its origin.

    It reads for another `reads_s`, in the simulation so far, then computes: in all `median_s` in
    the median, with a `spread` as in `planning.times.estimates.ComputeTimes`, of which `computed_s`
    are over at its origin: these three are at a speed of 1, it computes at `speed`. It ends
    `limit_s` after its origin at the latest, if not NaN. All are seconds.
    """

    task: int
    attempt: int
    launched_at: float
    origin: float
    median_s: float = 0.0
    spread: float = 0.0
    computed_s: float = 0.0
    speed: float = 1.0
    limit_s: float = math.nan
    guessed: bool = False  # its median, before any run has ended from which it could be learnt
    reads_s: float = 0.0
    reads: tuple[Read, ...] = ()
    read: int = 0  # how many reads are over
    transfer: int | None = None  # of the current one
    read_s: float = 0.0  # from its start on, once its last read is over
    past: bool = False  # it has ended already, and only loads the network


class RunEnds:
    """The ends of the runs of a hypothetical state, in order of time.

    A run ends at its median, given how long it has computed.
    """

    def __init__(self, state: State, snapshot: Snapshot) -> None:
        """Begin with the runs of a snapshot, of which `state` is the hypothetical copy.

        O(tasks + transfers of the runs since some time before the oldest one under way).
        """
        self._state, self._now = state, state.now
        self._estimates = Estimates(snapshot)
        self._guess = after_one_run(_longest_s(snapshot, state.now))
        self._network = _network(snapshot)
        self._started = 0  # transfers
        self._reading: dict[int, ExpectedRun] = {}  # by transfer
        self._run_of: dict[int, ExpectedRun] = {}  # by task
        self._heap: list[tuple[float, int, ExpectedRun]] = []
        self._pushed = 0
        self._replay(snapshot)

    def _replay(self, snapshot: Snapshot) -> None:
        """Begin the runs under way, as they were launched among others that have ended since."""
        tasks, held = snapshot.tasks, np.array(snapshot.holding(), np.int64)
        if not len(held):
            return
        since = float(np.nanmin(tasks.launched_at.take(held)))
        finished, past = np.flatnonzero(tasks.state.array() == TaskState.FINISHED), held[:0]
        for _ in range(_REPLAYED):
            past = finished[tasks.ended_at.take(finished) > since]
            since = float(tasks.launched_at.take(past).min(initial=since))
        past = past[snapshot.nodes.alive.take(tasks.node.take(past)) > 0]
        states = tasks.state.take(held)  # what is stopped, or moves, does so in the first round
        held = held[(states != TaskState.STOPPING) & (states != TaskState.MOVING)]
        rows = np.concatenate([past, held])
        runs = self._expected(rows)
        for index in np.lexsort((rows, tasks.launched_at.take(rows))).tolist():
            run = runs[index]
            run.past = index < len(past)
            self._read_until(run.launched_at)
            self._begin(run)
        self._read_until(self._now)

    def begin(self, tasks: Ints) -> list[ExpectedRun]:
        """Add the runs of some tasks, launched at the state's time, and return them."""
        runs = self._expected(tasks)
        for run in runs:
            self._begin(run)
        return runs

    def stop(self, tasks: Iterable[int]) -> None:
        """End the reading of runs that were preempted at the state's time."""
        for task in tasks:
            run = self._run_of.get(task)
            if run is not None and (transfer := run.transfer) is not None:
                self._network.abort(transfer, self._state.now)
                del self._reading[transfer]

    def under_way(self) -> list[ExpectedRun]:
        """Return the runs of the snapshot, before others begin."""
        return [run for run in self._run_of.values() if not run.past]

    def _new(self, task: int) -> ExpectedRun:
        state = self._state
        launched_at: float = state.tasks.launched_at[task]
        return ExpectedRun(
            task=task,
            attempt=state.tasks.attempts[task],
            launched_at=launched_at,
            origin=max(launched_at, self._now),
        )

    def _expected(self, tasks: Ints) -> list[ExpectedRun]:
        times, limits_s = self._estimates.compute_times(tasks), self._estimates.limit_s(tasks)
        runs = []
        for n, task in enumerate(tasks.tolist()):
            run = self._new(task)
            run.median_s, run.spread = float(times.median_s[n]), float(times.spread[n])
            if math.isnan(run.median_s):
                (run.median_s, run.spread), run.guessed = self._guess, True
            run.limit_s = float(limits_s[n]) - (run.origin - run.launched_at)
            run.computed_s = self._state.tasks.progress_s[task]
            node = self._state.tasks.node[task]
            run.speed = self._state.tasks.speed[task]
            run.reads = self._state.planned_reads(task, node) if node >= 0 else ()
            runs.append(run)
        return runs

    # --- time ------------------------------------------------------------------------------------

    def next_at(self, until: float = math.inf) -> float:
        """Return when the next runs end, `inf` if no end is known; past `until`, it is a guess.

        Reads end until then, or until `until`.
        """
        while True:
            while self._heap and not self._holds(self._heap[0][2]):
                heapq.heappop(self._heap)
            end = self._heap[0][0] if self._heap else math.inf
            completion = self._network.next_completion()
            if completion is None or completion[0] > min(end, until):
                return end
            self._read_done(*completion)

    def ended(self, at: float) -> list[ExpectedRun]:
        """Remove the runs that end until a time, which has come, and return them."""
        runs = []
        while self.next_at(at) <= at:
            _, _, run = heapq.heappop(self._heap)
            runs.append(run)
        return runs

    def read_so_far(self) -> None:
        """Set how long the runs that still read have read."""
        for run in self._reading.values():
            run.reads_s = max(0.0, self._state.now - run.origin)

    def _holds(self, run: ExpectedRun) -> bool:
        tasks = self._state.tasks
        return tasks.attempts[run.task] == run.attempt and tasks.state[run.task] in HOLDING

    def _push(self, at: float, run: ExpectedRun) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (at, self._pushed, run))

    # --- a run -----------------------------------------------------------------------------------

    def _begin(self, run: ExpectedRun) -> None:
        self._run_of[run.task] = run
        self._read(run, run.launched_at)

    def _read_until(self, at: float) -> None:
        while (done := self._network.next_completion()) is not None and done[0] <= at:
            self._read_done(*done)

    def _read_done(self, at: float, transfer: int) -> None:
        self._network.finish(transfer, at)
        run = self._reading.pop(transfer)
        run.read, run.transfer = run.read + 1, None
        self._read(run, at)

    def _read(self, run: ExpectedRun, at: float) -> None:
        """Begin a run's next read, or its computing after the last one."""
        if run.read == len(run.reads):
            self._compute(run, at)
            return
        read, self._started = run.reads[run.read], self._started + 1
        source = read.sources[0] if read.sources else None
        reader = self._state.node(self._state.tasks.node[run.task]).id
        self._reading[self._started], run.transfer = run, self._started
        self._network.start(self._started, reader, source, read.shard.size_bytes, at)

    def _compute(self, run: ExpectedRun, at: float) -> None:
        """Set the end of a run that computes from a time on, which may be past."""
        if run.past:
            return
        run.read_s = max(0.0, at - self._state.tasks.started_at[run.task])
        run.reads_s = max(0.0, at - run.origin)
        run.computed_s += max(0.0, run.origin - at) * run.speed
        takes_s = float(remaining_s([run], np.array([0.5]))[0])
        self._push(max(run.origin + takes_s, at), run)


def _longest_s(snapshot: Snapshot, now: float) -> float:
    """Return how long the oldest run under way has run."""
    launched_at = snapshot.tasks.launched_at.take(np.array(snapshot.holding(), np.int64))
    return max(_FIRST_S, now - float(launched_at.min(initial=now)))


def remaining_s(runs: Sequence[ExpectedRun], p: Floats, slower: Floats | float = 1.0) -> Floats:
    """Return how long runs take from their origins on, `[..., runs]`, in seconds.

    `p` are the quantiles of their computing times, `slower` the factors of their reading.
    """
    columns = [(r.median_s, r.spread, r.computed_s, r.speed, r.reads_s, r.limit_s) for r in runs]
    median_s, spread, computed_s, speed, reads_s, limit_s = np.array(columns).T
    left_s = ComputeTimes(median_s, spread).quantile(computed_s, p) - computed_s
    takes_s: Floats = np.fmin(reads_s * slower + left_s / speed, limit_s)
    return takes_s


def _network(snapshot: Snapshot) -> FluidNetwork:
    """Return the network that the measured bandwidths suggest.

    A rack's uplink carries for each of its nodes what one transfer to another rack can expect, in
    the rack with the most nodes; see `spec.cluster.expected`.
    """
    measured = snapshot.bandwidth
    nodes = [snapshot.node(row) for row in snapshot.live_nodes()]
    most = max(Counter(node.rack for node in nodes).values(), default=1)
    return FluidNetwork(
        {node.id: node.rack for node in nodes},
        disk_bytes_per_s=measured.disk_bytes_per_s,
        node_link_bytes_per_s=max(measured.rack_bytes_per_s, measured.cluster_bytes_per_s),
        rack_uplink_bytes_per_s=measured.cluster_bytes_per_s * most,
        aggregation_bytes_per_s=None,
    )
