"""Recorded jobs on a tree of GPUs, under several policies and placements.

Every job of several GPUs trains by data parallelism, with one process per GPU on whatever nodes:
an all-reduce of its gradients, in a ring, after each step. Its recorded run time is that in its
best possible set, alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from headgate.experiments.closed_partition import TRACES, pages
from headgate.experiments.closed_partition.training import GRADIENT_BYTES
from headgate.experiments.frame.claims import Claim, NotRunError, Numbers
from headgate.experiments.frame.experiment import Experiment, Runner
from headgate.experiments.frame.report import Report
from headgate.experiments.histories.histories import Source, need
from headgate.experiments.histories.runs import times
from headgate.metrics.busy import launches_in
from headgate.model import Bandwidth, Communication, Demand, Gpu, Job, Node, Pattern, RunId
from headgate.ports import PolicyInfo, make_policy
from headgate.protocol import Command, Event, TaskFailed, TaskFinished, TaskStopped
from headgate.sim.run import Simulation, run
from headgate.sim.trace_jobs import TraceJobs, TraceModel
from headgate.spec import Links

NODE_GPUS, RACK_NODES = 8, 4
STEP_S = 0.2
"""Seconds of computing between two all-reduces."""

_BANDWIDTH = Bandwidth(
    disk_bytes_per_s=1e9,
    rack_bytes_per_s=25e9 / 8,  # a node's link
    cluster_bytes_per_s=12.5e9 / 8,  # what each node can expect of its rack's uplink
)
_LINKS = Links(disk_bytes_per_s=1e9, node_link_bytes_per_s=1e9, rack_uplink_bytes_per_s=1e9)
_STEP = Communication(pattern=Pattern.RING, bytes_per_step=GRADIENT_BYTES, step_s=STEP_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A part of a trace file, and the GPUs of the cluster that it runs on."""

    file: str
    vc: str
    gpus: int

    @property
    def name(self) -> str:
        """The name in tables."""
        return f"{self.file.removesuffix('.parquet')}/{self.vc}, {self.gpus} GPUs"


_PHILLY, _ITP = "philly2017_jobs.parquet", "itp2021_jobs.parquet"

RECORDED = (
    Recorded(file=_PHILLY, vc="ee9e8c", gpus=160),
    Recorded(file=_PHILLY, vc="0e4a51", gpus=96),
    Recorded(file=_PHILLY, vc="7f04ca", gpus=128),
    Recorded(file=_PHILLY, vc="2869ce", gpus=64),
    Recorded(file=_ITP, vc="cluster01", gpus=128),
    Recorded(file=_ITP, vc="cluster03", gpus=160),
    Recorded(file=_ITP, vc="cluster06", gpus=128),
)
"""Parts in which jobs of several GPUs use most of the GPU time, of at most 3,011 jobs.

Each has the fewest racks of 32 GPUs that are at most 90 % used if no job waits, and that have twice
the GPUs of the widest job.
"""

FIRST_FIT, BEST_FIT, BY_LINKS = "first-fit", "best-fit-subtree", "links"

ANYWHERE, TOGETHER = "one per GPU", "as large as nodes"
"""The tasks of a job: its GPUs may be on any nodes, or those of a task are on one."""

RESUME_S = 60.0
"""What a start costs after the first one; work is not lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceVariant:
    """A policy with its settings, and the tasks of the jobs; run times are learnt."""

    policy: str
    place: str
    tasks: str = ANYWHERE
    migrate: str = "never"

    @property
    def name(self) -> str:
        """The name in tables and claims."""
        moves = "" if self.migrate == "never" else ", with migration"
        return f"{self.policy}, {self.place}{moves}, tasks {self.tasks}"

    @property
    def settings(self) -> dict[str, str]:
        """The policy's settings."""
        moves = {} if self.migrate == "never" else {"migrate": self.migrate}
        return {"place": self.place, **moves}


_EASY = "easy-backfill"

