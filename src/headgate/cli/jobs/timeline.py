"""The time line of `headgate plan`: runs, and the reservations that wait for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from headgate.base.errors import Problem, SpecError
from headgate.base.text import visible
from headgate.base.units import format_seconds
from headgate.cli.common import output

View = dict[str, Any]

COMMAND = "plan"
_RUNS_MOST = 12
_NODES_NAMED = 3
_LEAST_WIDTH, _PLAIN_WIDTH, _LABEL_WIDTH = 16, 72, 14  # cells of the chart, and of a label
_HEADINGS = ("TIME LINE", "GPUS", "NODES", "STARTS", "ENDS")
_LANES_MOST = 256  # rows of a chart with one per GPU


@dataclass(slots=True)
class _Line:
    """One line: a job's runs from now on, or its reservation; times in seconds from now."""

    job: str
    starts_s: float | None  # None if unknown
    ends_s: float | None
    runs: bool
    gpus: set[tuple[str, int]] = field(default_factory=set)  # node, index

    def cells(self) -> tuple[object, ...]:
        nodes = list(dict.fromkeys(node for node, _ in sorted(self.gpus)))
        named = ", ".join(nodes[:_NODES_NAMED])
        more = len(nodes) - _NODES_NAMED
        starts = "runs" if self.runs else _in(self.starts_s)
        on = f"{named}, +{more}" if more > 0 else named
        return self.job, len(self.gpus), on, starts, _in(self.ends_s)

    def bar(self, width: int, span_s: float) -> str:
        """Return `=` for a run, `.` for waiting, `#` for what is reserved, `>` past the edge."""
        wait = 0 if self.runs else width
        if self.starts_s is not None:
            wait = min(width - 1, int(self.starts_s / span_s * width))
        end = width
        if self.ends_s is not None:
            end = min(width, max(wait + 1, round(self.ends_s / span_s * width)))
        past = self.ends_s is None or self.ends_s > span_s
        bar = "." * wait + ("=" if self.runs else "#") * (end - wait)
        return bar[:-1] + ">" if past and end > wait else bar


def _in(ahead_s: float | None) -> str:
    if ahead_s is None:
        return "unknown"
    return f"in {format_seconds(ahead_s)}" if ahead_s >= 0.05 else "now"


def _lines(reservations: Sequence[View], now: float) -> list[_Line]:
    """Return the runs that reservations wait for, by job and end, then the reservations."""

    def ahead(at: float | None) -> float | None:
        return None if at is None else max(0.0, at - now)

    runs: dict[str, _Line] = {}
    lines = []
    for each in reservations:
        for held in each["waits_for"]:
            job, ends_s = held["task"].rpartition("/")[0], ahead(held["until"])
            line = runs.setdefault(job, _Line(job, 0.0, 0.0, runs=True))
            unknown = line.ends_s is None or ends_s is None
            line.ends_s = None if unknown else max(line.ends_s or 0.0, ends_s or 0.0)
            line.gpus.update((held["node"], gpu) for gpu in held["gpus"])
        line = _Line(each["job"], ahead(each["at"]), ahead(each["until"]), runs=False)
        line.gpus.update((place["node"], gpu) for place in each["places"] for gpu in place["gpus"])
        lines.append(line)
    return [*sorted(runs.values(), key=_end), *lines]


def _end(line: _Line) -> float:
    return float("inf") if line.ends_s is None else line.ends_s


def _span_s(lines: Sequence[_Line]) -> float:
    """Return the time that a chart shows: all starts, and ends that are not far beyond them."""
    starts = [line.starts_s for line in lines if line.starts_s is not None]
    ends = [line.ends_s for line in lines if line.ends_s is not None]
    last = max(starts, default=0.0)
    return max(1.0, last * 1.1, min(max(ends, default=0.0), max(60.0, 3 * last)))


