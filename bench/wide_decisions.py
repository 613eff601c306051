"""Time of decisions where gangs wait: 2,000 gangs and 2,000 GPUs, one row per policy.

    python bench/wide_decisions.py [--policy headgate srtf ...] [--rounds 20] [--seed 1]

The cluster has nodes of 8 GPUs. A gang has 1 to 32 tasks of 1 to 8 GPUs and a declared run time,
exact. All GPUs are free in the first round (`first_ms`). Before each later one, time advances to
the next end of a run, and as many gangs arrive as have ended; `mean_ms` and `max_ms` are over these
rounds, CPU time from a snapshot to the plan. The bare loop is `fifo`, which does nothing but place
the gangs that fit, in order: `over_fifo` is the ratio of the means in the same run. The output is
one JSON object on stdout.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import numpy as np

from _decided import carry_out, submit
from headgate.app import POLICIES
from headgate.base.rng import Random, stream
from headgate.model import Demand, Gpu, Job, Node, Queue, Task
from headgate.ports import Policy, make_policy
from headgate.protocol import Plan
from headgate.state import JobState, Snapshot, State, TaskState

NODES, GPUS_PER_NODE, WAITING = 250, 8, 2000
TASKS, GPUS, RUN_S = (1, 2, 4, 8, 16, 32), (1, 2, 4, 8), (100.0, 9000.0)
USERS = 20
BARE = "fifo"
ORDERED = ("conservative-backfill", "fair-easy-backfill", "least-attained-service", "srtf")
POLICY_NAMES = ("headgate", "easy-backfill", *ORDERED)


class Cluster:
    """A state in which gangs end and arrive."""

    def __init__(self, seed: int) -> None:
        self.state, self._rng, self._jobs = State(), Random(seed), 0
        self.state.set_queue(Queue(name="default"))
        gpus = (Gpu(memory_bytes=0),) * GPUS_PER_NODE
        for n in range(NODES):
            self.state.add_node(Node(id=f"n{n}", rack=f"r{n // 16}", gpus=gpus))
        for _ in range(WAITING):
            self.submit()

    def submit(self) -> None:
        """Add a gang of waiting tasks."""
        state, rng, name = self.state, self._rng, f"j{self._jobs}"
        self._jobs += 1
        run_s = rng.uniform(*RUN_S)
        tasks = (Task(demand=Demand.of(gpus=rng.choice(GPUS)), compute_s=run_s),) * rng.choice(
            TASKS
        )
        submit(
            state,
            Job(
                id=name,
                name=name,
                user=f"u{self._jobs % USERS}",
                queue="default",
                gang=True,
                estimated_s=run_s,
                tasks=tasks,
            ),
        )

    def advance(self) -> None:
        """Go to the next end of a run; all gangs that end then end, and as many arrive."""
        state = self.state
        state.version += 1
        running = np.flatnonzero(state.jobs.running.array() > 0).tolist()
        ends = {job: self._end_at(job) for job in running}
        state.now = min(ends.values())
        ended = [job for job, at in ends.items() if at == state.now]
        for job in ended:
            for task in state.tasks_of(job):
                state.record_runtime(task)
                state.release(task, TaskState.FINISHED)
            state.move_job(job, JobState.FINISHED)
        for _ in ended:
            self.submit()

    def _end_at(self, job: int) -> float:
        first = self.state.tasks_of(job).start
        at: float = self.state.tasks.started_at[first] + self.state.task(first).compute_s
        return at


def decision_ms(policy: Policy, snapshot: Snapshot) -> tuple[Plan, float]:
    """Return a plan, and the milliseconds of CPU time that it took."""
    rng = stream(1)
    started_s = time.process_time()
    plan = policy.decide(snapshot, rng)
    return plan, 1e3 * (time.process_time() - started_s)


def measure(name: str, seed: int, rounds: int) -> dict[str, Any]:
    """Return the row of one policy."""
    cluster, policy = Cluster(seed), make_policy(POLICIES, name)
    took, starts, stops = [], 0, 0
    for round_number in range(rounds + 1):
        if round_number:
            cluster.advance()
        plan, ms = decision_ms(policy, cluster.state.freeze())
        took.append(ms)
        carry_out(cluster.state, plan)
        if round_number:
            starts, stops = starts + len(plan.starts), stops + len(plan.stops)
    first_ms, *later_ms = took
    return {
        "policy": name,
        "first_ms": round(first_ms, 1),
        "mean_ms": round(statistics.mean(later_ms), 2),
        "max_ms": round(max(later_ms), 1),
        "tasks_started": starts,
        "tasks_stopped": stops,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="how long decisions take where gangs wait")
    parser.add_argument("--policy", nargs="+", default=POLICY_NAMES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    rows = [measure(name, given.seed, given.rounds) for name in (BARE, *given.policy)]
    for row in rows:
        row["over_fifo"] = round(row["mean_ms"] / rows[0]["mean_ms"], 1)
    print(json.dumps({"gpus": NODES * GPUS_PER_NODE, "waiting": WAITING, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
