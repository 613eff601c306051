"""CPU cost of the real engine in simulation, against a minimal event loop with equal results.

Strict first in, first out on a seeded synthetic history (Poisson arrivals, lognormal durations,
mostly one GPU) in which thousands of jobs wait. The minimal loop is only a heap of ends; both must
agree on every start.
"""

from __future__ import annotations

import heapq
import time

import numpy as np

from headgate.policies.ordered.fifo import FirstInFirstOut
from headgate.sim import run as sim
from headgate.traces import Trace

GPUS, SEED = 600, 1


def history(jobs: int) -> Trace:
    """Return a history in which more jobs wait than run."""
    rng = np.random.default_rng(SEED)
    gpus = rng.choice([1, 2, 4, 8, 16], jobs, p=[0.9, 0.04, 0.03, 0.02, 0.01])
    duration_s = np.ceil(rng.lognormal(8, 1.5, jobs))
    load = (gpus * duration_s).mean() / GPUS
    submit_s = np.floor(np.cumsum(rng.exponential(load / 1.3, jobs)))
    return Trace(
        job_id=np.array([f"job-{n}" for n in range(jobs)], object),
        submit_s=submit_s,
        duration_s=duration_s,
        gpus=gpus.astype(np.int64),
    )


def bare_starts_s(trace: Trace) -> list[float]:
    """Return the start of each job, by a minimal event loop."""
    free, now, ends, starts = GPUS, 0.0, [], []
    rows = zip(trace.submit_s.tolist(), trace.duration_s.tolist(), trace.gpus.tolist(), strict=True)
    for submit_s, duration_s, gpus in rows:
        now = max(now, submit_s)
        while free < gpus or (ends and ends[0][0] <= now):
            end, held = heapq.heappop(ends)
            now, free = max(now, end), free + held
        free -= gpus
        heapq.heappush(ends, (now + duration_s, gpus))
        starts.append(now)
    return starts


def main() -> None:
    """Print one row per size."""
    print(f"{'jobs':>6} {'engine s':>9} {'us/job':>7} {'bare s':>7} ratio  most waiting")
    for jobs in (5_000, 20_000):
        trace, policy = history(jobs), FirstInFirstOut()
        started = time.perf_counter()
        outcome = sim.run(sim.from_trace(trace, policy, gpus=GPUS, seed=SEED), policy)
        engine_s = time.perf_counter() - started
        started = time.perf_counter()
        expected = bare_starts_s(trace)
        bare_s = time.perf_counter() - started
        starts = outcome.jobs.started_at
        assert starts.tolist() == expected, "the engine and the minimal loop disagree"
        order = np.argsort(np.concatenate([trace.submit_s, starts]), kind="stable")
        waiting = np.cumsum(np.where(order < jobs, 1, -1)).max()
        print(
            f"{jobs:>6} {engine_s:>9.2f} {1e6 * engine_s / jobs:>7.0f} {bare_s:>7.3f} "
            f"{engine_s / bare_s:>5.0f}  {waiting}"
        )


if __name__ == "__main__":
    main()