def print_timeline(reservations: Sequence[View], now: float) -> None:
    """Print the reservations and the runs that they wait for, as wide as the terminal is."""
    from headgate.reports.drawing import time_ticks

    lines = _lines(reservations, now)
    shown = [line for line in lines if line.runs][-_RUNS_MOST:]
    hidden = sum(line.runs for line in lines) - len(shown)
    shown += [line for line in lines if not line.runs]
    rows = [line.cells() for line in shown]
    console = output.stdout()
    width = _PLAIN_WIDTH
    if console.is_terminal:
        columns = zip(_HEADINGS, *rows, strict=True)
        widths = [max(len(visible(str(cell))) for cell in column) for column in columns]
        width = max(_LEAST_WIDTH, console.width - sum(widths) - 2 * len(widths))
    span_s = _span_s(shown)
    axis = _axis(time_ticks(span_s, width // _LABEL_WIDTH), width, span_s)
    output.print_text("")
    output.print_table(
        (*_HEADINGS, axis),
        [(*cells, line.bar(width, span_s)) for line, cells in zip(shown, rows, strict=True)],
    )
    if hidden:
        output.print_note(f"and runs of {output.counted(hidden, 'more job')} that end before")


def _axis(times: Mapping[float, str], width: int, span_s: float) -> str:
    """Return the labels of times, each from its place on."""
    axis = ""
    for at_s, label in times.items():
        place = int(at_s / span_s * width)
        if len(axis) <= place and place + len(label) <= width:
            axis = axis.ljust(place) + f"{label} "
    return axis.rstrip()


# --- as a page -----------------------------------------------------------------------------------


def check_page(page: Path) -> None:
    """Raise SpecError `usage` for a file that is no page of an earlier plan."""
    from headgate.reports.pages import is_ours

    if page.exists() and not is_ours(page, COMMAND):
        hint = "name a new file, or the page of an earlier plan"
        problem = f"{page} exists and is no page of headgate plan"
        raise SpecError([Problem(path="--report", problem=problem, hint=hint)], code="usage")


def write_page(page: Path, policy: str, reservations: Sequence[View], now: float) -> None:
    """Write the reservations as a page with a chart; raise WorldError `cannot_write`."""
    from headgate.reports.pages import document, grid, legend

    lines = _lines(reservations, now)
    rows = [[escape(visible(str(cell))) for cell in line.cells()] for line in lines]
    jobs = dict.fromkeys(line.job for line in lines)
    body = f"<h1>Reservations</h1><p>Policy {escape(visible(policy))}. "
    if any(not line.runs for line in lines):
        states = (("breserved", "outlined: reserved"), ("bidle", "nothing known"))
        named = legend(states, [(job, visible(job)) for job in jobs])
        body += (
            "A row per GPU: the runs that have it, then the job for which it is reserved. A job "
            "has the same colour and hatch here and in <code>headgate topology --svg</code>.</p>"
            f"{named}{_chart(lines)}{grid(('Job', 'GPUs', 'Nodes', 'Starts', 'Ends'), rows)}"
        )
    else:
        body += "No GPU is reserved.</p>"
    try:
        page.write_text(document("Headgate plan", body, command=COMMAND))
    except OSError as error:
        raise output.cannot_write(page, error) from error


def _chart(lines: Sequence[_Line]) -> str:
    from headgate.reports.drawing import GpuSpan, gpus_over_time, time_ticks

    span_s = _span_s(lines)
    places = sorted({gpu for line in lines for gpu in line.gpus})
    by_node = len(places) > _LANES_MOST
    lanes: dict[str, list[int]] = {}
    for node, gpu in places:
        lanes.setdefault(node, []).append(gpu)
    spans = []
    for line in lines:
        start_s = span_s if line.starts_s is None else line.starts_s
        end_s = span_s if line.ends_s is None else min(span_s, line.ends_s)
        title = f"{visible(line.job)}: {'runs' if line.runs else 'reserved'}"
        lane = {(node, 0 if by_node else lanes[node].index(gpu)) for node, gpu in line.gpus}
        spans += [
            GpuSpan(
                node=node,
                gpu=number,
                start_s=start_s,
                end_s=max(start_s, end_s),
                job=visible(line.job),
                title=title,
                css_class="" if line.runs else "reserved",
            )
            for node, number in sorted(lane)
        ]
    nodes = [(node, 1 if by_node else len(gpus)) for node, gpus in lanes.items()]
    times = time_ticks(span_s, 8)
    title = "runs and reservations over time"
    return gpus_over_time(spans, nodes, span_s, title=title, times=times, named=True)
