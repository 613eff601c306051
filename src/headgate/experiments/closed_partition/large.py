"""Machines of 1,024 to 16,384 nodes under load, under several placements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headgate.base.rng import stream
from headgate.experiments.closed_partition import LARGE, pages
from headgate.experiments.closed_partition.runs import (
    CLOSED,
    CLOSED_OR_WAIT,
    PLACERS,
    SEQUENTIAL,
    place_with,
)
from headgate.experiments.closed_partition.stream import StreamJob, mean, run_stream
from headgate.experiments.frame.claims import Claim, Numbers
from headgate.experiments.frame.experiment import Experiment, Runner
from headgate.experiments.frame.report import Report
from headgate.model import Communication, Pattern
from headgate.model.topology import Mesh, Topology, Tree
from headgate.planning.links.traffic import BestSets

TREE, MESH = "4-ary tree", "square mesh"
LEVELS = (5, 6, 7)
"""Levels of the trees below the root; the meshes have as many nodes: 1,024, 4,096, 16,384."""

PLACED_BY = (SEQUENTIAL, "best-fit-subtree", CLOSED, CLOSED_OR_WAIT)
JOBS = {5: 450, 6: 450, 7: 1200}
"""Jobs of a stream, by levels; the first third only fills the machine."""

SEED = 1
_K = 4
_WIDER = 1.0  # relative to a link below, as on the published machine
_LOAD = 0.7
_MOST_NODES = 256
_RUN_S = 300.0
_PART = 0.3  # of communication, in the best set, alone
_LINK_BYTES_PER_S = 1e9
_UNIT_BYTES = 10**9
_PATTERNS = (Pattern.NONE, Pattern.RING, Pattern.NEIGHBOURS, Pattern.ALL_TO_ALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeRun:
    """One simulation."""

    shape: str
    levels: int
    placer: str

    @property
    def nodes(self) -> int:
        """The nodes of the machine."""
        return int(_K**self.levels)


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeRow:
    """Means over the jobs after the machine was filled; of diameters over those of several nodes.

    `time_s` is the time from submission to end; `shared_links` are those that carry messages of
    several jobs, in the mean over time.
    """

    utilisation: float
    wait_s: float
    time_s: float
    slowdown: float
    p95_slowdown: float
    diameter: float
    shared_links: float


def plan(levels: Sequence[int] = LEVELS) -> tuple[LargeRun, ...]:
    """Return all runs, the smallest machines first."""
    return tuple(
        LargeRun(shape=shape, levels=level, placer=placer)
        for level in levels
        for shape in (TREE, MESH)
        for placer in PLACED_BY
    )


def topology_of(shape: str, levels: int) -> Topology:
    """Return the machine of a run."""
    if shape == MESH:
        side = 2**levels
        return Mesh((side, side), bandwidth=_LINK_BYTES_PER_S)
    widths = [_LINK_BYTES_PER_S * _WIDER**above for above in reversed(range(levels))]
    return Tree.k_ary(_K, levels, widths)


def draw(topology: Topology, count: int, seed: int) -> Iterator[StreamJob]:
    """Yield a stream of jobs: of 1 to 256 nodes, log-uniform, a quarter with each pattern."""
    rng, best = stream(seed, "large", topology.leaves), BestSets(topology)
    sizes = [round(2 ** rng.uniform(0, _MOST_NODES.bit_length() - 1)) for _ in range(count)]
    gap_s = mean(sizes) * _RUN_S / (_LOAD * topology.leaves)
    at = 0.0
    for number, nodes in enumerate(sizes):
        at += rng.expovariate(1 / gap_s)
        run_s, pattern = rng.expovariate(1 / _RUN_S), rng.choice(_PATTERNS)
        unit = Communication(pattern=pattern, bytes_per_step=_UNIT_BYTES)
        unit_s = best.step_s(unit, nodes)
        part = _PART if unit_s else 0.0
        yield StreamJob(
            submitted_at=at,
            leaves=nodes,
            run_s=run_s,
            communication=Communication(
                pattern=pattern,
                bytes_per_step=round(_UNIT_BYTES * run_s * part / unit_s) if part else 0,
                step_s=run_s * (1 - part),
            ),
            kind=str(pattern),
            measured=number >= count // 3,
        )


def measure(run: LargeRun, jobs: Mapping[int, int]) -> LargeRow:
    """Execute a run, with so many jobs by levels, and return its row."""
    topology = topology_of(run.shape, run.levels)
    drawn = tuple(draw(topology, jobs[run.levels], SEED))
    since = next(job.submitted_at for job in drawn if job.measured)
    outcome = run_stream(topology, drawn, place_with(PLACERS[run.placer], topology), since=since)
    own = [ran for ran in outcome.ran if ran.job.measured]
    slowdowns = sorted(ran.slowdown for ran in own)
    return LargeRow(
        utilisation=outcome.utilisation,
        wait_s=mean(ran.wait_s for ran in own),
        time_s=mean(ran.wait_s + ran.run_s for ran in own),
        slowdown=mean(slowdowns),
        p95_slowdown=slowdowns[int(0.95 * (len(slowdowns) - 1))],
        diameter=mean(ran.diameter for ran in own if ran.job.leaves > 1),
        shared_links=outcome.shared_links,
    )


Rows = Mapping[LargeRun, LargeRow]


def experiment() -> Experiment[Rows]:
    """Return the simulations of all machines."""
    runs = plan()

    def words(run: LargeRun) -> str:
        return f"Simulated {run.shape} of {run.nodes:,} nodes, {run.placer}"

    def measured(runner: Runner) -> Rows:
        return runner.all(runs, measure, JOBS, words)

    return Experiment(plan=runs, measure=measured, report=report)


def report(rows: Rows) -> Report:
    """Return the page, with a table for each machine."""
    return pages.report(
        LARGE,
        "Large machines under load",
        "Means over the jobs after each machine was filled; times in seconds, diameters in hops.",
        pages.checked(claims(rows), rows),
        tables(rows),
    )


def claims(rows: Rows) -> tuple[Claim[Rows], ...]:
    """Return Headgate's own checks, one for each machine."""
    machines = dict.fromkeys((run.shape, run.levels) for run in rows)
    return tuple(_claim(shape, levels) for shape, levels in machines)


