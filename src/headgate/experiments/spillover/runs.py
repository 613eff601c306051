"""The experiments: their clusters, tasks and sizes, and a run of one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headgate.base.rng import Random, stream
from headgate.experiments.spillover.engine import Policies, makespan_s
from headgate.experiments.spillover.loop import Loop, LoopCluster, LoopOutcome, LoopTask
from headgate.planning.balancers import BALANCERS, Speeds

HEAD_LEFT: Final = 0.82
"""The part of the first node that its own services leave: published CPU figures have the first
node 292 points above the mean of the others, of 16 CPUs."""

PUBLISHED_SYNC: Final = {
    "random": 997.0,
    "round-robin": 996.0,
    "pick-kx": 1012.0,
    "resource-pick-kx": 1115.0,
    "swrr": 1080.0,
}
"""Synchronous tasks per second; Ray's own are `random`."""

TINY_S: Final = HEAD_LEFT / PUBLISHED_SYNC["random"]
"""What a tiny task takes with all its overhead: the constant that is calibrated."""

FIVE: Final = tuple(name for name in BALANCERS if name != "least-cost")
IDENTICAL: Final = "identical"
UNLIKE: Final = "unlike"

CLUSTERS: Final = {
    IDENTICAL: LoopCluster(name=IDENTICAL, total=((16, 0, 64),) * 3, speed=(HEAD_LEFT, 1.0, 1.0)),
    UNLIKE: LoopCluster(
        name=UNLIKE,
        total=((16, 0, 64), (8, 0, 32), (32, 0, 64)),
        speed=(HEAD_LEFT, 2.0, 0.75),
    ),
}

TINY_DEMANDS: Final = ((1, 0, 1),)
MIXED_DEMANDS: Final = tuple((cpus, 0, gib) for cpus in (1, 2, 4) for gib in (1, 2, 8))
BLOCK_DEMANDS: Final = ((1, 0, 2),)

BLOCK_MB: Final = 32
DISK_MB_PER_S: Final = 500.0
NETWORK_MB_PER_S: Final = 110.0
COMPUTE_MB_PER_S: Final = {"scan": 200.0, "join": 50.0}

EARLIER: Final = 200
"""How many tasks of each experiment `least-cost` has seen before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpilloverRun:
    """One run: `count` is tasks in flight, or GB of a scan or join."""

    experiment: str  # sync, async, mixed, scan, join or engine
    cluster: str
    balancer: str
    count: int
    seed: int
    tasks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpilloverSizes:
    """How large the experiments are."""

    sync_tasks: int
    tiny: tuple[int, ...]  # in flight, and in all
    mixed: tuple[int, ...]  # in flight
    mixed_tasks: int
    gigabytes: tuple[int, ...]
    engine_tasks: int


FULL: Final = SpilloverSizes(
    sync_tasks=1000,
    tiny=(1000, 10_000, 100_000),
    mixed=(10, 50, 100, 200, 300, 500, 700),
    mixed_tasks=1400,
    gigabytes=(1, 3, 5, 7),
    engine_tasks=400,
)
QUICK: Final = SpilloverSizes(
    sync_tasks=50,
    tiny=(200, 1000),
    mixed=(10, 300),
    mixed_tasks=400,
    gigabytes=(1, 3),
    engine_tasks=40,
)


def plan(sizes: SpilloverSizes, seeds: Sequence[int]) -> list[SpilloverRun]:
    """Return all runs, long ones first."""
    shapes = [("async", count, count) for count in sorted(sizes.tiny, reverse=True)]
    shapes += [("engine", sizes.engine_tasks, sizes.engine_tasks)]
    shapes += [("mixed", count, sizes.mixed_tasks) for count in sizes.mixed]
    shapes += [("sync", 1, sizes.sync_tasks)]
    shapes += [
        (kind, size, size * 1000 // BLOCK_MB)
        for kind in COMPUTE_MB_PER_S
        for size in sizes.gigabytes
    ]
    return [
        SpilloverRun(
            experiment=experiment,
            cluster=cluster,
            balancer=balancer,
            count=count,
            seed=seed,
            tasks=tasks,
        )
        for experiment, count, tasks in shapes
        for cluster in CLUSTERS
        for balancer in BALANCERS
        for seed in seeds
    ]


def measure(run: SpilloverRun, policies: Policies) -> LoopOutcome:
    """Return what a run took; `policies` are all by name, for the engine."""
    balancer = BALANCERS[run.balancer]
    demands = _demands(run.experiment)
    cluster = CLUSTERS[run.cluster]
    if run.experiment == "engine":
        draws = stream(run.seed, run.experiment, "tasks")
        tasks = _tasks("mixed", run.tasks, cluster, draws)
        taken_s = makespan_s(cluster, MIXED_DEMANDS, tasks, run.balancer, run.seed, policies)
        return LoopOutcome(makespan_s=taken_s, busy_s=(), placed=())
    speeds = Speeds()
    if run.balancer == "least-cost":
        before = Loop(
            cluster=cluster,
            demands=demands,
            balancer=balancer,
            rng=stream(run.seed, "earlier", "balancer"),
            speeds=speeds,
        )
        draws = stream(run.seed, run.experiment, "earlier")
        before.run(_tasks(run.experiment, EARLIER, cluster, draws), 10)
    loop = Loop(
        cluster=cluster,
        demands=demands,
        balancer=balancer,
        rng=stream(run.seed, run.experiment, run.count, "balancer"),
        speeds=speeds,
    )
    draws = stream(run.seed, run.experiment, run.count, "tasks")
    in_flight = run.tasks if run.experiment in COMPUTE_MB_PER_S else run.count
    return loop.run(_tasks(run.experiment, run.tasks, cluster, draws), in_flight)


def _demands(experiment: str) -> tuple[tuple[int, int, int], ...]:
    if experiment == "mixed":
        return MIXED_DEMANDS
    return BLOCK_DEMANDS if experiment in COMPUTE_MB_PER_S else TINY_DEMANDS


def _tasks(experiment: str, count: int, cluster: LoopCluster, draws: Random) -> list[LoopTask]:
    """Return tasks whose lengths vary by half; the blocks of data are on one node each."""
    if experiment == "mixed":
        return [
            LoopTask(draws.randrange(len(MIXED_DEMANDS)), draws.uniform(0.5, 1.5))
            for _ in range(count)
        ]
    if experiment not in COMPUTE_MB_PER_S:
        return [LoopTask(0, TINY_S * draws.uniform(0.5, 1.5)) for _ in range(count)]
    nodes = len(cluster.total)
    near_s, far_s = BLOCK_MB / DISK_MB_PER_S, BLOCK_MB / NETWORK_MB_PER_S
    read_s = [
        tuple(near_s if n == holder else far_s for n in range(nodes)) for holder in range(nodes)
    ]
    work_s = BLOCK_MB / COMPUTE_MB_PER_S[experiment]
    return [
        LoopTask(0, work_s * draws.uniform(0.5, 1.5), read_s[draws.randrange(nodes)])
        for _ in range(count)
    ]
