"""The report on packing: policies beside their published figures, and their curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from headgate.experiments.packing import COMMAND
from headgate.experiments.packing.runs import HEADGATE, Outcome, Run
from headgate.experiments.packing.workload import ARRIVED, Workload
from headgate.reports import pages
from headgate.reports.drawing import Axis, bars, curves

PAGE = "report.html"

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

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON."""
        return asdict(self)


def reached(outcomes: Mapping[Run, Outcome], workload: Workload) -> list[Reached]:
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


def cells(one: Reached) -> list[str]:
    """Return the cells of a row: percents, `-` where nothing is published."""
    return [
        one.policy,
        *(
            "-" if value is None else f"{value:.2%}"
            for value in (
                one.gpu_allocated_ratio,
                one.deviation,
                one.published_allocated_ratio,
                one.fragmentation_ratio,
                one.published_fragmentation_ratio,
            )
        ),
    ]


def write(
    directory: Path,
    rows: Sequence[Reached],
    outcomes: Mapping[Run, Outcome],
    workload: Workload,
) -> None:
    """Write the page, and as CSV a row per run and the curves."""
    own = [*outcomes.values()]
    figures = ("policy", "seed", "gpu_allocated_ratio", "fragmentation_ratio")
    table = pa.table({name: [getattr(o, name) for o in own] for name in figures})
    pa.csv.write_csv(table, directory / "rows.csv")
    points = [(o.policy, o.seed, *point) for o in own for point in o.curve]
    names = ("policy", "seed", "arrived_ratio", "allocated_ratio")
    columns = [*zip(*points, strict=True)]
    pa.csv.write_csv(
        pa.table(dict(zip(names, map(list, columns), strict=True))), directory / "curves.csv"
    )
    (directory / PAGE).write_text(page(rows, own, workload), encoding="utf-8")


_HEAD = ("policy", "GPUs allocated", "deviation", "published", "fragmented", "published")


def page(rows: Sequence[Reached], outcomes: Sequence[Outcome], workload: Workload) -> str:
    """Return the whole page."""
    nodes, gpus = len(workload.nodes.gpus), sum(workload.nodes.gpus)
    known = any(row.published_allocated_ratio is not None for row in rows)
    words = (
        f"{len(workload.pods):,} recorded pods on {nodes:,} nodes with {gpus:,} GPUs, in random "
        f"order, {rows[0].seeds} order{'s' * (rows[0].seeds > 1)}; no pod leaves. "
        "Figures are read when pods have arrived "
        "that together ask for as many GPUs as there are; deviations are between orders. "
    )
    words += (
        "These are the default pods of Alibaba's trace of 2023; published are means of 10 orders."
        if known
        else "Published figures are of other pods and nodes, and not shown."
    )
    kept = [n for n, name in enumerate(_HEAD) if known or name != "published"]
    made = [[escape(cell) for cell in cells(row)] for row in rows]
    table = pages.grid([_HEAD[n] for n in kept], [[row[n] for n in kept] for row in made])
    nav, body = pages.sections(
        [
            ("GPUs allocated", table + _bars(rows, known=known)),
            ("Allocated over arrived load", _curves(outcomes)),
        ]
    )
    title = "Packing of recorded pods under several policies"
    return pages.document(
        title, f"<h1>{title}</h1><p>{escape(words)}</p>{nav}{body}", command=COMMAND
    )


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


def _curves(outcomes: Sequence[Outcome]) -> str:
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
