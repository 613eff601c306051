"""Charts of the flow paper's report: GPUs over time, and completion times of jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headgate.experiments.flow.runs import HeldInterval
from headgate.experiments.flow.tables import MeanTimes
from headgate.reports.colours import fill
from headgate.reports.drawing import (
    LEFT,
    RIGHT,
    WIDTH,
    GpuSpan,
    bar,
    gpus_over_time,
    line,
    svg,
    text,
    ticks,
)


def gantt(
    held: Sequence[HeldInterval],
    nodes: Sequence[tuple[str, int]],
    span_s: float,
) -> str:
    """Return a chart of the job on each GPU over time; `nodes` are (id, GPUs), top to bottom.

    Charts with equal `span_s` have equal scales.
    """
    spans = [
        GpuSpan(
            node=one.node,
            gpu=one.gpu,
            start_s=one.start_s,
            end_s=one.end_s,
            job=one.job,
            css_class="lost" if one.lost else "",
            title=f"{one.job}, lost" if one.lost else one.job,
        )
        for one in held
    ]
    return gpus_over_time(spans, nodes, span_s, title="jobs on GPUs over time")


def completion(times: Mapping[str, MeanTimes], most_s: float) -> str:
    """Return a chart with a bar for each job's time, and marks for its two ideals."""
    height, bottom, top = 120.0, 134.0, 8.0
    step = (WIDTH - LEFT - RIGHT) / max(1, len(times))
    scale = height / most_s
    parts = []
    for at_s in ticks(most_s):
        y = top + height - at_s * scale
        parts.append(line(LEFT, y, WIDTH - RIGHT, y, "grid"))
        parts.append(text(LEFT - 6, y + 3.5, f"{at_s:g} s", "end small"))
    for number, (job, own) in enumerate(times.items()):
        x, width = LEFT + number * step + 2, step - 4
        ideals = ", ".join(f"{name} {ideal:.1f} s" for name, ideal in own.ideal_s.items())
        title = f"{job}: {own.run_s:.1f} s; ideal: {ideals}"
        y = top + height - own.run_s * scale
        parts.append(bar(x, y, width, own.run_s * scale, "", title, fill(job)))
        for name, ideal in own.ideal_s.items():
            y = top + height - ideal * scale
            parts.append(line(x - 1.5, y, x + width + 1.5, y, f"ideal-{name}"))
        parts.append(text(x + width / 2, bottom + 6, job[1:], "middle small"))
    return svg(bottom + 12, parts, "time per job against its ideals")
