"""The report on packing: policies beside their published figures, and their curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path

import numpy as np

from headgate.experiments.frame.experiment import Experiment, Runner
from headgate.experiments.frame.report import Report, Table
from headgate.experiments.packing import PAPER
from headgate.experiments.packing.runs import HEADGATE, PackingOutcome, PackingRun, pack_files
from headgate.experiments.packing.workload import ARRIVED, Workload
from headgate.reports import pages
from headgate.reports.drawing import Axis, bars, curves

PUBLISHED: Mapping[str, tuple[float, float]] = {
    "random": (0.8630, 0.1349),
    "dot-product": (0.9062, 0.0930),
    "gpu-clustering": (0.9165, 0.0822),
    "gpu-packing": (0.9178, 0.0813),
    "best-fit": (0.9286, 0.0706),
    "fgd": (0.9523, 0.0473),
}
"""Allocated and fragmented at an arrived load of 1: means of 10 orders of the default pods.

From hkust-adsl/kubernetes-scheduler-simulator (Apache-2.0), the artifacts of Weng et al., USENIX
ATC 2023.
"""

PUBLISHED_DIGEST = "393e42c1634af2f4affbb3e7adc7270dcea54020bd015046486c35cf107fbdcb"
"""`Workload.digest` of the pods and nodes that these figures are of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What a policy reaches in the mean over orders, and what is published, None of ours."""

    policy: str
    seeds: int
    gpu_allocated_ratio: float
    deviation: float
    fragmentation_ratio: float
    published_allocated_ratio: float | None
    published_fragmentation_ratio: float | None


def reached(outcomes: Mapping[PackingRun, PackingOutcome], workload: Workload) -> list[Reached]:
    """Return a row per policy, in the order of the runs; the deviation is that of the sample.

    Published figures stand beside those of the published pods and nodes only.
    """
    beside = PUBLISHED if workload.digest == PUBLISHED_DIGEST else {}
    found = []
    for policy in dict.fromkeys(run.policy for run in outcomes):
        own = [o for run, o in outcomes.items() if run.policy == policy]
        allocated = np.array([o.gpu_allocated_ratio for o in own])
        published = beside.get(policy, (None, None))
        found.append(
            Reached(
                policy=policy,
                seeds=len(own),
                gpu_allocated_ratio=float(allocated.mean()),
                deviation=float(allocated.std(ddof=1)) if len(own) > 1 else 0.0,
                fragmentation_ratio=float(np.mean([o.fragmentation_ratio for o in own])),
                published_allocated_ratio=published[0],
                published_fragmentation_ratio=published[1],
            )
        )
    return found


def experiment(
    policies: Sequence[str], seeds: int, workload: Workload, files: tuple[Path, Path]
) -> Experiment[Mapping[PackingRun, PackingOutcome]]:
    """Return the packing of a workload, which is read again from its files in every process."""
    runs = [PackingRun(name, seed) for seed in range(seeds) for name in dict.fromkeys(policies)]

    def measure(runner: Runner) -> Mapping[PackingRun, PackingOutcome]:
        return runner.all(
            runs, pack_files, files, lambda run: f"Packed with {run.policy}, seed {run.seed}"
        )

    return Experiment(
        plan=runs,
        measure=measure,
        report=lambda outcomes: report(outcomes, workload),
        doing="Packing",
    )


def report(outcomes: Mapping[PackingRun, PackingOutcome], workload: Workload) -> Report:
    """Return the page, and as files a row per run and the curves."""
    own, rows = [*outcomes.values()], reached(outcomes, workload)
    known = any(row.published_allocated_ratio is not None for row in rows)
    figures = ("policy", "seed", "gpu_allocated_ratio", "fragmentation_ratio")
    points = [(o.policy, o.seed, *point) for o in own for point in o.curve]
    names = ("policy", "seed", "arrived_ratio", "allocated_ratio")
    return Report(
        paper=PAPER,
        title="Packing of recorded pods under several policies",
        words=escape(_words(rows, workload, known=known)),
        claims=None,
        sections=(
            ("GPUs allocated", _table(rows).html() + _bars(rows, known=known)),
            ("Allocated over arrived load", _curves(own)),
        ),
        files={
            "rows.csv": {name: [getattr(o, name) for o in own] for name in figures},
            "curves.csv": dict(zip(names, map(list, zip(*points, strict=True)), strict=True)),
        },
        shown=(_table(rows),),
        facts={"rows": [asdict(row) for row in rows]},
    )


def _table(rows: Sequence[Reached]) -> Table:
    """Return a row per policy, in percent."""

    def percent(value: float | None) -> str | None:
        return None if value is None else f"{value:.2%}"

    return Table(
        head=("policy", "GPUs allocated", "deviation", "published", "fragmented", "published"),
        brief=("POLICY", "ALLOCATED", "DEVIATION", "PUBLISHED", "FRAGMENTED", "PUBLISHED"),
        rows=[
            [
                row.policy,
                percent(row.gpu_allocated_ratio),
                percent(row.deviation),
                percent(row.published_allocated_ratio),
                percent(row.fragmentation_ratio),
                percent(row.published_fragmentation_ratio),
            ]
            for row in rows
        ],
    )


def _words(rows: Sequence[Reached], workload: Workload, *, known: bool) -> str:
    nodes, gpus = len(workload.nodes.gpus), sum(workload.nodes.gpus)
    words = (
        f"{len(workload.pods):,} recorded pods on {nodes:,} nodes with {gpus:,} GPUs, in random "
        f"order, {rows[0].seeds} order{'s' * (rows[0].seeds > 1)}; no pod leaves. "
        "Figures are read when pods have arrived "
        "that together ask for as many GPUs as there are; deviations are between orders. "
    )
    if known:
        return words + (
            "These are the default pods of Alibaba's trace of 2023; published are means of 10 "
            "orders."
        )
    return words + "Published figures are of other pods and nodes, and not shown."


def _bars(rows: Sequence[Reached], *, known: bool) -> str:
    """Return bars of what is allocated, beside the published ones where they are `known`."""
    series = ("here", "published") if known else ("here",)
    shown = {}
    for row in rows:
        pair = (row.gpu_allocated_ratio, row.published_allocated_ratio)
        values = zip(series, pair, strict=False)
        shown[row.policy] = {name: 100 * ratio for name, ratio in values if ratio is not None}
    drawn = bars(shown, series, most=100.0, form="{:.2f} %", title="GPUs allocated, by policy")
    return pages.legend((f"b{number}", name) for number, name in enumerate(series)) + drawn


_FROM = 0.8  # of the arrived load: before that all policies allocate everything


def _curves(outcomes: Sequence[PackingOutcome]) -> str:
    """Return the mean curve of each policy."""
    series = {}
    for policy in dict.fromkeys(o.policy for o in outcomes):
        mean = np.mean([np.array(o.curve) for o in outcomes if o.policy == policy], axis=0)
        mean = mean[(mean[:, 0] >= _FROM) & (mean[:, 1] >= _FROM)]
        series[policy] = [(float(x), float(y)) for x, y in mean]
    percents = {percent / 100: f"{percent} %" for percent in range(round(100 * _FROM), 131, 5)}
    across = Axis(least=_FROM, most=ARRIVED, marks=percents, words="arrived load, of all GPUs")
    shares = {share: label for share, label in percents.items() if share <= 1}
    up = Axis(least=_FROM, most=1.0, marks=shares, words="allocated, of all GPUs")
    drawn = curves(series, across, up, title="allocated GPUs over arrived load", best=HEADGATE)
    return pages.legend((f"b{number}", policy) for number, policy in enumerate(series)) + drawn
