"""The live comparison of the flow policies: its jobs, their simulation, and the figures of both.

Real workloads at a small scale run on a test bed of eight virtual nodes in two racks with shaped
uplinks. Tasks read over the shaped links and compute, then sleep until a stated duration is over,
as 16 virtual GPUs share the cores of one machine. Every shard has one replica, most of them in the
first rack, as after a `put` from there: half of the GPUs are far from the data.

The simulation has the same jobs, submission times, replicas and sizes of results, and the
bandwidths that the live controller measured before the jobs. A task takes its stated duration and a
launch overhead, calibrated beforehand by the same number of jobs without data: a decision takes as
long as their first one, the n-th launch is delayed like their n-th, and a run holds its GPU (or
slots) longer than stated by an overhead of one of their runs, drawn for each task. The order of
nearly simultaneous events determines the reads, so a schedule is one of many: the simulation is
repeated with several draws, and the mean is compared. It uses nothing else of the live run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from headgate.experiments.bed import PAYLOAD
from headgate.model import Job
from headgate.ports import Policy
from headgate.sim.replay import recorded
from headgate.sim.run import run
from headgate.spec import Links
from headgate.state import TaskState
from headgate.state.view import View
from headgate.workloads.generate import Inputs, generate
from headgate.workloads.padded import STATED, duration_s

POLICIES = ("gs", "fs", "fsp", "headgate")
UPLINKS_MBIT_PER_S = (100, 1000)
RACKS = {"r0": 4, "r1": 4}
SEED = 1

_NEAR_DATA = 0.75  # fraction of the shards in the first rack
_MB = 10**6
_MODULE = "headgate.workloads.padded"
_CPU_S = 1.0
# Stated durations of tasks with GPUs, by job kind; the kernels take less than a second.
_GPU_S = {
    "occurrence": 4.0,
    "primes": 5.0,
    "sort": 4.4,
    "matmul": 5.6,
    "kmeans": 3.6,
    "sparse": 4.8,
    "calibrate": 4.6,
}
_ITERATIONS = 3
_CALIBRATION_TASKS = 10
_DRAWS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveJob:
    """A job of the comparison.

    `data` are the files of its datasets, with the size of their shards in bytes; `verify` checks
    the results of its last `results` tasks against `inputs`.
    """

    job_kind: str
    inputs: Inputs
    data: Mapping[str, tuple[Path, int]]
    body: Mapping[str, Any]
    results: int = 1

    def text(self, name: str) -> str:
        """Return its job file."""
        return json.dumps({"name": name, **self.body})


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """Seconds for which finished runs held resources beyond reading and their stated duration.

    One number per run: from its launch to its start (`start`, in order of launches), and the rest,
    of tasks with GPUs (`gpu`) and of others (`cpu`). `decision_s` is the time from the first
    submission to the first launch.
    """

    start: tuple[float, ...]
    gpu: tuple[float, ...]
    cpu: tuple[float, ...]
    decision_s: float = 0.0

    @property
    def start_s(self) -> float:
        """The mean from launch to start."""
        return fmean(self.start)

    @property
    def gpu_s(self) -> float:
        """The mean over tasks with GPUs, their start included."""
        return self.start_s + fmean(self.gpu)

    @property
    def cpu_s(self) -> float:
        """The mean over tasks without, their start included."""
        return self.start_s + fmean(self.cpu)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Figures of a run; `read_bytes`: on the reader's node, in its rack, across racks."""

    makespan_s: float
    read_bytes: tuple[int, int, int]

    @property
    def total_bytes(self) -> int:
        """All bytes read."""
        return sum(self.read_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPolicy:
    """A policy on a shaped network, simulated and measured.

    `simulated` is the mean over draws, `simulated_range_s` are the least and the greatest makespan.
    `overhead` is that of the live run itself, which the simulation does not use; `wrong` has the
    wrong results, by job kind.
    """

    policy: str
    uplink_mbit_per_s: float
    simulated: Side
    simulated_range_s: tuple[float, float]
    measured: Side
    overhead: Overhead
    wrong: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All pairs, and the calibrated launch overhead of the simulations."""

    pairs: tuple[MeasuredPolicy, ...]
    overhead: Overhead


# --- the jobs ------------------------------------------------------------------------------------


def make_jobs(
    folder: Path, *, kinds: Sequence[str] | None = None, shards: int = 10
) -> list[LiveJob]:
    """Write the inputs, about 160 MB, into a folder and return the jobs that read them."""
    makers = {
        "occurrence": lambda: _counting("occurrence", "count", folder, 3 * shards, shards),
        "primes": lambda: _counting("primes", "find", folder, 2 * shards, shards),
        "sort": lambda: _sort(folder, 3 * shards, shards),
        "matmul": lambda: _product(folder, 36, 6),
        "kmeans": lambda: _kmeans(folder, 16, 4),
        "sparse": lambda: _sparse(folder, 3 * shards, shards),
    }
    return [makers[kind]() for kind in (makers if kinds is None else kinds)]


def calibration_jobs(count: int) -> list[dict[str, Any]]:
    """Return `count` jobs without data, to measure the launch overhead."""
    run = f"{_MODULE}:nothing"
    tasks = {"count": _CALIBRATION_TASKS, "run": run, "params": {STATED: _GPU_S["calibrate"]}}
    reduce = {"run": run, "params": {STATED: _CPU_S}}
    return [{"name": f"calibrate-{n}", "tasks": tasks, "reduce": reduce} for n in range(count)]


def _stage(
    function: str, stated_s: float, params: Mapping[str, Any], **more: Any
) -> dict[str, Any]:
    return {"run": f"{_MODULE}:{function}", "params": {STATED: stated_s, **params}, **more}


def _dataset(inputs: Inputs, shards: int) -> dict[str, tuple[Path, int]]:
    size_bytes = inputs.shard_bytes(shards)
    return {f"{inputs.workload}-{n}": (path, size_bytes) for n, path in inputs.files.items()}


def _counting(workload: str, stage: str, folder: Path, size_mb: int, shards: int) -> LiveJob:
    inputs = generate(workload, folder, size_mb * _MB, seed=SEED)
    body = {
        "data": {"ints": {"from": f"{workload}-ints"}},
        "tasks": _stage(stage, _GPU_S[workload], inputs.params, for_each="ints"),
        "reduce": _stage("merge", _CPU_S, {}),
    }
    return LiveJob(job_kind=workload, inputs=inputs, data=_dataset(inputs, shards), body=body)


def _sort(folder: Path, size_mb: int, shards: int) -> LiveJob:
    inputs, parts = generate("sort", folder, size_mb * _MB, seed=SEED), 4
    body = {
        "data": {"records": {"from": "sort-records"}},
        "tasks": _stage("sort_part", _GPU_S["sort"], inputs.params, for_each="records"),
        "reduce": _stage("merge_range", _CPU_S, {}, tasks=parts, partitioned=True),
    }
    data = _dataset(inputs, shards)
    return LiveJob(job_kind="sort", inputs=inputs, data=data, body=body, results=parts)


def _product(folder: Path, size_mb: int, shards: int) -> LiveJob:
    inputs, strips = generate("matmul", folder, size_mb * _MB, seed=SEED), 2
    body = {
        "data": {side: {"from": f"matmul-{side}"} for side in ("left", "right")},
        "tasks": _stage("multiply", _GPU_S["matmul"], inputs.params, for_each=["left", "right"]),
        "reduce": _stage("add_strips", _CPU_S, inputs.params, tasks=strips, partitioned=True),
    }
    data = _dataset(inputs, shards)
    return LiveJob(job_kind="matmul", inputs=inputs, data=data, body=body, results=strips)


def _kmeans(folder: Path, size_mb: int, shards: int) -> LiveJob:
    made = generate("kmeans", folder, size_mb * _MB, seed=SEED)
    inputs = replace(made, params={**made.params, "iterations": _ITERATIONS})
    params = {key: value for key, value in inputs.params.items() if key != "iterations"}
    body = {
        "data": {"points": {"from": "kmeans-vectors"}},
        "tasks": _stage(
            "assign", _GPU_S["kmeans"], params, for_each="points", iterations=_ITERATIONS
        ),
        "update": _stage("update", _CPU_S, params),
    }
    return LiveJob(job_kind="kmeans", inputs=inputs, data=_dataset(inputs, shards), body=body)


def _sparse(folder: Path, size_mb: int, shards: int) -> LiveJob:
    inputs = generate("sparse", folder, size_mb * _MB, seed=SEED)
    body = {
        "data": {"entries": {"from": "sparse-entries"}},
        "tasks": _stage("multiply_sparse", _GPU_S["sparse"], inputs.params, for_each="entries"),
        "reduce": _stage("add", _CPU_S, {}),
    }
    return LiveJob(job_kind="sparse", inputs=inputs, data=_dataset(inputs, shards), body=body)


def places(shards: Mapping[str, int], racks: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return for each dataset the node of each of its shards, most of them in the first rack."""
    rng = Random(SEED)
    near, *far = racks.values()
    others = [node for nodes in far for node in nodes]

    def draw() -> str:
        return rng.choice(near if not others or rng.random() < _NEAR_DATA else others)

    return {name: [draw() for _ in range(count)] for name, count in shards.items()}


# --- figures of a live run, and its simulation ---------------------------------------------------


def measured_overhead(view: View) -> Overhead:
    """Return how long finished runs held resources beyond reading and their stated duration."""
    start: list[tuple[float, float]] = []
    beyond: dict[bool, list[float]] = {True: [], False: []}
    for row in range(len(view.jobs.state)):
        job = view.job(row)
        stated = stated_times_s(job)
        for ordinal, task in enumerate(view.tasks_of(row)):
            if view.tasks.state[task] == TaskState.FINISHED:
                launched_s, started_s = view.tasks.launched_at[task], view.tasks.started_at[task]
                start.append((launched_s, started_s - launched_s))
                ran_s = view.tasks.ended_at[task] - started_s
                over_s = ran_s - view.tasks.read_s[task] - stated[ordinal]
                beyond[job.tasks[ordinal].demand.gpus > 0].append(max(0.0, over_s))
    return Overhead(
        decision_s=min(start)[0] - view.jobs.submitted_at[0] if start else 0.0,
        start=tuple(delay_s for _, delay_s in sorted(start)) or (0.0,),
        gpu=tuple(beyond[True] or [0.0]),
        cpu=tuple(beyond[False] or [0.0]),
    )


def stated_times_s(job: Job) -> list[float]:
    """Return the stated duration of each task, from its program."""
    found = [0.0] * len(job.tasks)
    for stage in job.program.stages:
        for turn in range(stage.times):
            first = stage.first + turn * stage.every
            for index in range(stage.count):
                found[first + index] = duration_s(stage.params, index)
    return found


def measured(view: View) -> Side:
    """Return the figures of a live run."""
    jobs = view.jobs
    node, rack, cluster = (
        int(column.array().sum())
        for column in (jobs.read_node_bytes, jobs.read_rack_bytes, jobs.read_cluster_bytes)
    )
    makespan_s = float(jobs.ended_at.array().max() - jobs.submitted_at.array().min())
    return Side(makespan_s=makespan_s, read_bytes=(node, rack, cluster))


def simulated(
    view: View, policy: Policy, *, uplink_mbit_per_s: float, overhead: Overhead
) -> tuple[Side, ...]:
    """Simulate the jobs of a live run, once for each draw; see the module."""
    replay = replace(
        recorded(view, seed=SEED),
        decision_latency_s=overhead.decision_s,
        launch_delays_s=overhead.start,
        links=Links(
            disk_bytes_per_s=view.bandwidth.disk_bytes_per_s,
            node_link_bytes_per_s=view.bandwidth.rack_bytes_per_s,
            rack_uplink_bytes_per_s=uplink_mbit_per_s * 1e6 / 8 * PAYLOAD,
        ),
    )
    stated = [stated_times_s(view.job(row)) for row in range(len(replay.submissions))]
    sides = []
    for draw in range(_DRAWS):
        rng = Random(draw)
        submissions = tuple(
            (at, _timed(job, times_s, overhead, rng))
            for (at, job), times_s in zip(replay.submissions, stated, strict=True)
        )
        figures = run(replace(replay, submissions=submissions), policy).figures
        moved = figures["bytes"]
        read_bytes = (moved["node"], moved["rack"], moved["cluster"])
        sides.append(Side(makespan_s=figures["makespan_s"], read_bytes=read_bytes))
    return tuple(sides)


def _timed(job: Job, stated_s: Sequence[float], overhead: Overhead, rng: Random) -> Job:
    """Return a job whose tasks take their stated duration and a drawn overhead."""
    tasks = (
        replace(task, compute_s=s + rng.choice(overhead.gpu if task.demand.gpus else overhead.cpu))
        for task, s in zip(job.tasks, stated_s, strict=True)
    )
    return replace(job, tasks=tuple(tasks))


def mean_side(sides: Sequence[Side]) -> Side:
    """Return the means of several simulations."""
    node, rack, cluster = (round(fmean(side.read_bytes[n] for side in sides)) for n in range(3))
    makespan_s = fmean(side.makespan_s for side in sides)
    return Side(makespan_s=makespan_s, read_bytes=(node, rack, cluster))
