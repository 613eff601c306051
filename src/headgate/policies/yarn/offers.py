"""`capacity` and `fair`: free GPUs are offered one at a time, by queue, user and job.

Each free GPU goes to the queue that holds fewest relative to its weight, in it to the user who
holds fewest, of that user to one job: under `capacity` the first to arrive, under `fair` the one
that holds fewest; under both, higher priority goes first. Ties go to the earliest job. The job then
takes the best GPU for any of its tasks: on a node with the task's data, else in such a node's rack,
else anywhere. No job declines a GPU to wait for a nearer one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from headgate.base.rng import Random
from headgate.model import Job
from headgate.planning.cpu_tasks import place_cpu_tasks
from headgate.planning.feasible_starts import feasible_starts
from headgate.planning.unsupported import (
    refuse_unsupported,
    unsupported_feature,
    unsupported_refusals,
)
from headgate.policies.yarn.places import FreeGpus, places_of
from headgate.policies.yarn.refusals import UserQueue, refusals
from headgate.ports import PolicyInfo
from headgate.protocol import Plan, Reason, Start, Steps
from headgate.state import Scratch, Snapshot

_Rank = tuple[int, int, int]
"""The order of a user's jobs, the lowest first: -priority, GPUs held under `fair`, row."""


class _Offers:
    """The common part of both policies."""

    name: str
    evenly: bool
    """Whether a user's jobs share evenly, rather than first come, first served."""

    def refuses(self, job: Job) -> Reason | None:
        """Refuse what `planning.unsupported` names, since GPUs are offered one at a time."""
        return refuse_unsupported(self.name, job)

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
    """One round: the GPUs held, tentative ones included, and the users with waiting jobs."""

    def __init__(self, snapshot: Snapshot, name: str, *, evenly: bool) -> None:
        self._snapshot, self._name, self._evenly = snapshot, name, evenly
        self._gpus = FreeGpus(snapshot)
        self._starts: list[Start] = []
        jobs = snapshot.jobs
        self._queue_held = dict(enumerate(snapshot.gpus_of_queues().tolist()))
        self._user_held: dict[UserQueue, int] = {}
        self._job_held: dict[int, int] = {}
        held = snapshot.gpus_of_jobs()
        for row in held.nonzero()[0].tolist():
            self._job_held[row] = int(held[row])
            user_queue = jobs.queue[row], jobs.user[row]
            self._user_held[user_queue] = self._user_held.get(user_queue, 0) + int(held[row])

        self._user_queues: dict[UserQueue, list[_Rank]] = {}  # heaps of waiting jobs
        self._first: dict[int, int] = {}  # by queue: its first waiting job
        self._places: dict[int, Iterator[tuple[int, int]]] = {}  # by job: (task, GPU), best first
        self._unsupported: list[int] = []
        for row in snapshot.waiting_jobs():
            if unsupported_feature(snapshot.job(row)) is not None:
                self._unsupported.append(row)
            elif jobs.waiting[row]:
                queue = jobs.queue[row]
                self._first.setdefault(queue, row)
                self._user_queues.setdefault((queue, jobs.user[row]), []).append(self._rank(row))
        for waiting in self._user_queues.values():
            heapq.heapify(waiting)

    def run(self) -> Plan:
        """Offer all free GPUs and return the plan, with the refusals of the tasks left."""
        scratch = Scratch(self._snapshot)
        waiting_for_cpus = place_cpu_tasks(scratch)
        jobs_of = {user: [rank[-1] for rank in sorted(r)] for user, r in self._user_queues.items()}
        open_users = {user: min(rows) for user, rows in jobs_of.items()}
        while self._gpus.left and open_users:
            user_queue = min(open_users, key=lambda each: self._user_rank(each, open_users[each]))
            if self._at_ceiling(user_queue[0]) or not self._offer(user_queue):
                del open_users[user_queue]
        explained = refusals(
            self._snapshot,
            user_queues=jobs_of,
            fifo_within_user=not self._evenly,
            placed=self._starts,
        )
        placed, short = feasible_starts(scratch, Steps.of(self._starts))
        return Plan(
            steps=scratch.steps() + placed,
            refusals=(
                *waiting_for_cpus,
                *short,
                *unsupported_refusals(self._name, self._snapshot, self._unsupported),
                *explained,
            ),
        )

    def _user_rank(self, user_queue: UserQueue, first: int) -> tuple[float, int, int, int]:
        """Return a user's place in the order: GPUs that its queue holds by weight, then its own."""
        queue, _ = user_queue
        by_weight = self._queue_held[queue] / self._snapshot.queue(queue).weight
        return by_weight, self._first[queue], self._user_held.get(user_queue, 0), first

    def _at_ceiling(self, queue: int) -> bool:
        limit = self._snapshot.queue(queue).max_gpus
        return limit is not None and self._queue_held[queue] >= limit

    def _rank(self, job: int) -> _Rank:
        held = self._job_held.get(job, 0) if self._evenly else 0
        return -self._snapshot.jobs.priority[job], held, job

    def _offer(self, user_queue: UserQueue) -> bool:
        """Offer a GPU to a user's jobs in order; return whether one of them took it."""
        waiting = self._user_queues[user_queue]
        while waiting:
            job = waiting[0][-1]
            if job not in self._places:
                self._places[job] = places_of(self._snapshot, job, self._gpus)
            place = next(self._places[job], None)
            if place is None:  # free GPUs are only taken: none will fit in this round
                heapq.heappop(waiting)
                continue
            self._starts.append(self._gpus.take(*place))
            self._queue_held[user_queue[0]] += 1
            self._user_held[user_queue] = self._user_held.get(user_queue, 0) + 1
            self._job_held[job] = self._job_held.get(job, 0) + 1
            heapq.heapreplace(waiting, self._rank(job))
            return True
        return False


CAPACITY = PolicyInfo(
    name="capacity",
    idea="every user an equal share, first come first served within it; near the data where free",
    source="Apache Hadoop YARN: Capacity Scheduler",
    parameters=(),
    make=Capacity,
)
FAIR = PolicyInfo(
    name="fair",
    idea="every user an equal share, evenly between the user's jobs; near the data where free",
    source="Apache Hadoop YARN: Fair Scheduler",
    parameters=(),
    make=Fair,
)
