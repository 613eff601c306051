"""Orders that preempt, on a pool of equal GPUs, against a loop over instants by counts of GPUs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases
from tests.policies.ordered.pools import job_of, simulated

from headgate.app import POLICIES
from headgate.model import Queue
from headgate.ports import make_policy

THRESHOLD_GPU_S = 80.0
SETTLED_S = 60.0  # a run that takes the place of a stopped one is not stopped earlier
Kind = Literal["least-attained-service", "srtf"]


@dataclass
class Work:
    """A job of the oracle; without checkpoints, a run that is stopped has lost all its work."""

    submit_s: float
    gpus: int
    takes_s: float
    started_s: float | None = None  # of its current run
    attained_gpu_s: float = 0.0  # of earlier runs
    stopped: bool = False

    def stays(self, now: float) -> bool:
        """Whether it runs and may not be stopped again yet."""
        return self.stopped and self.started_s is not None and now < self.started_s + SETTLED_S

    def attained(self, now: float) -> float:
        ran = 0.0 if self.started_s is None else now - self.started_s
        return self.attained_gpu_s + ran * self.gpus

    def left(self, now: float) -> float:
        ran = 0.0 if self.started_s is None else now - self.started_s
        return (self.takes_s - ran) * self.gpus


def replayed(pool: int, work: list[Work], kind: Kind) -> dict[int, list[float]]:
    """Return the times of the starts of each job."""
    starts: dict[int, list[float]] = {n: [] for n in range(len(work))}
    arrivals = sorted(range(len(work)), key=lambda n: (work[n].submit_s, n))
    there: list[int] = []
    now = -1.0
    while arrivals or there:
        now = next_instant(work, arrivals, there, kind, now)
        for n in list(there):
            began = work[n].started_s
            if began is not None and began + work[n].takes_s == now:
                there.remove(n)
        while arrivals and work[arrivals[0]].submit_s == now:
            there.append(arrivals.pop(0))
        stay = [n for n in there if work[n].stays(now)]
        free = pool - sum(work[n].gpus for n in stay)
        for n in sorted(
            set(there) - set(stay), key=lambda n: (rank(work[n], now, kind), there.index(n))
        ):
            chosen, each = work[n].gpus <= free, work[n]
            free -= each.gpus * chosen
            if chosen and each.started_s is None:
                each.started_s = now
                starts[n].append(now)
            elif not chosen and each.started_s is not None:
                each.attained_gpu_s, each.started_s = each.attained(now), None
                each.stopped = True
    return starts


def rank(each: Work, now: float, kind: Kind) -> float:
    return each.left(now) if kind == "srtf" else float(each.attained(now) >= THRESHOLD_GPU_S)


def next_instant(
    work: list[Work], arrivals: list[int], there: list[int], kind: Kind, now: float
) -> float:
    times = [work[n].submit_s for n in arrivals[:1]]
    for n in there:
        began = work[n].started_s
        if began is not None:
            times.append(began + work[n].takes_s)
            if work[n].stays(now):
                times.append(began + SETTLED_S)
            crosses = began + (THRESHOLD_GPU_S - work[n].attained_gpu_s) / work[n].gpus
            if kind != "srtf" and crosses > now:
                times.append(crosses)
    return min(times)


@pytest.mark.parametrize("kind", ["least-attained-service", "srtf"])
@given(data=st.data())
@settings(max_examples=cases(50), deadline=None)
def test_jobs_start_and_are_preempted_as_in_a_loop_over_instants(
    kind: Kind, data: st.DataObject
) -> None:
    pool = data.draw(st.integers(1, 8))
    each = st.tuples(
        st.sampled_from([0.0, 20.0, 40.0, 70.0, 120.0]),
        st.sampled_from([n for n in (1, 2, 4, 8) if n <= pool]),
        st.sampled_from([0.0, 20.0, 30.0, 80.0, 140.0]),
    )
    work = data.draw(st.lists(each, min_size=1, max_size=20))
    jobs = [(at, job_of(n, gpus, takes_s)) for n, (at, gpus, takes_s) in enumerate(work)]
    parameters = {} if kind == "srtf" else {"threshold_gpu_s": THRESHOLD_GPU_S}
    policy = make_policy(POLICIES, kind, parameters)
    policy.patience_s = math.inf  # type: ignore[attr-defined]  # none hardens: the order alone
    expected = replayed(pool, [Work(*one) for one in work], kind)
    assert simulated(pool, jobs, policy) == expected


def test_gpus_freed_for_a_job_count_against_the_ceiling_of_its_queue() -> None:
    jobs = [
        (0.0, job_of(0, 2, 100.0, queue="other")),
        (1.0, job_of(1, 2, 5.0)),
        (1.0, job_of(2, 1, 20.0)),
    ]
    queues = (Queue(name="q", max_gpus=2), Queue(name="other"))
    starts = simulated(1, jobs, make_policy(POLICIES, "srtf"), others=(2,), queues=queues)
    assert starts == {0: [0.0, 6.0], 1: [1.0], 2: [6.0]}
