"""Charts of reports: SVG as text, coloured by job or by the CSS classes of the pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain

from headgate.base.units import format_seconds
from headgate.reports import colours

WIDTH = 900
"""The width of charts that scroll on narrow screens, in SVG units."""

_NARROW = 560
"""The width of charts of bars, which shrink with the screen while their words stay legible."""

LEFT, RIGHT = 78, 12
"""The margins for labels, in SVG units."""


def svg(height: float, parts: Sequence[str], title: str, width: int = WIDTH) -> str:
    """Return a chart of these SVG elements, as HTML; `title` is its label for screen readers."""
    fits = "" if width == WIDTH else " fits"
    return (
        f'<div class="chart{fits}" tabindex="0"><svg viewBox="0 0 {width} {height:g}" role="img" '
        f'aria-label="{escape(title)}">{"".join(parts)}</svg></div>'
    )


_MOST_NAME = 240.0  # of the margin for names, in SVG units
_LETTER = 6.9  # width of a letter of names, in the mean


def margin_for(names: Iterable[str], least: float = LEFT) -> float:
    """Return the left margin that these names need."""
    longest = max(map(len, names), default=0)
    return min(_MOST_NAME, max(least, longest * _LETTER + 12))


def shortened(name: str, width: float) -> str:
    """Return a name that fits, with `…` for its end if it is too long."""
    most = max(1, int(width / _LETTER))
    return name if len(name) <= most else f"{name[: most - 1]}…"


def text(x: float, y: float, words: str, css_class: str = "") -> str:
    """Return a text element; `words` are escaped."""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{css_class}">{escape(words)}</text>'


def bar(
    x: float, y: float, width: float, height: float, css_class: str, title: str, fill: str = ""
) -> str:
    """Return a rectangle with a tooltip; `fill` paints it where its CSS class does not."""
    painted = f' fill="{fill}"' if fill else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.0, width):.1f}" height="{height:g}" '
        f'class="{css_class}"{painted}><title>{escape(title)}</title></rect>'
    )


def line(x1: float, y1: float, x2: float, y2: float, css_class: str) -> str:
    """Return a straight line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{css_class}"/>'


def ticks(most: float) -> list[float]:
    """Return round numbers from 0 up to `most`: steps of 1, 2 or 5, at most eight of them."""
    powers = (10.0**exponent for exponent in range(-6, 12))
    step = next(p * m for p in powers for m in (1, 2, 5) if most <= 8 * p * m)
    return [round(number * step, 6) for number in range(int(most / step + 1e-9) + 1)]


_STEPS_S = (
    *(1, 2, 5, 10, 15, 30),
    *(60 * number for number in (1, 2, 5, 10, 15, 30)),
    *(3600 * number for number in (1, 2, 3, 6, 12)),
    *(86400 * number for number in (1, 2, 5)),
)


def time_ticks(span_s: float, most: int) -> dict[float, str]:
    """Return round times from now up to `span_s`, at most `most` after the first, with labels."""
    days = (5.0 * 86400 * 2**power for power in range(1, 64))
    step_s = next(step for step in chain(_STEPS_S, days) if span_s <= max(1, most) * step)
    times = {number * step_s: format_seconds(number * step_s) for number in range(1, most + 1)}
    return {0.0: "now"} | {at_s: label for at_s, label in times.items() if at_s <= span_s}


def time_axis(
    times: Mapping[float, str], top: float, bottom: float, scale: float, left: float = LEFT
) -> list[str]:
    """Return grid lines at times, in seconds, with their labels below."""
    parts = []
    for at_s, label in times.items():
        x = left + at_s * scale
        parts.append(line(x, top - 3, x, bottom, "grid"))
        anchor = "end" if x + 20 > WIDTH else "middle"
        parts.append(text(min(x, WIDTH - 1.0), bottom + 12, label, f"{anchor} small"))
    return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpan:
    """A job's interval on one GPU of a node, in seconds from the left edge of a chart."""

    node: str
    gpu: int
    start_s: float
    end_s: float
    job: str
    title: str
    css_class: str = ""


@dataclass(frozen=True, slots=True)
class _Lanes:
    """The rows of a chart: a row per GPU, from the left margin on."""

    y_of: Mapping[tuple[str, int], float]
    height: float
    left: float
    scale: float

    def bounds(self, span: GpuSpan) -> tuple[float, float, float]:
        """Return the left edge, the top and the width of an interval."""
        width = max(0.4, (span.end_s - span.start_s) * self.scale)
        return self.left + span.start_s * self.scale, self.y_of[span.node, span.gpu], width


def gpus_over_time(
    spans: Sequence[GpuSpan],
    nodes: Sequence[tuple[str, int]],
    span_s: float,
    *,
    title: str,
    times: Mapping[float, str] | None = None,
    named: bool = False,
) -> str:
    """Return a chart with a row per GPU; `nodes` are (id, GPUs), top to bottom.

    Charts with equal `span_s` and nodes have equal scales. `times` are the labels of the axis, by
    seconds; without them it is labelled in seconds. With `named`, the jobs' names are on them.
    """
    row, gap, top = (17.0 if named else 7.0), 3.0, 6.0
    left = margin_for((node for node, _ in nodes))
    y_of: dict[tuple[str, int], float] = {}
    parts, y = [], top
    for node, gpus in nodes:
        words = shortened(node, left - 12)
        parts.append(text(left - 6, y + gpus * row / 2 + 3.5, words, "end small"))
        for gpu in range(gpus):
            y_of[node, gpu] = y
            parts.append(bar(left, y, WIDTH - left - RIGHT, row - 1, "idle", f"{node}, idle"))
            y += row
        y += gap
    lanes = _Lanes(y_of, row, left, (WIDTH - left - RIGHT) / span_s)
    labels = {at_s: f"{at_s:g} s" for at_s in ticks(span_s)} if times is None else times
    parts += time_axis(labels, top, y, lanes.scale, left)
    parts += _drawn(spans, lanes)
    if named:
        parts += _names(spans, lanes)
    return svg(y + 20, parts, title)


