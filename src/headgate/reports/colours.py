"""The colours of reports: one look per job, the same in every drawing; of series; of link use.

A job looks as its number says (`train-7`: 7), else as its name does, and never as what else is
drawn says. The eight colours differ for people with any colour vision (tests/reports/test_colours);
more than eight jobs have hatches in the same colours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from zlib import crc32

COLOURS = (
    "#0f7df5", "#eba082", "#0f7355", "#eb3782", "#05c3ff", "#a0190f", "#9b820a", "#8c198c",
)  # fmt: skip
INKS = ("#000000", "#000000", "#ffffff", "#000000", "#000000", "#ffffff", "#000000", "#ffffff")
"""The colour of words on each colour."""

_HATCHES = (
    "",
    '<path d="M0 4L4 0M-1 1L1 -1M3 5L5 3"/>',
    '<path d="M2 0V4"/>',
    '<path d="M0 0L4 4M-1 3L1 5M3 -1L5 1"/>',
    '<path d="M0 2H4"/>',
)
LOOKS = len(COLOURS) * len(_HATCHES)

HEAT = ((0.0, "#c9d1da"), (0.5, "#f2a65a"), (1.0, "#b3001b"))
"""The colours of the use of a link: the more of it, the darker; red is full."""


def look(job: str) -> int:
    """Return the number of a job's look, less than LOOKS; jobs with near numbers differ."""
    number = re.search(r"[0-9]{1,15}$", job)
    return (int(number[0]) - 1 if number else crc32(job.encode())) % LOOKS


def fill(job: str) -> str:
    """Return what paints a job in SVG: a colour, or one of `hatches`."""
    number = look(job)
    plain = number < len(COLOURS)
    return COLOURS[number] if plain else f"url(#hatch{number})"


def ink(job: str) -> str:
    """Return the colour of words on a job."""
    return INKS[look(job) % len(COLOURS)]


def ground(job: str) -> str:
    """Return the colour of a job below its hatch."""
    return COLOURS[look(job) % len(COLOURS)]


def hatches(drawn: str) -> str:
    """Return the definitions that SVG elements refer to by `fill`."""
    found = sorted({int(number) for number in re.findall(r"url\(#hatch([0-9]+)\)", drawn)})
    return f"<defs>{''.join(map(_hatch, found))}</defs>" if found else ""


def _hatch(number: int) -> str:
    kind, colour = divmod(number, len(COLOURS))
    return (
        f'<pattern id="hatch{number}" width="4" height="4" patternUnits="userSpaceOnUse">'
        f'<rect width="4" height="4" fill="{COLOURS[colour]}"/>'
        f'<g stroke="{INKS[colour]}" stroke-width="0.9" fill="none">{_HATCHES[kind]}</g></pattern>'
    )


def series_style() -> str:
    """Return the CSS classes of series: `k0` to `k7` fill and stroke, `b0` to `b7` legends."""
    return "".join(
        f".k{number}{{fill:{colour}}}.b{number}{{background:{colour}}}"
        f".line{number}{{stroke:{colour}}}svg text.on{number}{{fill:{ink}}}"
        for number, (colour, ink) in enumerate(zip(COLOURS, INKS, strict=True))
    )


def heat(use: float) -> str:
    """Return the colour of the use of a link, 0 to 1."""
    use = min(max(use, 0.0), 1.0)
    (low, below), (high, above) = next((a, b) for a, b in pairwise(HEAT) if use <= b[0])
    part = (use - low) / (high - low)
    mixed = (
        round(a + (b - a) * part) for a, b in zip(_channels(below), _channels(above), strict=True)
    )
    return "#" + "".join(f"{value:02x}" for value in mixed)


def _channels(colour: str) -> Iterable[int]:
    return bytes.fromhex(colour[1:])
