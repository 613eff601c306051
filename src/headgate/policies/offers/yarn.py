"""`capacity` and `fair`: free GPUs are offered one at a time, by queue, user and job.

Each free GPU goes to the queue that holds fewest relative to its weight, in it to the user who
holds fewest, of that user to one job: under `capacity` the first to arrive, under `fair` the one
that holds fewest; under both, higher priority goes first. Ties go to the earliest job. The job then
takes the best GPU for any of its tasks: on a node with the task's data, else in such a node's rack,
else anywhere. No job declines a GPU to wait for a nearer one. A job with multi-GPU units places one
of these first, by first fit or a placer; GPUs are kept free for the first one in line, see
`planning.place.line`. For that, a user's share of the GPUs is divided among the user's jobs: in
order under `capacity`, evenly under `fair`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np

from headgate.base.arrays import Ints
from headgate.base.rng import Random
from headgate.model import WHOLE
from headgate.planning.place.choose import Placer
from headgate.planning.place.choose.setting import PlacingPolicy
from headgate.planning.place.cpu_tasks import place_cpu_tasks
from headgate.planning.place.feasible_starts import feasible_starts, place_elsewhere
from headgate.planning.place.line import Line
from headgate.planning.place.multi_gpu import MultiGpuUnits
from headgate.planning.shares.queue_tree import queue_tree
from headgate.planning.shares.standing import Standing, standing_of
from headgate.policies.offers.cpu_turns import CpuTurns
from headgate.policies.offers.places import FreeGpusByPlace, places_of
from headgate.policies.offers.yarn_refusals import UserQueue, refusals
from headgate.protocol import NO_STEPS, Plan, Refusal, Start, Steps
from headgate.state import Scratch, Snapshot
from headgate.state.quotas import Quotas, gpus_alone

_Rank = tuple[int, int, int]
"""The order of a user's jobs, the lowest first: -priority, GPUs held under `fair`, row."""


