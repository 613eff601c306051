"""Charts of the flow paper's report: GPUs over time, and completion times of jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from headgate.experiments.drawing import LEFT, RIGHT, WIDTH, bar, line, svg, text, ticks, time_axis
from headgate.experiments.flow.runs import Held
from headgate.experiments.flow.tables import Times


def gantt(
    held: Sequence[Held],
    nodes: Sequence[tuple[str, int]],
    kind_number: Mapping[str, int],
    span_s: float,
) -> str:
    """Return a chart of the job on each GPU over time; `nodes` are (id, GPUs), top to bottom.

    A job has the colour of its kind (`kind_number`); charts with equal `span_s` have equal scales.
    """
    row, gap, top = 7.0, 3.0, 6.0
    at: dict[tuple[str, int], float] = {}
    parts, y = [], top
    for node, gpus in nodes:
        parts.append(text(LEFT - 6, y + gpus * row / 2 + 3.5, node, "end small"))
        for gpu in range(gpus):
            at[node, gpu] = y
            parts.append(bar(LEFT, y, WIDTH - LEFT - RIGHT, row - 1, "idle", f"{node}, idle"))
            y += row
        y += gap
    scale = (WIDTH - LEFT - RIGHT) / span_s
    drawn: dict[tuple[str, bool], list[str]] = {}
    for one in held:
        width = max(0.4, (one.end_s - one.start_s) * scale)
        drawn.setdefault((one.job, one.lost), []).append(
            f"M{LEFT + one.start_s * scale:.1f} {at[one.node, one.gpu]:g}"
            f"h{width:.1f}v{row - 1:g}h-{width:.1f}z"
        )
    for (job, lost), paths in drawn.items():
        title = f"{job}, lost" if lost else job
        kind = f"k{kind_number[job]} {'lost' if lost else ''}".strip()
        parts.append(
            f'<path d="{"".join(paths)}" class="{kind}"><title>{escape(title)}</title></path>'
        )
    parts += time_axis(span_s, top, y, scale)
    return svg(y + 20, parts, "jobs on GPUs over time")


def completion(times: Mapping[str, Times], kind_number: Mapping[str, int], most_s: float) -> str:
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
        parts.append(bar(x, y, width, own.run_s * scale, f"k{kind_number[job]}", title))
        for name, ideal in own.ideal_s.items():
            y = top + height - ideal * scale
            parts.append(line(x - 1.5, y, x + width + 1.5, y, f"ideal-{name}"))
        parts.append(text(x + width / 2, bottom + 6, job[1:], "middle small"))
    return svg(bottom + 12, parts, "time per job against its ideals")