def _claim(shape: str, levels: int) -> Claim[Rows]:
    def check(rows: Rows) -> tuple[bool, Numbers]:
        before, after = (
            rows[LargeRun(shape=shape, levels=levels, placer=placer)]
            for placer in (SEQUENTIAL, CLOSED)
        )
        holds = (
            after.diameter < before.diameter
            and after.shared_links < before.shared_links
            and after.slowdown < before.slowdown
            and after.time_s <= before.time_s
        )
        return holds, {
            f"{name}, {placer}": getattr(row, name)
            for name in ("diameter", "shared_links", "slowdown", "time_s")
            for placer, row in ((SEQUENTIAL, before), (CLOSED, after))
        }

    nodes = LargeRun(shape=shape, levels=levels, placer=CLOSED).nodes
    return Claim(
        id=f"large-{shape.replace(' ', '-')}-{nodes}",
        text=f"{shape} of {nodes:,} nodes: closed-minimum sets have less diameter, shared links "
        "and slowdown than sequential ones, and jobs end no later",
        reading="means over the jobs after the machine was filled",
        unit="number",
        check=check,
        is_goal=True,
    )


def tables(rows: Rows) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each machine by its name."""
    found: dict[str, list[dict[str, Any]]] = {}
    for run, row in rows.items():
        name = f"{run.shape}, {run.nodes:,} nodes"
        found.setdefault(name, []).append({"placement": run.placer, **asdict(row)})
    return found
