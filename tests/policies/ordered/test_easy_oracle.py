"""`easy-backfill` on a pool of equal GPUs against EASY backfilling by counts of GPUs."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases
from tests.policies.ordered.pools import job_of, simulated

from headgate.app import POLICIES
from headgate.base.rng import Random
from headgate.model import Job, Queue
from headgate.planning.times.estimates import Estimates
from headgate.ports import make_policy
from headgate.protocol import Plan, Reason
from headgate.state import Snapshot
from headgate.state.runtimes import SHORTEST_S

Waiting = tuple[int, float]  # GPUs, expected run time
Running = tuple[int, float]  # GPUs, expected end


def easy(now: float, free: int, running: list[Running], waiting: list[Waiting]) -> list[int]:
    """Return which of the waiting jobs start, by definition: counts of GPUs, no identities."""
    starts: list[int] = []
    running = list(running)
    left = list(enumerate(waiting))
    while left and left[0][1][0] <= free:
        index, (gpus, run_s) = left.pop(0)
        free -= gpus
        running.append((gpus, now + run_s))
        starts.append(index)
    if not left:
        return starts
    (_, (width, _)), *rest = left
    ends = sorted({end for _, end in running})
    at = {end: free + sum(g for g, e in running if e <= end) for end in ends}
    shadow = next(end for end in ends if at[end] >= width)
    extra = at[shadow] - width
    for index, (gpus, run_s) in rest:
        in_time = not math.isinf(run_s) and now + run_s <= shadow
        if gpus <= free and (in_time or gpus <= extra):
            free -= gpus
            extra -= 0 if in_time else gpus
            starts.append(index)
    return starts


# ------------------------------------------------------------------------- every decision of a run


class Checked:
    """A policy all of whose decisions are compared with `easy`, given the same estimates.

    Or given the times that jobs declare: a run beyond its own takes the overdue time once more.
    """

    name = "easy-backfill"

    def __init__(self, declared: Mapping[str, float] | None = None) -> None:
        self._policy, self._declared = make_policy(POLICIES, self.name), declared
        self.backfilled = 0

    def refuses(self, job: Job) -> Reason | None:
        return self._policy.refuses(job)

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        plan = self._policy.decide(snapshot, rng)
        jobs = list(snapshot.waiting_jobs())
        expected = [jobs[index] for index in self._expected(snapshot, jobs)]
        assert [snapshot.tasks.job[task] for task in plan.starts.task.tolist()] == expected
        self.backfilled += expected != jobs[: len(expected)]
        return plan

    def _expected(self, snapshot: Snapshot, jobs: list[int]) -> list[int]:
        rows = snapshot.jobs
        held = [t for t in range(len(snapshot.tasks.state)) if snapshot.held_gpus(t)]
        gpus = [len(snapshot.held_gpus(task)) for task in held]
        ends, takes = self._times(snapshot, held, [rows.first_task[job] for job in jobs])
        waiting = [
            (rows.unit_gpus_milli[job] // 1000, s) for job, s in zip(jobs, takes, strict=True)
        ]
        free = snapshot.nodes.free_gpus[0]
        return easy(snapshot.now, free, list(zip(gpus, ends, strict=True)), waiting)

    def _times(
        self, snapshot: Snapshot, held: list[int], waiting: list[int]
    ) -> tuple[list[float], list[float]]:
        """Return the expected ends of runs, and the expected run times of tasks that wait."""
        if self._declared is None:
            estimates = Estimates(snapshot)
            ends = estimates.end_at(np.array(held, np.int64)).tolist() if held else []
            takes = estimates.run_s(np.array(waiting, np.int64)).tolist()
            return ends, [math.inf if math.isnan(s) else s for s in takes]
        declared = {
            task: self._declared[snapshot.job(snapshot.tasks.job[task]).id]
            for task in (*held, *waiting)
        }
        ends = []
        for task in held:
            started_at = snapshot.tasks.started_at[task]
            ran_s = 0.0 if math.isnan(started_at) else snapshot.now - started_at
            began_at = snapshot.now if math.isnan(started_at) else started_at
            ends.append(began_at + max(declared[task], 2 * ran_s - declared[task]))
        return ends, [declared[task] for task in waiting]


@pytest.mark.parametrize("kind", ["exact", "declared", "corrected", "learnt", "mixed", "limits"])
def test_every_decision_is_that_of_easy_backfilling(kind: str) -> None:
    backfilled = 0
    for seed in range(cases(8)):
        rng = Random(seed)
        pool, jobs = rng.randint(1, 12), []
        for number in range(rng.randint(1, 40)):
            run_s = rng.choice((0.0, 1.0, 2.0, 5.0, 5.0, 20.0, rng.uniform(0.1, 30.0)))
            wrong = rng.choice((0.0, 0.3, 1.0, 1.0, 2.0, 7.0)) * run_s
            declared = {"exact": run_s, "declared": wrong, "corrected": wrong}.get(kind)
            if kind == "mixed":
                declared = rng.choice((None, run_s, wrong))
            limit = run_s + rng.choice((0.5, 9.0)) if kind == "limits" else None
            job = job_of(number, rng.randint(1, pool), run_s, declared=declared, limit_s=limit)
            jobs.append((float(rng.randint(0, 30)), job))
        policy, queue = Checked(), Queue(name="q")
        if kind == "declared":  # as in the file, whatever runs have taken
            policy = Checked({job.id: max(job.estimated_s or 0.0, SHORTEST_S) for _, job in jobs})
            queue = Queue(name="q", estimate="declared")
        arriving = sorted(jobs, key=lambda each: each[0])
        starts = simulated(pool, arriving, policy, queues=(queue,))
        assert all(len(times) == 1 for times in starts.values())
        backfilled += policy.backfilled
    assert backfilled > 10


# ---------------------------------------------------------------------- whole runs, exact estimates


def replayed(pool: int, work: list[tuple[float, int, float]]) -> dict[int, float]:
    """Return when each (submission, GPUs, run time) starts, by a loop over instants."""
    starts: dict[int, float] = {}
    ends: list[tuple[float, int]] = []
    arrivals = sorted(range(len(work)), key=lambda n: (work[n][0], n))
    queue: list[int] = []
    while arrivals or ends:
        now = min([work[n][0] for n in arrivals[:1]] + [end for end, _ in ends[:1]])
        while ends and ends[0][0] == now:
            heapq.heappop(ends)
        while arrivals and work[arrivals[0]][0] == now:
            queue.append(arrivals.pop(0))
        free = pool - sum(work[n][1] for _, n in ends)
        chosen = easy(now, free, [(work[n][1], end) for end, n in ends],
                      [work[n][1:] for n in queue])  # fmt: skip
        for job in [queue[index] for index in chosen]:
            queue.remove(job)
            starts[job] = now
            heapq.heappush(ends, (now + work[job][2], job))
    return starts


@given(data=st.data())
@settings(max_examples=cases(60), deadline=None)
def test_runs_with_exact_estimates_start_as_in_a_loop_over_instants(data: st.DataObject) -> None:
    pool = data.draw(st.integers(1, 8))
    each = st.tuples(
        st.sampled_from([0.0, 1.0, 2.0, 3.5]),
        st.integers(1, pool),
        st.sampled_from([0.0, 1.0, 1.5, 4.0, 7.0]),
    )
    work = data.draw(st.lists(each, min_size=1, max_size=25))
    jobs = [(at, job_of(n, gpus, s, declared=s)) for n, (at, gpus, s) in enumerate(work)]
    policy = make_policy(POLICIES, "easy-backfill")
    expected = {job: [at] for job, at in replayed(pool, work).items()}
    assert simulated(pool, jobs, policy) == expected
