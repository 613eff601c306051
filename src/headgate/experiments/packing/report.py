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
from headgate.reports.drawing import LEFT, RIGHT, WIDTH, bars, line, svg, text, ticks

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


def reached(outcomes: Mapping[Run, Outcome]) -> list[Reached]:
    """Return a row per policy, in the order of the runs; the deviation is that of the sample."""
    found = []
    for policy in dict.fromkeys(run.policy for run in outcomes):
        own = [o for run, o in outcomes.items() if run.policy == policy]
        allocated = np.array([o.gpu_allocated_ratio for o in own])
        published = PUBLISHED.get(policy, (None, None))
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
    words = (
        f"{len(workload.pods):,} recorded pods on {nodes:,} nodes with {gpus:,} GPUs, in random "
        f"order, {rows[0].seeds} orders; no pod leaves. Figures are read when pods have arrived "
        "that together ask for as many GPUs as there are; deviations are between orders."
    )
    table = pages.grid(_HEAD, [[escape(cell) for cell in cells(row)] for row in rows])
    shown = {
        row.policy: {
            "here": 100 * row.gpu_allocated_ratio,
            **(
                {"published": 100 * row.published_allocated_ratio}
                if row.published_allocated_ratio
                else {}
            ),
        }
        for row in rows
    }
    drawn = bars(shown, ("here", "published"), most=100.0, form="{:.2f} %", left=120.0)
    named = pages.legend((("bs0", "here"), ("bs1", "published")))
    nav, body = pages.sections(
        [
            ("GPUs allocated", table + named + drawn),
            ("Allocated over arrived load", _curves(outcomes)),
        ]
    )
    title = "Packing of recorded pods under several policies"
    return pages.document(
        title, f"<h1>{title}</h1><p>{escape(words)}</p>{nav}{body}", command=COMMAND
    )


_FROM = 0.8  # of the arrived load: before that all policies allocate everything
_HEIGHT, _TOP = 320.0, 10.0


def _curves(outcomes: Sequence[Outcome]) -> str:
    """Return the mean curve of each policy."""
    policies = [*dict.fromkeys(o.policy for o in outcomes)]
    across, up = (WIDTH - LEFT - RIGHT) / (ARRIVED - _FROM), _HEIGHT / (1 - _FROM)
    bottom = _TOP + _HEIGHT
    parts = []
    for mark in ticks(ARRIVED):
        if _FROM <= mark <= ARRIVED:
            x = LEFT + (mark - _FROM) * across
            parts += [
                line(x, _TOP, x, bottom, "grid"),
                text(x, bottom + 14, f"{mark:.0%}", "middle small"),
            ]
    for percent in range(round(100 * _FROM), 101, 5):
        y = bottom - (percent / 100 - _FROM) * up
        parts += [
            line(LEFT, y, WIDTH - RIGHT, y, "grid"),
            text(LEFT - 6, y + 4, f"{percent} %", "end small"),
        ]
    for number, policy in enumerate(policies):
        own = [np.array(o.curve) for o in outcomes if o.policy == policy]
        mean = np.mean(own, axis=0)
        mean = mean[(mean[:, 0] >= _FROM) & (mean[:, 1] >= _FROM)]
        points = " ".join(
            f"{LEFT + (x - _FROM) * across:.1f},{bottom - (y - _FROM) * up:.1f}" for x, y in mean
        )
        width = 2.5 if policy == HEADGATE else 1.5
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="var(--k{number})" '
            f'stroke-width="{width}"><title>{escape(policy)}</title></polyline>'
        )
    named = pages.legend((f"b{number}", policy) for number, policy in enumerate(policies))
    return named + svg(bottom + 24, parts, "allocated GPUs")