def _drawn(spans: Sequence[GpuSpan], lanes: _Lanes) -> list[str]:
    """Return a path for the intervals of each job that look the same."""
    drawn: dict[tuple[str, str, str], list[str]] = {}
    for one in spans:
        x, y, width = lanes.bounds(one)
        drawn.setdefault((one.title, one.css_class, colours.fill(one.job)), []).append(
            f"M{x:.1f} {y:g}h{width:.1f}v{lanes.height - 1:g}h-{width:.1f}z"
        )
    return [
        f'<path d="{"".join(paths)}" class="{css_class}" fill="{fill}">'
        f"<title>{escape(words)}</title></path>"
        for (words, css_class, fill), paths in drawn.items()
    ]


def _names(spans: Sequence[GpuSpan], lanes: _Lanes) -> list[str]:
    """Return the names of jobs on their intervals, where they fit."""
    parts = []
    for one in spans:
        x, y, width = lanes.bounds(one)
        if len(one.job) * _LETTER + 8 <= width:
            parts.append(
                f'<text x="{x + 4:.1f}" y="{y + lanes.height / 2 + 3:.1f}" class="named" '
                f'style="fill:{colours.ink(one.job)};stroke:{colours.ground(one.job)}">'
                f"{escape(one.job)}</text>"
            )
    return parts


def bars(
    rows: Mapping[str, Mapping[str, float]],
    series: Sequence[str],
    *,
    most: float,
    form: str,
    title: str,
) -> str:
    """Return horizontal bars: per row one of each series, labelled with its number."""
    height, gap, top = 13.0, 8.0, 4.0
    left = margin_for(rows)
    scale = (_NARROW - left - 90) / most
    parts, y = [], top
    for label, values in rows.items():
        shown = [name for name in series if name in values]
        words = shortened(label, left - 12)
        parts.append(text(left - 6, y + len(shown) * height / 2 + 4, words, "end"))
        for name in shown:
            value = values[name]
            css_class = f"k{series.index(name)}"
            parts.append(
                bar(left, y, value * scale, height - 2, css_class, f"{label}, {name}: {value:.3f}")
            )
            parts.append(text(left + value * scale + 5, y + 9.5, form.format(value), "small"))
            y += height
        y += gap
    parts.append(line(left, 0, left, y - gap + 2, "axis"))
    return svg(y, parts, title, _NARROW)


def stacked(rows: Mapping[str, Sequence[float]], names: Sequence[str], *, most: float) -> str:
    """Return stacked horizontal bars of bytes, with the share of each part if it fits."""
    height, gap, top = 18.0, 8.0, 4.0
    left = margin_for(rows)
    scale = (_NARROW - left - 80) / most
    parts, y = [], top
    for label, values in rows.items():
        parts.append(text(left - 6, y + 13, shortened(label, left - 12), "end"))
        x, total = left, sum(values)
        for number, (name, value) in enumerate(zip(names, values, strict=True)):
            width, share = value * scale, value / total if total else 0.0
            title = f"{label}, {name}: {value / 1e9:.1f} GB, {share:.1%}"
            parts.append(bar(x, y, width, height, f"k{number}", title))
            if width > 44:
                css_class = f"middle inside on{number}"
                parts.append(text(x + width / 2, y + 13, f"{share:.1%}", css_class))
            x += width
        parts.append(text(x + 5, y + 13, f"{total / 1e9:.0f} GB", "small"))
        y += height + gap
    return svg(y, parts, "bytes by locality", _NARROW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis of a chart of curves: its ends, its marks with their labels, and what it shows."""

    least: float
    most: float
    marks: Mapping[float, str]
    words: str


def curves(
    series: Mapping[str, Sequence[tuple[float, float]]],
    across: Axis,
    up: Axis,
    *,
    title: str,
    best: str = "",
) -> str:
    """Return a curve of (x, y) for each of the series, in the order of its colours."""
    top, height = 24.0, 300.0
    bottom, wide = top + height, WIDTH - LEFT - RIGHT - 20

    def x_of(value: float) -> float:
        return LEFT + (value - across.least) / (across.most - across.least) * wide

    def y_of(value: float) -> float:
        return bottom - (value - up.least) / (up.most - up.least) * height

    parts = [text(4, 12, up.words, "small")]
    for value, label in up.marks.items():
        parts.append(line(LEFT, y_of(value), LEFT + wide, y_of(value), "grid"))
        parts.append(text(LEFT - 6, y_of(value) + 4, label, "end small"))
    for value, label in across.marks.items():
        parts.append(line(x_of(value), top, x_of(value), bottom, "grid"))
        parts.append(text(x_of(value), bottom + 14, label, "middle small"))
    parts.append(text(LEFT + wide / 2, bottom + 32, across.words, "middle small"))
    for number, (name, points) in enumerate(series.items()):
        drawn = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in points)
        css_class = f"line{number % len(colours.COLOURS)}{' best' * (name == best)}"
        parts.append(
            f'<polyline points="{drawn}" class="{css_class}">'
            f"<title>{escape(name)}</title></polyline>"
        )
    return svg(bottom + 40, parts, title)
