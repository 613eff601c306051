"""`capacity` and `fair`: free GPUs are offered one at a time, to whoever uses least of its share.

Each free GPU goes to the queue that holds least for its weight, in it to the user who holds least,
of that user to the job whose turn it is: under `capacity` the first to arrive, under `fair` the one
that holds least; under both, higher priority goes first. Ties go to whoever came first. The job
then takes the best place that any of its tasks can have: on a node with the task's data, else in
such a node's rack, else anywhere. Nobody waits for a better place.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from headgate.base.rng import Random
from headgate.model import Job
from headgate.planning.cpu_tasks import place_cpu_tasks
from headgate.planning.feasible_starts import feasible_starts
from headgate.planning.standing import unsupported_feature
from headgate.policies.yarn.places import Gpus, places_of
from headgate.policies.yarn.refusals import Line, refusals
from headgate.ports import Policy, PolicyInfo
from headgate.protocol import Plan, Reason, Start, Steps
from headgate.protocol.reasons import PolicyRefuses
from headgate.state import Scratch, Snapshot

_Rank = tuple[int, int, int]
"""Whose turn it is among a user's jobs, the lowest first; last comes the job's row."""


class _Offers:
    """What both policies have in common."""

    name: str
    evenly: bool
    """Whether a user's jobs share evenly, rather than first come, first served."""

    def refuses(self, job: Job) -> Reason | None:
        """Refuse gangs and tasks of several GPUs, since GPUs are offered one at a time."""
        what = unsupported_feature(job)
        return None if what is None else PolicyRefuses(policy=self.name, what=what)

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        """Offer every free GPU; O(waiting tasks x replicas + GPUs placed x users)."""
        del rng
        return _Round(snapshot, self.name, evenly=self.evenly).run()


class Capacity(_Offers):
    """The policy `capacity`: an equal share for every user, first come first served within it."""

    name = "capacity"
    evenly = False


class Fair(_Offers):
    """The policy `fair`: an equal share for every user, shared evenly between the user's jobs."""

    name = "fair"
    evenly = True


class _Round:
    """One round: what everyone holds, on paper too, and the lines that still take offers."""

    def __init__(self, snapshot: Snapshot, name: str, *, evenly: bool) -> None:
        self._snapshot, self._name, self._evenly = snapshot, name, evenly
        self._gpus = Gpus(snapshot)
        self._starts: list[Start] = []
        jobs = snapshot.jobs
        self._queue_held = dict(enumerate(snapshot.gpus_of_queues().tolist()))
        self._user_held: dict[Line, int] = {}
        self._job_held: dict[int, int] = {}
        held = snapshot.gpus_of_jobs()
        for row in held.nonzero()[0].tolist():
            self._job_held[row] = int(held[row])
            line = jobs.queue[row], jobs.user[row]
            self._user_held[line] = self._user_held.get(line, 0) + int(held[row])

        self._lines: dict[Line, list[_Rank]] = {}  # heaps
        self._first: dict[int, int] = {}  # by queue: its first waiting job
        self._places: dict[int, Iterator[tuple[int, int]]] = {}  # by job: (task, GPU), best first
        self._strangers: list[int] = []
        for row in snapshot.waiting_jobs():
            if unsupported_feature(snapshot.job(row)) is not None:
                self._strangers.append(row)
            elif jobs.waiting[row]:
                queue = jobs.queue[row]
                self._first.setdefault(queue, row)
                self._lines.setdefault((queue, jobs.user[row]), []).append(self._rank(row))
        for waiting in self._lines.values():
            heapq.heapify(waiting)

    def run(self) -> Plan:
        """Make every offer, and tell the rest why it waits."""
        scratch = Scratch(self._snapshot)
        waiting_for_cpus = place_cpu_tasks(scratch)
        everybody = {line: [rank[-1] for rank in sorted(r)] for line, r in self._lines.items()}
        open_lines = {line: min(rows) for line, rows in everybody.items()}
        while self._gpus.left and open_lines:
            line = min(open_lines, key=lambda each: self._standing(each, open_lines[each]))
            if self._full(line[0]) or not self._offer(line):
                del open_lines[line]
        explained = refusals(
            self._name,
            self._snapshot,
            lines=everybody,
            in_line=not self._evenly,
            strangers=self._strangers,
            placed=self._starts,
        )
        placed, short = feasible_starts(scratch, Steps.of(self._starts))
        return Plan(
            steps=scratch.steps() + placed,
            refusals=(*waiting_for_cpus, *short, *explained),
        )

    def _standing(self, line: Line, first: int) -> tuple[float, int, int, int]:
        """Rank a user: by what its queue holds for its weight, then by what it holds itself."""
        queue, _ = line
        for_weight = self._queue_held[queue] / self._snapshot.queue(queue).weight
        return for_weight, self._first[queue], self._user_held.get(line, 0), first

    def _full(self, queue: int) -> bool:
        limit = self._snapshot.queue(queue).max_gpus
        return limit is not None and self._queue_held[queue] >= limit

    def _rank(self, job: int) -> _Rank:
        held = self._job_held.get(job, 0) if self._evenly else 0
        return -self._snapshot.jobs.priority[job], held, job

    def _offer(self, line: Line) -> bool:
        """Offer a GPU to a user's jobs in turn; say whether one of them took it."""
        waiting = self._lines[line]
        while waiting:
            job = waiting[0][-1]
            if job not in self._places:
                self._places[job] = places_of(self._snapshot, job, self._gpus)
            place = next(self._places[job], None)
            if place is None:  # what is free only shrinks: nothing will fit in this round
                heapq.heappop(waiting)
                continue
            self._starts.append(self._gpus.take(*place))
            self._queue_held[line[0]] += 1
            self._user_held[line] = self._user_held.get(line, 0) + 1
            self._job_held[job] = self._job_held.get(job, 0) + 1
            heapq.heapreplace(waiting, self._rank(job))
            return True
        return False


def _make_capacity() -> Policy:
    return Capacity()


def _make_fair() -> Policy:
    return Fair()


CAPACITY = PolicyInfo(
    name="capacity",
    idea="every user an equal share, first come first served within it; near the data where free",
    source="Apache Hadoop YARN: Capacity Scheduler",
    parameters=(),
    make=_make_capacity,
)
FAIR = PolicyInfo(
    name="fair",
    idea="every user an equal share, evenly between the user's jobs; near the data where free",
    source="Apache Hadoop YARN: Fair Scheduler",
    parameters=(),
    make=_make_fair,
)
