"""Charts of reports: SVG as text, coloured by the CSS classes of the pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain

from headgate.base.units import format_seconds

WIDTH = 900
"""The width of every chart, in SVG units."""

LEFT, RIGHT = 78, 12
"""The margins for labels, in SVG units."""


def svg(height: float, parts: Sequence[str], title: str) -> str:
    """Return a chart of these SVG elements, as HTML; `title` is its label for screen readers."""
    return (
        f'<div class="chart"><svg viewBox="0 0 {WIDTH} {height:g}" role="img" '
        f'aria-label="{escape(title)}">{"".join(parts)}</svg></div>'
    )


def text(x: float, y: float, words: str, css_class: str = "") -> str:
    """Return a text element; `words` are escaped."""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{css_class}">{escape(words)}</text>'


def bar(x: float, y: float, width: float, height: float, css_class: str, title: str) -> str:
    """Return a rectangle with a tooltip."""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.0, width):.1f}" height="{height:g}" '
        f'class="{css_class}"><title>{escape(title)}</title></rect>'
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


def time_axis(times: Mapping[float, str], top: float, bottom: float, scale: float) -> list[str]:
    """Return grid lines at times, in seconds, with their labels below."""
    parts = []
    for at_s, label in times.items():
        x = LEFT + at_s * scale
        parts.append(line(x, top - 3, x, bottom, "grid"))
        parts.append(text(x, bottom + 12, label, "middle small"))
    return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpan:
    """An interval on one GPU of a node, in seconds from the left edge of a chart."""

    node: str
    gpu: int
    start_s: float
    end_s: float
    css_class: str
    title: str


def gpus_over_time(
    spans: Sequence[GpuSpan],
    nodes: Sequence[tuple[str, int]],
    span_s: float,
    *,
    title: str,
    times: Mapping[float, str] | None = None,
) -> str:
    """Return a chart with a row per GPU; `nodes` are (id, GPUs), top to bottom.

    Charts with equal `span_s` have equal scales. `times` are the labels of the axis, by seconds;
    without them it is labelled in seconds.
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
    drawn: dict[tuple[str, str], list[str]] = {}
    for one in spans:
        width = max(0.4, (one.end_s - one.start_s) * scale)
        drawn.setdefault((one.title, one.css_class), []).append(
            f"M{LEFT + one.start_s * scale:.1f} {at[one.node, one.gpu]:g}"
            f"h{width:.1f}v{row - 1:g}h-{width:.1f}z"
        )
    for (words, css_class), paths in drawn.items():
        parts.append(
            f'<path d="{"".join(paths)}" class="{css_class}"><title>{escape(words)}</title></path>'
        )
    labels = {at_s: f"{at_s:g} s" for at_s in ticks(span_s)} if times is None else times
    parts += time_axis(labels, top, y, scale)
    return svg(y + 20, parts, title)


def bars(
    rows: Mapping[str, Mapping[str, float]],
    series: Sequence[str],
    *,
    most: float,
    form: str,
    left: float = LEFT,
) -> str:
    """Return horizontal bars: per row one of each series, labelled with its number.

    `left` is the margin for the names of rows.
    """
    height, gap, top = 13.0, 8.0, 4.0
    scale = (WIDTH - left - 70) / most
    parts, y = [], top
    for label, values in rows.items():
        shown = [name for name in series if name in values]
        parts.append(text(left - 6, y + len(shown) * height / 2 + 4, label, "end"))
        for name in shown:
            value = values[name]
            css_class = f"s{series.index(name)}"
            parts.append(
                bar(left, y, value * scale, height - 2, css_class, f"{label}, {name}: {value:.3f}")
            )
            parts.append(text(left + value * scale + 5, y + 9.5, form.format(value), "small"))
            y += height
        y += gap
    parts.append(line(left, 0, left, y - gap + 2, "axis"))
    return svg(y, parts, ", ".join(series))


def stacked(rows: Mapping[str, Sequence[float]], names: Sequence[str], *, most: float) -> str:
    """Return stacked horizontal bars of bytes, with the share of each part if it fits."""
    height, gap, top = 18.0, 8.0, 4.0
    scale = (WIDTH - LEFT - 80) / most
    parts, y = [], top
    for label, values in rows.items():
        parts.append(text(LEFT - 6, y + 13, label, "end"))
        x, total = float(LEFT), sum(values)
        for number, (name, value) in enumerate(zip(names, values, strict=True)):
            width, share = value * scale, value / total if total else 0.0
            title = f"{label}, {name}: {value / 1e9:.1f} GB, {share:.1%}"
            parts.append(bar(x, y, width, height, f"l{number}", title))
            if width > 44:
                css_class = f"middle small inside l{number}t"
                parts.append(text(x + width / 2, y + 13, f"{share:.1%}", css_class))
            x += width
        parts.append(text(x + 5, y + 13, f"{total / 1e9:.0f} GB", "small"))
        y += height + gap
    return svg(y, parts, "bytes by locality")
