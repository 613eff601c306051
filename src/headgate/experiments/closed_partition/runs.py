"""The three sets of jobs on the machine of 32 nodes, under several placements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headgate.experiments.closed_partition.kernels import KERNELS, SIZES, Kernel, Size
from headgate.experiments.closed_partition.machine import Jobs, Load, Split, machine
from headgate.experiments.closed_partition.stream import Place, StreamOutcome, mean, run_stream
from headgate.model.topology import Topology
from headgate.planning.place.choose import BestFitSubtree, Block, ClosedMinimum, Placer, Sequential
from headgate.planning.topology import Request, layout_of

SEQUENTIAL, CLOSED, CLOSED_OR_WAIT = "sequential", "closed-minimum", "closed-minimum or wait"
CLOSED_NEEDED = "closed-minimum, needed nodes"

PLACERS: Mapping[str, Placer] = {
    SEQUENTIAL: Sequential(),
    CLOSED: ClosedMinimum(),
    CLOSED_OR_WAIT: ClosedMinimum(otherwise="wait"),
    "closed-minimum or enlarge": ClosedMinimum(otherwise="enlarge"),
    CLOSED_NEEDED: ClosedMinimum(reserve="needed"),
    "best-fit-subtree": BestFitSubtree(),
    "block": Block(),
}
"""The placements that are compared, by their names in tables."""

JOBS = 400
"""Jobs of a set in one stream."""

_CALIBRATION_SEEDS = (1001, 1002, 1003)
_ROUNDS = 4
_SAME = 0.004


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What the published text leaves open, as assumed in one table.

    `wider` is the bandwidth of a link relative to one below it; `part` of the time that does not
    scale is communication.
    """

    name: str
    load: Load = field(default_factory=Load)
    wider: float = 1.0
    part: float = 1.0


DEFAULT = Variant(name="default")

VARIANTS = (
    DEFAULT,
    Variant(name="less load", load=Load(own=0.1, others=0.2)),
    Variant(name="more load", load=Load(own=0.3, others=0.45)),
    Variant(name="wider links above", wider=2.0),
    Variant(name="half the communication", part=0.5),
)
"""The default, and others that show how much the result depends on what was assumed."""


def place_with(placer: Placer, topology: Topology) -> Place:
    """Return a placer's choice as a function of the leaves in use and the leaves of a job."""
    layout = layout_of(topology)
    return lambda used, count: placer.choose(layout, Request.on(used, count))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRun:
    """One simulation: a set under a placement."""

    variant: Variant
    size: Size
    placer: str
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MeansRow:
    """Means over the jobs of the set in one simulation; of diameters over jobs of several nodes.

    `closed` is the part of these jobs whose set has the least diameter possible.
    """

    mean_s: Mapping[str, float]
    wait_s: float
    slowdown: float
    diameter: float | None
    closed: float | None
    utilisation: float
    shared_links: float


def calibrate(variant: Variant, jobs: int) -> Split:
    """Return the split whose means under sequential placement are the published ones.

    A fixed point: the means are divided by the slowdown that communication had in the last round.
    Class A runs in one node and has none. Seeds differ from those of the experiments.
    """
    split = {(k.name, s.name): _guess(variant, k, s) for k in KERNELS for s in SIZES}
    for _ in range(_ROUNDS):
        off = 0.0
        for size in reversed(SIZES[1:]):
            means_s = _means(variant, size, split, jobs)
            for kernel in KERNELS:
                compute_s, sent_s = split[kernel.name, size.name]
                wanted_s = kernel.published_s(size) - compute_s
                over_s = means_s[kernel.name] - compute_s
                if sent_s > 0 and over_s > 0:
                    split[kernel.name, size.name] = (compute_s, sent_s * wanted_s / over_s)
                    off = max(off, abs(over_s - wanted_s) / kernel.published_s(size))
        if off < _SAME:
            break
    return split


def _guess(variant: Variant, kernel: Kernel, size: Size) -> tuple[float, float]:
    sent_s = variant.part * kernel.rest_s(size)
    return kernel.published_s(size) - sent_s, sent_s


def _means(variant: Variant, size: Size, split: Split, jobs: int) -> dict[str, float]:
    rows = [_simulated(variant, size, SEQUENTIAL, seed, split, jobs) for seed in _CALIBRATION_SEEDS]
    found = {}
    for kernel in KERNELS:
        found[kernel.name] = mean(row.mean_s[kernel.name] for row in rows)
    return found


def plan(seeds: Sequence[int], variants: Sequence[Variant] = VARIANTS) -> tuple[PartitionRun, ...]:
    """Return all runs: every placement under the default, the first two under other variants."""
    first = (SEQUENTIAL, CLOSED)
    return tuple(
        PartitionRun(variant=variant, size=size, placer=placer, seed=seed)
        for variant in variants
        for size in SIZES
        for placer in (PLACERS if variant == DEFAULT else first)
        for seed in seeds
    )


def measure(run: PartitionRun, splits: Mapping[Variant, Split]) -> MeansRow:
    """Execute a run and return its row."""
    return _simulated(run.variant, run.size, run.placer, run.seed, splits[run.variant], JOBS)


def _simulated(
    variant: Variant, size: Size, placer: str, seed: int, split: Split, jobs: int
) -> MeansRow:
    tree = machine(variant.wider)
    drawn = Jobs(tree, split, variant.load).draw(size, jobs, seed)
    return _row(run_stream(tree, drawn, place_with(PLACERS[placer], tree)))


def _row(outcome: StreamOutcome) -> MeansRow:
    own = [ran for ran in outcome.ran if ran.job.measured]
    wide = [ran for ran in own if ran.job.leaves > 1]
    by_kernel: dict[str, list[float]] = {}
    for ran in own:
        by_kernel.setdefault(ran.job.kind, []).append(ran.run_s)
    return MeansRow(
        mean_s={name: mean(times) for name, times in by_kernel.items()},
        wait_s=mean(ran.wait_s for ran in own),
        slowdown=mean(ran.slowdown for ran in own),
        diameter=mean(ran.diameter for ran in wide) if wide else None,
        closed=mean(ran.diameter == ran.least_diameter for ran in wide) if wide else None,
        utilisation=outcome.utilisation,
        shared_links=outcome.shared_links,
    )
