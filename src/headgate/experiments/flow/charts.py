"""Charts of the flow paper's report: SVG as text, coloured by the classes of the page's style."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from headgate.experiments.flow.runs import Held
from headgate.experiments.flow.tables import Times

_WIDTH = 900
_LEFT, _RIGHT = 78, 12  # room for labels


def _svg(height: float, parts: Sequence[str], title: str) -> str:
    return (
        f'<div class="chart"><svg viewBox="0 0 {_WIDTH} {height:g}" role="img" '
        f'aria-label="{escape(title)}">{"".join(parts)}</svg></div>'
    )


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(text)}</text>'


def _bar(x: float, y: float, width: float, height: float, kind: str, title: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.0, width):.1f}" height="{height:g}" '
        f'class="{kind}"><title>{escape(title)}</title></rect>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def ticks(most: float) -> list[float]:
    """Return round numbers from 0 up to `most`: steps of 1, 2 or 5, at most eight of them."""
    powers = (10.0**exponent for exponent in range(-6, 12))
    step = next(p * m for p in powers for m in (1, 2, 5) if most <= 8 * p * m)
    return [round(number * step, 6) for number in range(int(most / step + 1e-9) + 1)]


# --- who held which GPU when ---------------------------------------------------------------------


def gantt(
    held: Sequence[Held],
    nodes: Sequence[tuple[str, int]],
    kind_of: Mapping[str, int],
    span_s: float,
) -> str:
    """Return who held which GPU when: nodes with their numbers of GPUs from top to bottom.

    A job has the colour of its kind; all charts with one `span_s` have one scale.
    """
    row, gap, top = 7.0, 3.0, 6.0
    at: dict[tuple[str, int], float] = {}
    parts, y = [], top
    for node, gpus in nodes:
        parts.append(_text(_LEFT - 6, y + gpus * row / 2 + 3.5, node, "end small"))
        for gpu in range(gpus):
            at[node, gpu] = y
            parts.append(_bar(_LEFT, y, _WIDTH - _LEFT - _RIGHT, row - 1, "idle", f"{node}, idle"))
            y += row
        y += gap
    scale = (_WIDTH - _LEFT - _RIGHT) / span_s
    drawn: dict[tuple[str, bool], list[str]] = {}
    for one in held:
        width = max(0.4, (one.end_s - one.start_s) * scale)
        drawn.setdefault((one.job, one.lost), []).append(
            f"M{_LEFT + one.start_s * scale:.1f} {at[one.node, one.gpu]:g}"
            f"h{width:.1f}v{row - 1:g}h-{width:.1f}z"
        )
    for (job, lost), paths in drawn.items():
        title = f"{job}, lost" if lost else job
        kind = f"k{kind_of[job]} {'lost' if lost else ''}".strip()
        parts.append(
            f'<path d="{"".join(paths)}" class="{kind}"><title>{escape(title)}</title></path>'
        )
    parts += _time_axis(span_s, top, y, scale)
    return _svg(y + 20, parts, "who held which GPU when")


def _time_axis(span_s: float, top: float, bottom: float, scale: float) -> list[str]:
    parts = []
    for at_s in ticks(span_s):
        x = _LEFT + at_s * scale
        parts.append(_line(x, top - 3, x, bottom, "grid"))
        parts.append(_text(x, bottom + 12, f"{at_s:g} s", "middle small"))
    return parts


# --- bars ----------------------------------------------------------------------------------------


def bars(
    rows: Mapping[str, Mapping[str, float]], series: Sequence[str], *, most: float, form: str
) -> str:
    """Return horizontal bars: per row one of each series, with its number at its end."""
    height, gap, top = 13.0, 8.0, 4.0
    scale = (_WIDTH - _LEFT - 70) / most
    parts, y = [], top
    for label, values in rows.items():
        shown = [name for name in series if name in values]
        parts.append(_text(_LEFT - 6, y + len(shown) * height / 2 + 4, label, "end"))
        for name in shown:
            value = values[name]
            kind = f"s{series.index(name)}"
            parts.append(
                _bar(_LEFT, y, value * scale, height - 2, kind, f"{label}, {name}: {value:.3f}")
            )
            parts.append(_text(_LEFT + value * scale + 5, y + 9.5, form.format(value), "small"))
            y += height
        y += gap
    parts.append(_line(_LEFT, 0, _LEFT, y - gap + 2, "axis"))
    return _svg(y, parts, ", ".join(series))


def stacked(rows: Mapping[str, Sequence[float]], names: Sequence[str], *, most: float) -> str:
    """Return stacked horizontal bars of bytes, with the share of each part where it has room."""
    height, gap, top = 18.0, 8.0, 4.0
    scale = (_WIDTH - _LEFT - 80) / most
    parts, y = [], top
    for label, values in rows.items():
        parts.append(_text(_LEFT - 6, y + 13, label, "end"))
        x, total = float(_LEFT), sum(values)
        for number, (name, value) in enumerate(zip(names, values, strict=True)):
            width, share = value * scale, value / total if total else 0.0
            title = f"{label}, {name}: {value / 1e9:.1f} GB, {share:.1%}"
            parts.append(_bar(x, y, width, height, f"l{number}", title))
            if width > 44:
                kind = f"middle small inside l{number}t"
                parts.append(_text(x + width / 2, y + 13, f"{share:.1%}", kind))
            x += width
        parts.append(_text(x + 5, y + 13, f"{total / 1e9:.0f} GB", "small"))
        y += height + gap
    return _svg(y, parts, "bytes by locality")


# --- times per job -------------------------------------------------------------------------------


def completion(times: Mapping[str, Times], kind_of: Mapping[str, int], most_s: float) -> str:
    """Return each job's time as a bar, with its two ideals as marks across it."""
    height, bottom, top = 120.0, 134.0, 8.0
    step = (_WIDTH - _LEFT - _RIGHT) / max(1, len(times))
    scale = height / most_s
    parts = []
    for at_s in ticks(most_s):
        y = top + height - at_s * scale
        parts.append(_line(_LEFT, y, _WIDTH - _RIGHT, y, "grid"))
        parts.append(_text(_LEFT - 6, y + 3.5, f"{at_s:g} s", "end small"))
    for number, (job, own) in enumerate(times.items()):
        x, width = _LEFT + number * step + 2, step - 4
        ideals = ", ".join(f"{name} {ideal:.1f} s" for name, ideal in own.ideal_s.items())
        title = f"{job}: {own.run_s:.1f} s; ideal: {ideals}"
        y = top + height - own.run_s * scale
        parts.append(_bar(x, y, width, own.run_s * scale, f"k{kind_of[job]}", title))
        for name, ideal in own.ideal_s.items():
            y = top + height - ideal * scale
            parts.append(_line(x - 1.5, y, x + width + 1.5, y, f"ideal-{name}"))
        parts.append(_text(x + width / 2, bottom + 6, job[1:], "middle small"))
    return _svg(bottom + 12, parts, "time per job against its ideals")
