"""Time of the flow policies from a snapshot to the plan, and the solver's part of it.

    python bench/flow_decision.py [--size S M L XL] [--policy fs headgate] [--seed 1] [--rounds 9]

The cluster has nodes of 8 GPUs in racks of 16, and jobs with at least as many waiting tasks as it
has GPUs. Every task reads one to three shards of 100 MB to 3 GB with three replicas each, two of
them in one rack. The first decision is cold, with all GPUs free (`empty_ms`, the median of three;
`first_ms`, the first, includes the first access to its memory). Then all GPUs are held, and in each
round 1 % of the runs end and the same number of tasks arrive, in a new job. The output has medians
over these rounds, warm, and cold, without earlier rounds. It is one JSON object on stdout.

The goal is the solver's own time + 1 ms + 2 us per change, warm, and twice the solver's time, cold.
Changes are counted in two ways: tasks and GPUs that have changed (`changes`), and updates of the
solver (`updates`): units added, removed or with another cost, and capacities. Updates are more
numerous: under `headgate`, the cost of a held GPU falls with every second. Cold, the solver's time
is also measured in two ways: the time of its methods (`solver_ms`), and the time from the arrays of
a round to its solution, with building places and options, like `cold_ms` of `flow_bench.report`
(`round_ms`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any
from unittest.mock import patch

import numpy as np

from _decided import carry_out, submit
from headgate.app import POLICIES
from headgate.base.rng import stream
from headgate.flow import LaminarSolver
from headgate.model import Bandwidth, Demand, Gpu, Job, Node, Queue, Shard, Task
from headgate.policies.flow import solve
from headgate.ports import Policy, make_policy
from headgate.protocol import Plan
from headgate.state import JobState, Snapshot, State, TaskState

SIZES = {"S": (15, 6, 40), "M": (250, 100, 40), "L": (1562, 500, 50), "XL": (12_500, 1_000, 300)}
"""Nodes, jobs, and tasks of each job."""
GPUS_PER_NODE, NODES_IN_RACK = 8, 16
GB = 10**9
UPDATES = {"add": 0, "remove": 0, "replace": 0, "reprice": 1, "reprice_all": 0, "set_capacity": 0}
"""Methods that update a solver, and the index of the argument with one element per update."""
EMPTY_ROUNDS = 3
ENDS, RUN_S = 0.01, 600.0
BANDWIDTH = Bandwidth(disk_bytes_per_s=2e9, rack_bytes_per_s=1.25e9, cluster_bytes_per_s=2.5e8)


class Meter:
    """A solver that sums the seconds that its methods take, and the number of updates."""

    total_s = 0.0
    updates = 0

    def __init__(self, *args: Any) -> None:
        self._inner = self._timed(LaminarSolver, *args)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        def metered(*args: Any) -> Any:
            if name in UPDATES:
                Meter.updates += len(args[UPDATES[name]]) - (name == "add")
            return self._timed(method, *args)

        return metered

    @staticmethod
    def _timed(method: Any, *args: Any) -> Any:
        started = time.perf_counter()
        try:
            return method(*args)
        finally:
            Meter.total_s += time.perf_counter() - started


class MeteredFlow(solve.Flow):
    """A first flow that sums the seconds from the arrays of a problem to its solution."""

    total_s = 0.0

    def __init__(self, *args: Any) -> None:
        started = time.perf_counter()
        super().__init__(*args)
        MeteredFlow.total_s += time.perf_counter() - started


class Cluster:
    """A state that advances from round to round."""

    def __init__(self, size: str, seed: int) -> None:
        self.nodes, jobs, self._tasks = SIZES[size]
        self._rng = np.random.default_rng(seed)
        self.state, self._jobs = State(), 0
        self.state.bandwidth = BANDWIDTH
        self.state.set_queue(Queue(name="default"))
        gpus = (Gpu(memory_bytes=80 * GB),) * GPUS_PER_NODE
        for n in range(self.nodes):
            self.state.add_node(Node(id=f"n{n}", rack=f"r{n // NODES_IN_RACK}", gpus=gpus))
        for _ in range(jobs):
            self.submit(self._tasks)

    def submit(self, tasks: int) -> None:
        """Add a job of waiting tasks, with data of its own."""
        state, name, rng = self.state, f"j{self._jobs}", self._rng
        self._jobs += 1
        made = []
        for t in range(tasks):
            reads = tuple(f"{name}/{t}/{n}" for n in range(rng.integers(1, 4)))
            for shard in reads:
                size_bytes = int(10 ** rng.uniform(8, 9.5))
                row = state.shard(Shard(id=shard, size_bytes=size_bytes))
                first, other = rng.integers(0, self.nodes, 2).tolist()
                rack = first - first % NODES_IN_RACK
                near = rack + int(rng.integers(0, min(NODES_IN_RACK, self.nodes - rack)))
                for node in sorted({first, near, other}):
                    state.add_replica(row, node)
            made.append(Task(reads=reads, demand=Demand(gpus=1)))
        submit(
            state,
            Job(
                id=name,
                name=name,
                user=f"u{self._jobs % 20}",
                queue="default",
                tasks=tuple(made),
                runtime_class="one",
            ),
        )

    def spread_ages(self) -> None:
        """Set the starts of all runs at random in the last RUN_S seconds, their expected time."""
        state = self.state
        for task in np.flatnonzero(state.tasks.state.array() == TaskState.RUNNING).tolist():
            state.tasks.launched_at[task] = state.tasks.started_at[task] = -self._rng.uniform(
                0, RUN_S
            )
        for row in range(len(state.runtime_classes.compute_s)):
            state.runtime_classes.compute_s[row] = RUN_S

    def advance(self) -> None:
        """End some runs, and add the same number of tasks."""
        state = self.state
        state.version += 1
        state.now += ENDS * RUN_S
        running = np.flatnonzero(state.tasks.state.array() == TaskState.RUNNING)
        ended = self._rng.choice(running, max(1, int(ENDS * len(running))), replace=False)
        for task in ended.tolist():
            state.record_runtime(task)
            state.release(task, TaskState.FINISHED)
            job = state.tasks.job[task]
            if not state.jobs.unfinished[job]:
                state.move_job(job, JobState.FINISHED)
        self.submit(len(ended))


def decision(policy: Policy, snapshot: Snapshot) -> tuple[Plan, tuple[float, float, float]]:
    """Return a plan, and the milliseconds that it, its solver and, if cold, its round took."""
    Meter.total_s, Meter.updates, MeteredFlow.total_s = 0.0, 0, 0.0
    rng = stream(1)
    started = time.perf_counter()
    plan = policy.decide(snapshot, rng)
    took_s = time.perf_counter() - started
    return plan, (1e3 * took_s, 1e3 * Meter.total_s, 1e3 * MeteredFlow.total_s)


def measure(size: str, name: str, seed: int, rounds: int) -> dict[str, Any]:
    """Return the row of one size and policy."""
    cluster = Cluster(size, seed)
    before = cluster.state.freeze()
    empty = []
    for _ in range(EMPTY_ROUNDS):
        policy = make_policy(POLICIES, name)
        plan, took = decision(policy, before)
        empty.append(took)
    first_ms, (empty_ms, *of_empty_ms) = empty[0][0], sorted(empty)[len(empty) // 2]
    carry_out(cluster.state, plan)
    cluster.spread_ages()
    warm, cold = [], []
    for _ in range(rounds):
        cluster.advance()
        snapshot = cluster.state.freeze()
        changes = snapshot.changes(before)
        changed = 0 if changes is None else len(changes.tasks) + len(changes.gpus)
        plan, (took_ms, solver_ms, _) = decision(policy, snapshot)
        by_changes, by_updates = (
            took_ms / (solver_ms + 1 + 2e-3 * n) for n in (changed, Meter.updates)
        )
        warm.append((took_ms, solver_ms, changed, Meter.updates, by_changes, by_updates))
        cold.append(decision(make_policy(POLICIES, name), snapshot)[1])
        before = snapshot
        carry_out(cluster.state, plan)
    names = (
        "warm_ms",
        "warm_solver_ms",
        "changes",
        "updates",
        "warm_over_goal",
        "warm_over_goal_updates",
    )
    medians = dict(zip(names, map(statistics.median, zip(*warm, strict=True)), strict=True))
    cold_ms, *of_cold_ms = map(statistics.median, zip(*cold, strict=True))
    return {
        "size": size,
        "policy": name,
        "gpus": cluster.nodes * GPUS_PER_NODE,
        "waiting": cluster.state.waiting_tasks,
        "first_ms": round(first_ms, 3),
        **{key: round(value, 3) for key, value in medians.items()},
        **against_solver("empty", empty_ms, *of_empty_ms),
        **against_solver("cold", cold_ms, *of_cold_ms),
    }


def against_solver(
    when: str, took_ms: float, solver_ms: float, round_ms: float
) -> dict[str, float]:
    """Return the figures of a cold decision; `when` is `empty` (all GPUs free) or `cold`."""
    return {
        f"{when}_ms": round(took_ms, 3),
        f"{when}_solver_ms": round(solver_ms, 3),
        f"{when}_round_ms": round(round_ms, 3),
        f"{when}_over_solver": round(took_ms / solver_ms, 2),
        f"{when}_over_round": round(took_ms / round_ms, 2),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="how long decisions of the flow policies take")
    parser.add_argument("--size", nargs="+", default=[*SIZES], choices=SIZES)
    parser.add_argument("--policy", nargs="+", default=["fs", "headgate"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    with (
        patch.object(solve, "LaminarSolver", Meter),
        patch.object(solve, "Flow", MeteredFlow),
    ):
        rows = [
            measure(size, name, given.seed, given.rounds)
            for size in given.size
            for name in given.policy
        ]
    print(json.dumps({"decisions": rows}, indent=2))


if __name__ == "__main__":
    main()
