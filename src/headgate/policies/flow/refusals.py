"""Stage 5 of a round, on demand: why tasks still wait, one reason per group of jobs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise

import numpy as np

from headgate.base.arrays import Ints
from headgate.model import WHOLE, Demand
from headgate.planning.place.limits import ONE_GPU, queue_limit, share_reason
from headgate.planning.place.why import no_free_gpu, no_gpu_of_type
from headgate.policies.flow.eligible import Round
from headgate.policies.flow.options import cheapest_free
from headgate.policies.flow.placed import Placed
from headgate.policies.flow.problem import OfferedTasks, problem_with
from headgate.protocol import Reason, Refusal
from headgate.protocol.reasons import WaitsForLocality
from headgate.state.quotas import Quotas, gpus_alone

# The limit of a job: the first of these that applies.
_NO_SUCH_GPU, _CEILING, _LOCALITY, _NO_FIT, _SHARE, _BELOW, _BUSY = range(7)


def refusals(
    round_: Round, starts: Placed, wait_price: Ints, backfilled: Placed | None, placed: Ints
) -> Iterator[Refusal]:
    """Yield the refusals of the tasks that still wait, one per reason.

    `starts` are the tasks that start now, as indices into `Standing.task`; `wait_price` is the
    price of waiting, `[jobs]`, in microseconds. `backfilled` are all starts, if some are not on
    slots of the flow; `placed` are rows of tasks that start on other nodes, or in place of others.
    """
    after = _After(round_, starts, wait_price, backfilled or starts, placed)
    groups: dict[Reason, list[int]] = {}
    for jobs in after.by_reason():
        groups.setdefault(after.reason(jobs[0]), []).extend(jobs)
    rows = round_.standing.jobs.tolist()
    for reason, jobs in groups.items():
        yield Refusal(reason=reason, jobs=tuple(rows[job] for job in jobs))


def _cheapest(round_: Round, tasks: Ints, free: Ints) -> Ints:
    """Return each job's cheapest price of one of `tasks` on a free GPU, `[jobs]`, microseconds.

    `tasks` are indices into `Standing.task`; `free` is `[nodes, classes]`; the largest int64 stands
    for no such GPU.
    """
    able = tasks[round_.tasks.eligible[tasks]]
    by_group = cheapest_free(problem_with(round_, able, OfferedTasks()), free)
    return by_group[round_.entitled.group]


class _After:
    """The state after the starts of a round; jobs are indices into `Standing.jobs`."""

    def __init__(
        self, round_: Round, on_slots: Placed, wait_price: Ints, starts: Placed, placed: Ints
    ) -> None:
        """`on_slots` are the starts on the slots of the flow, `starts` and `placed` all."""
        standing, entitled = round_.standing, round_.entitled
        group, most = entitled.group, entitled.most
        self._standing, self._target = standing, entitled.target
        self._wait = wait_price
        self._is_left = np.ones(len(standing.task), bool)
        self._is_left[starts.task] = False
        self._is_left[np.isin(standing.task, placed)] = False
        waiting, classes = standing.every_waiting, len(standing.class_bytes)
        gone = np.flatnonzero(~self._is_left)
        cell = standing.task_job[gone] * waiting.shape[1] + standing.task_type[gone]
        started = np.bincount(cell, minlength=waiting.size).reshape(waiting.shape)
        left = waiting > started
        self._left = left.any(axis=1)
        won, queues = started.sum(axis=1), len(standing.tree.most)
        self._holds = standing.held + won
        self._queue_won = np.bincount(standing.queue, won, queues).astype(np.int64)

        taken = np.bincount(
            on_slots.node * classes + on_slots.gpu_class, minlength=standing.free.size
        )
        free = standing.free - taken.reshape(standing.free.shape)
        self._free = free.sum(axis=0)
        fits = np.append(standing.types_on(self._free), False)
        self._type = (left * (1 + fits)).argmax(axis=1)  # the first that fits, else the first
        self._fits = fits[self._type]
        won_by_group = np.bincount(group, won, len(most))
        self._held_back = (won_by_group < most)[group]
        self._move = np.full(len(standing.jobs), np.iinfo(np.int64).max)
        if self._free.any() and self._held_back.any():
            waits = np.flatnonzero(self._held_back[standing.task_job] & self._is_left)
            self._move = _cheapest(round_, waits, free)
        self._ahead = self._furthest_ahead()
        self._cases = self._bound_by()

    def _furthest_ahead(self) -> list[int]:
        """Return the two jobs that hold most above their share, or exactly it, furthest first."""
        over = self._holds - self._target
        rows = np.flatnonzero((self._holds > 0) & (over >= 0))
        furthest: list[int] = rows[np.lexsort((-self._holds[rows], -over[rows]))][:2].tolist()
        return furthest

    def _bound_by(self) -> Ints:
        """Return the limit of each job, `[jobs]`."""
        standing, fits, some = self._standing, self._fits, bool(self._free.any())
        by_model = self._type >= len(standing.kinds.memories)
        led, over = np.full(len(standing.jobs), False), np.full(len(standing.jobs), False)
        for job in self._ahead[::-1]:
            others = np.arange(len(standing.jobs)) != job
            led |= others
            over[others] = self._holds[job] > self._target[job]
        bound = np.full(len(standing.jobs), _BUSY)
        if not some:
            bound[over] = _BELOW
        bound[(self._holds >= self._target) & led] = _SHARE
        bound[~fits & (by_model | some)] = _NO_FIT
        bound[self._held_back & fits] = _LOCALITY
        quotas, queues = self._quotas, np.unique(standing.queue)
        full = [row for row in queues.tolist() if quotas.at_limit(row, ONE_GPU) is not None]
        bound[np.isin(standing.queue, full)] = _CEILING
        bound[self._type == len(standing.accepts)] = _NO_SUCH_GPU
        return bound

    def by_reason(self) -> list[list[int]]:
        """Return the jobs that have tasks left waiting, grouped by equal reasons."""
        jobs = np.flatnonzero(self._left)
        case = self._cases[jobs]
        first, second = np.zeros((2, len(jobs)), np.int64)  # the numbers in a job's reason
        of_others = (case == _SHARE) | (case == _BELOW)
        for which, of_first, of_second in (
            (of_others, self._holds, self._target),
            (case == _LOCALITY, self._move, self._wait),
            (case == _CEILING, self._standing.queue, self._standing.queue),
        ):
            first[which], second[which] = of_first[jobs[which]], of_second[jobs[which]]
        needs: dict[tuple[int, tuple[str, ...]], int] = {}
        for nth in np.flatnonzero((case == _NO_SUCH_GPU) | (case == _NO_FIT)).tolist():
            demand = self._demand(int(jobs[nth]))
            need = demand.gpu_memory_bytes, demand.gpu_models
            first[nth] = needs.setdefault(need, len(needs))
        for job in self._ahead[:1]:
            case[of_others & (jobs == job)] += _BUSY + 1  # another one is ahead of it
        order = np.lexsort((second, first, case))  # stable: jobs with the same reason ascend
        other = np.zeros(len(jobs), bool)
        other[:1] = True
        for column in (first, second, case):
            ranked = column[order]
            other[1:] |= ranked[1:] != ranked[:-1]
        begins, members = [*np.flatnonzero(other).tolist(), len(jobs)], jobs[order].tolist()
        return sorted(members[begin:end] for begin, end in pairwise(begins))

    def _demand(self, job: int) -> Demand:
        """Return the demand of a waiting task of a job, of its first type, for least GPU memory."""
        standing = self._standing
        first, end = np.searchsorted(standing.task_job, (job, job + 1)).tolist()
        of_type = standing.task_type[first:end] == self._type[job]
        left = first + np.flatnonzero(self._is_left[first:end] & of_type)
        return standing.snapshot.demand(
            int(standing.task[left[standing.memory_bytes_of(left).argmin()]])
        )

    def reason(self, job: int) -> Reason:
        """Return the reason why tasks of a job are left waiting."""
        standing, case = self._standing, int(self._cases[job])
        if case in (_NO_SUCH_GPU, _NO_FIT):
            return no_gpu_of_type(standing, int(self._type[job]), self._demand(job), self._free)
        if case == _CEILING:
            return self._queue_limit(int(standing.queue[job]))
        if case == _LOCALITY:
            move, wait = int(self._move[job]), int(self._wait[job])
            return WaitsForLocality(move_s=move / 1e6, wait_s=wait / 1e6)
        if case == _BUSY:
            return no_free_gpu(int(self._free.sum()), int(standing.gpus.sum()))
        return self._less_than_others(job)

    def _less_than_others(self, job: int) -> Reason:
        holds, target, furthest = self._holds, self._target, self._furthest_but(job)
        return share_reason(
            self._standing.snapshot,
            held=int(holds[job]),
            share=int(target[job]),
            ahead=int(self._standing.jobs[furthest]),
            over=int(holds[furthest] - target[furthest]),
        )

    def _furthest_but(self, job: int) -> int:
        return next(other for other in self._ahead if other != job)

    def _queue_limit(self, queue: int) -> Reason:
        return queue_limit(self._standing.snapshot, self._quotas, queue)

    @cached_property
    def _quotas(self) -> Quotas:
        """Return what queues hold with what they won, and their limits."""
        quotas = Quotas(self._standing.snapshot)
        for row, gpus in enumerate(self._queue_won.tolist()):
            quotas.add(row, gpus_alone(WHOLE * gpus))
        return quotas