VARIANTS = (
    *(
        TraceVariant(policy=policy, place=place)
        for policy in ("fifo", _EASY, "headgate")
        for place in (FIRST_FIT, BEST_FIT)
    ),
    TraceVariant(policy="headgate", place=BY_LINKS),
    TraceVariant(policy=_EASY, place=FIRST_FIT, tasks=TOGETHER),
    TraceVariant(policy=_EASY, place=BEST_FIT, tasks=TOGETHER),
    TraceVariant(policy=_EASY, place=BEST_FIT, tasks=TOGETHER, migrate="when-cheaper"),
)
"""The policies that are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRun:
    """One simulation."""

    directory: Path
    recorded: Recorded
    variant: TraceVariant


def plan(directory: Path) -> tuple[TraceRun, ...]:
    """Return all runs; raise SpecError `missing_file` for traces that are not in the directory."""
    files = sorted({directory / recorded.file for recorded in RECORDED})
    need(files, "docs/traces.md names the sources")
    return tuple(
        TraceRun(directory=directory, recorded=recorded, variant=variant)
        for recorded in RECORDED
        for variant in VARIANTS
    )


class _TrainingJobs(TraceJobs):
    """Jobs of a trace as gangs that communicate."""

    anywhere = True

    def __iter__(self) -> Iterator[tuple[float, Job]]:
        for at, job in super().__iter__():
            gpus = sum(task.demand.gpus for task in job.tasks)
            tasks = job.tasks
            if self.anywhere and gpus > 1:
                tasks = (replace(tasks[0], demand=Demand(gpus=1)),) * gpus
            sends = _STEP if gpus > 1 else None
            yield at, replace(job, tasks=tasks, communication=sends)


class _Fragmentation:
    """An observer: the time-mean of idle GPUs on nodes that are partly in use."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._free = {node.id: len(node.gpus) for node in nodes}
        self._whole = dict(self._free)
        self._open: dict[RunId, tuple[str, int]] = {}
        self._since, self._now = np.inf, 0.0
        self._idle_s = 0.0

    def __call__(self, batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        at = batch[-1].at
        self._idle_s += (at - self._now) * self._partly()
        self._now = at
        for event in batch:
            if isinstance(event, TaskFinished | TaskFailed | TaskStopped):
                node, gpus = self._open.pop(event.run, ("", 0))
                if node:
                    self._free[node] += gpus
        for launch in launches_in(commands):
            self._since = min(self._since, at)
            self._open[launch.run] = (launch.node, len(launch.gpus))
            self._free[launch.node] -= len(launch.gpus)

    def _partly(self) -> int:
        return sum(n for node, n in self._free.items() if n < self._whole[node])

    @property
    def ratio(self) -> float:
        """These GPUs relative to all, from the first launch to the last event."""
        span_s = self._now - self._since
        return self._idle_s / (span_s * sum(self._whole.values())) if span_s > 0 else 0.0


def measure(what: TraceRun, known: Mapping[str, PolicyInfo]) -> dict[str, Any]:
    """Execute a run and return its row."""
    variant = what.variant
    source = Source(path=what.directory / what.recorded.file, vc=what.recorded.vc)
    policy = make_policy(known, variant.policy, variant.settings)
    nodes = _nodes(what.recorded.gpus)
    jobs = _TrainingJobs(
        source.open(), queues=(), nodes=nodes, policy=policy, model=TraceModel(resume_s=RESUME_S)
    )
    jobs.anywhere = variant.tasks == ANYWHERE
    simulation = Simulation(
        nodes=nodes,
        links=_LINKS,
        bandwidth=_BANDWIDTH,
        queues=jobs.queues,
        submissions=jobs,
        rejected=Counter(jobs.rejected),
        resume_s=RESUME_S,
    )
    fragmentation = _Fragmentation(nodes)
    outcome = run(simulation, policy, observe=(fragmentation,))
    figures, of = outcome.figures, times(outcome.jobs)
    return {
        "policy": variant.policy,
        "place": variant.place,
        "tasks": variant.tasks,
        "migrate": variant.migrate,
        "jobs": figures["jobs_finished"],
        **{key: of[key] for key in ("mean_jct_s", "median_jct_s", "mean_wait_s", "p99_wait_s")},
        "fragmentation": fragmentation.ratio,
        "utilisation": figures["gpu_utilisation"],
        "mean_diameter": figures["mean_diameter"],
        "shared_links": figures["shared_links"],
        "mean_slowdown": figures["slowdown"]["mean"],
        "p95_slowdown": figures["slowdown"]["p95"],
        "migrations": figures["migrations"],
    }


Rows = Mapping[TraceRun, Mapping[str, Any]]


def experiment(directory: Path, known: Mapping[str, PolicyInfo]) -> Experiment[Rows]:
    """Return the simulations of the jobs in a directory; errors as of `plan`."""
    runs = plan(directory)

    def words(run: TraceRun) -> str:
        return f"Simulated {run.recorded.name}: {run.variant.name}"

    def measured(runner: Runner) -> Rows:
        return runner.all(runs, measure, dict(known), words)

    return Experiment(plan=runs, measure=measured, report=report)


def report(rows: Rows) -> Report:
    """Return the page, with a table for each trace."""
    return pages.report(
        TRACES,
        "Recorded jobs on a tree of GPUs",
        "Times in seconds, diameters in hops; fragmentation: idle GPUs on nodes partly in use, "
        "relative to all GPUs, in the mean over time.",
        pages.checked(claims(rows), rows),
        tables(rows),
    )


def claims(rows: Rows) -> tuple[Claim[Rows], ...]:
    """Return Headgate's own checks on each trace: a placement, and migration, shorten the jobs."""
    recorded = dict.fromkeys(run.recorded for run in rows)
    placed = [c for c in VARIANTS if c.place != FIRST_FIT]
    pairs = [
        (
            replace(c, migrate="never") if c.migrate != "never" else replace(c, place=FIRST_FIT),
            c,
        )
        for c in placed
    ]
    return tuple(_claim(of, before, after) for of in recorded for before, after in pairs)


def _claim(recorded: Recorded, before: TraceVariant, after: TraceVariant) -> Claim[Rows]:
    def check(rows: Rows) -> tuple[bool, Numbers]:
        of = {run.variant: row for run, row in rows.items() if run.recorded == recorded}
        if before not in of or after not in of:
            raise NotRunError
        shown = {c.name: of[c]["mean_jct_s"] for c in (before, after)}
        return of[after]["mean_jct_s"] <= of[before]["mean_jct_s"], shown

    return Claim(
        id=f"traces-{recorded.vc}-{VARIANTS.index(after)}",
        text=f"{recorded.name}: the mean completion time under {after.name} is at most that "
        f"under {before.name}",
        reading="means over all jobs",
        unit="s",
        check=check,
        is_goal=True,
    )


def _nodes(gpus: int) -> tuple[Node, ...]:
    return tuple(
        Node(
            id=f"n{number}",
            rack=f"r{number // RACK_NODES}",
            gpus=(Gpu(memory_bytes=0),) * NODE_GPUS,
            cpus=1 << 20,
        )
        for number in range(gpus // NODE_GPUS)
    )


def tables(rows: Rows) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each trace by its name."""
    found: dict[str, list[dict[str, Any]]] = {}
    for what, row in rows.items():
        found.setdefault(what.recorded.name, []).append(dict(row))
    return found