class _Offers(PlacingPolicy):
    """The common part of both policies."""

    name: str
    evenly: bool
    """Whether a user's jobs share evenly, rather than first come, first served."""

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        """Offer every free GPU; O(waiting tasks x replicas + GPUs placed x users)."""
        del rng
        return _Round(snapshot, self.placer, evenly=self.evenly).run()


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

    def __init__(self, snapshot: Snapshot, placer: Placer | None, *, evenly: bool) -> None:
        self._snapshot, self._evenly, self._placer = snapshot, evenly, placer
        self._scratch = Scratch(snapshot)
        self._starts: list[Start] = []  # of tasks on one whole GPU
        self._lacking: list[int] = []  # of these, tasks whose node lacks another resource
        self._standing = standing_of(snapshot)
        self._gpus = FreeGpusByPlace(snapshot, self._standing)
        self._index = {row: index for index, row in enumerate(self._standing.jobs.tolist())}
        self._multi_gpu = MultiGpuUnits(self._scratch, self._standing, placer)
        self._line = Line(self._scratch, self._standing, self._multi_gpu)
        self._open_jobs = set(
            self._standing.jobs[self._standing.multi_gpu_jobs].tolist()
        )  # units may fit
        self._has_multi_gpu = bool(self._open_jobs)
        self._share = (
            _shares(self._standing, evenly=evenly) if self._has_multi_gpu else self._standing.held
        )
        jobs = snapshot.jobs
        self._quotas = Quotas(snapshot)
        self._user_milli: dict[UserQueue, int] = {}
        self._job_milli: dict[int, int] = {}
        held_milli = jobs.held_gpus_milli.array()
        for row in held_milli.nonzero()[0].tolist():
            milli = self._job_milli[row] = int(held_milli[row])
            user_queue = jobs.queue[row], jobs.user[row]
            self._user_milli[user_queue] = self._user_milli.get(user_queue, 0) + milli

        self._kept = self._quotas.without_use()  # room for the first in line
        nothing = np.zeros(len(self._quotas.parent), np.int64)
        self._guaranteed = queue_tree(self._quotas.rows, nothing).guaranteed
        self._user_queues: dict[UserQueue, list[_Rank]] = {}  # heaps of waiting jobs
        self._first: dict[int, int] = {}  # by queue: its first waiting job
        self._places: dict[int, Iterator[tuple[int, int]]] = {}  # by job: (task, GPU), best first
        for row in snapshot.waiting_jobs():
            if jobs.waiting[row]:
                queue = jobs.queue[row]
                for above in self._quotas.above(queue):
                    self._first.setdefault(above, row)
                self._user_queues.setdefault((queue, jobs.user[row]), []).append(self._rank(row))

    def run(self) -> Plan:
        """Offer all free GPUs and return the plan, with the refusals of the tasks left."""
        scratch = self._scratch
        turns = CpuTurns(self._snapshot, evenly=self._evenly)
        waiting_for_cpus = place_cpu_tasks(scratch, self._placer, turns)
        self._serve_line()
        for ranks in self._user_queues.values():
            ranks[:] = [self._rank(rank[-1]) for rank in ranks]
            heapq.heapify(ranks)
        jobs_of = {user: [rank[-1] for rank in sorted(r)] for user, r in self._user_queues.items()}
        open_users = {user: min(rows) for user, rows in jobs_of.items()}
        while open_users and (self._gpus.left or self._open_jobs):
            user_queue = min(open_users, key=lambda each: self._user_rank(each, open_users[each]))
            if not self._room_milli(open_users[user_queue]) or not self._offer(user_queue):
                del open_users[user_queue]
        placed, short = self._checked()
        explained = refusals(
            self._standing,
            user_queues={u: [(j, self._tasks(j)) for j in jobs] for u, jobs in jobs_of.items()},
            fifo_within_user=not self._evenly,
            placed=(*self._starts, *scratch.starts),
            line=self._line,
        )
        self._line.end()
        return Plan(
            steps=scratch.steps() + placed,
            node_memo=scratch.node_memos(),
            memo=self._line.memo(),
            refusals=(
                *waiting_for_cpus,
                *short,
                *self._multi_gpu.refusals(self._line.why_row),
                *explained,
            ),
        )

    def _serve_line(self) -> None:
        """Let the first in line choose before all other jobs."""
        below = np.zeros(len(self._standing.jobs), bool)
        for job in self._open_jobs:
            below[self._index[job]] = self._below_share(job)
        for index in self._line.in_order(below):
            job = int(self._standing.jobs[index])
            self._count(job, self._place_unit(job) or 0)

    def _below_share(self, job: int) -> bool:
        held = _gpus(self._job_milli.get(job, 0))
        return bool(held < self._share[self._index[job]])

    def _checked(self) -> tuple[Steps, list[Refusal]]:
        """Return the starts whose demands fit their nodes, and the refusals of the others."""
        chosen = {start.task for start in self._starts}
        others = (task for task in self._standing.task.tolist() if task not in chosen)
        if self._has_multi_gpu:  # they are in the scratch already
            return NO_STEPS, place_elsewhere(self._scratch, self._lacking, others)
        return feasible_starts(self._scratch, Steps.of(self._starts), others)

    def _tasks(self, job: int) -> list[int]:
        """Return the rows of a job's waiting tasks on one whole GPU, ascending."""
        index = self._index[job]
        first, end = np.searchsorted(self._standing.task_job, (index, index + 1))
        tasks: list[int] = self._standing.task[first:end].tolist()
        return tasks

    def _user_rank(self, user_queue: UserQueue, first: int) -> tuple[object, ...]:
        """Return a user's place in the order: GPUs that its queue holds by weight, then its own.

        Of a tree, first those of the queues at the top. Those that hold less than they are
        guaranteed come before all their siblings, by the part that they hold.
        """
        ranks: list[tuple[float, float, int]] = []
        for queue in reversed(self._quotas.above(user_queue[0])):
            held, guaranteed = _gpus(self._quotas.used(queue)), self._guaranteed[queue]
            below = held < guaranteed
            over = guaranteed if below else self._snapshot.queue(queue).weight
            ranks.append((0.0 if below else 1.0, held / over, self._first[queue]))
        return *ranks, (0.0, _gpus(self._user_milli.get(user_queue, 0)), first)

    def _room_milli(self, job: int) -> int:
        """Return the thousandths of GPUs that the queue of a job, and its user, may hold more."""
        return max(0, int(self._quotas.room_milli(self._kept)[self._quotas.row_of(job)]))

    def _rank(self, job: int) -> _Rank:
        held = _gpus(self._job_milli.get(job, 0)) if self._evenly else 0
        return -self._snapshot.jobs.priority[job], held, job

    def _offer(self, user_queue: UserQueue) -> bool:
        """Offer GPUs to a user's jobs in order; return whether one of them took some."""
        waiting = self._user_queues[user_queue]
        while waiting:
            job = waiting[0][-1]
            milli = self._place_unit(job)
            if milli is None:
                milli = self._place_task(job)
            if milli is None:  # free GPUs are only taken: none will fit in this round
                heapq.heappop(waiting)
                continue
            self._count(job, milli)
            heapq.heapreplace(waiting, self._rank(job))
            return True
        return False

    def _count(self, job: int, milli: int) -> None:
        """Count thousandths of GPUs as held by a job, its user and its queue."""
        queue, user = self._snapshot.jobs.queue[job], self._snapshot.jobs.user[job]
        self._quotas.add(self._quotas.row_of(job), gpus_alone(milli))
        self._user_milli[queue, user] = self._user_milli.get((queue, user), 0) + milli
        self._job_milli[job] = self._job_milli.get(job, 0) + milli

    def _place_unit(self, job: int) -> int | None:
        """Place a multi-GPU unit of a job; return its thousandths of GPUs, None if none fits."""
        if job not in self._open_jobs:
            return None
        before, line = len(self._scratch.starts), self._line
        room_milli, kept = self._room_milli(job), line.kept
        below_share = self._below_share(job)
        milli = line.offer(self._index[job], room_milli, below_share=below_share)
        if line.kept is not kept:
            self._gpus.remove_nodes(line.kept)
            self._kept.add(self._quotas.row_of(job), gpus_alone(line.kept_milli))
        if milli is not None:
            self._gpus.remove(self._scratch.starts[before:])
        else:
            self._open_jobs.discard(job)
        return milli

    def _place_task(self, job: int) -> int | None:
        """Place a task of a job on one whole GPU; return its thousandths, None if none fits."""
        if self._room_milli(job) < WHOLE:
            return None
        if job not in self._places:
            self._places[job] = places_of(self._snapshot, self._tasks(job), self._gpus)
        place = next(self._places[job], None)
        if place is None:
            return None
        start = self._gpus.take(*place)
        self._starts.append(start)
        if self._has_multi_gpu and not self._scratch.place(*start):
            self._lacking.append(start.task)
        return WHOLE


def _shares(standing: Standing, *, evenly: bool) -> Ints:
    """Return each job's part of its user's fair share of the GPUs, `[jobs]`.

    Without `evenly`, jobs of higher priority, and earlier ones, get all that their tasks use first.
    """
    shares = standing.fair_shares().copy()
    if evenly:
        return shares
    jobs, users = standing.snapshot.jobs, dict[UserQueue, list[tuple[int, int]]]()
    for index, row in enumerate(standing.jobs.tolist()):
        of_user = users.setdefault((jobs.queue[row], jobs.user[row]), [])
        of_user.append((-jobs.priority[row], index))
    for of_user in users.values():
        left = int(shares[[index for _, index in of_user]].sum())
        for _, index in sorted(of_user):
            shares[index] = min(left, int(standing.unfinished[index].sum()))
            left -= int(shares[index])
    return shares


def _gpus(milli: int) -> int:
    """Return thousandths of GPUs in GPUs, parts of one rounded up."""
    return -(-milli // WHOLE)
