"""Sizes and durations as people write them, and back."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

_SIZE_BYTES = {
    "": 1, "b": 1,
    "k": 10**3, "kb": 10**3, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9,
    "t": 10**12, "tb": 10**12,
    "ki": 2**10, "kib": 2**10, "mi": 2**20, "mib": 2**20, "gi": 2**30, "gib": 2**30,
    "ti": 2**40, "tib": 2**40,
}  # fmt: skip
_DURATION_S = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_NUMBER_AND_UNIT = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][0-9]+)?)\s*([A-Za-z]*)\s*")
_LEAST_MEMORY_BYTES = 2**20  # that a number without a unit stands for

MOST_BYTES = 2**60
"""The largest size that is accepted: a larger one is a slip of units."""

MOST_SECONDS = 1e12
"""The longest time that is accepted, likewise."""

SAME_INSTANT_S = 1e-6
"""The error of sums of times: two times that differ by less are the same."""


class BadQuantity(ValueError):
    """Text that is no size or duration: the problem, and a hint."""

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(f"{problem}; {hint}" if hint else problem)
        self.problem, self.hint = problem, hint


def finite(number: float) -> float | None:
    """Return a number as JSON can hold it: None for one that is infinite."""
    return number if math.isfinite(number) else None


def parse_size(text: str | int) -> int:
    """Return the bytes of `64MiB`, `1.5 GB`, `1048576`; raise BadQuantity otherwise."""
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    match = _NUMBER_AND_UNIT.fullmatch(str(text))
    unit_bytes = match and _SIZE_BYTES.get(match[2].lower())
    size_bytes = float(match[1]) * unit_bytes if match and unit_bytes else math.inf
    if not math.isfinite(size_bytes):
        raise BadQuantity(f"'{text}' is not a size", "write bytes or a unit such as 64MiB or 2GB")
    return round(size_bytes)


def parse_memory(text: str) -> int:
    """Return the bytes of an amount of memory as of `parse_size`; BadQuantity as of `need_unit`."""
    need_unit(text)
    return parse_size(text)


def need_unit(memory: str | float) -> None:
    """Raise BadQuantity for a number below 1 MiB without a unit: bytes are not meant by it."""
    number = str(memory).strip()
    try:
        small = 0 < float(number) < _LEAST_MEMORY_BYTES
    except ValueError:
        return  # it has a unit, or is no number
    if small:
        problem = f"{number} without a unit is {number} bytes"
        raise BadQuantity(problem, f"write {number}GiB or {number}MiB, or {number}B for bytes")


def parse_duration(text: str) -> float:
    """Return the seconds of `90s`, `30min`, `12h`, `7d`, `2w`; raise BadQuantity otherwise."""
    match = _NUMBER_AND_UNIT.fullmatch(text)
    unit_s = match and _DURATION_S.get(match[2])
    seconds = float(match[1]) * unit_s if match and unit_s else math.inf
    if not math.isfinite(seconds):
        hint = "write a number and s, min, h, d or w: 12h"
        raise BadQuantity(f"'{text}' is not a duration", hint)
    return seconds


def format_size(size_bytes: float) -> str:
    """Return a short binary size: `64 MiB`, `1.5 GiB`."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if size == int(size) else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def format_ratio(part_bytes: int, whole_bytes: int) -> str:
    """Return two sizes in the unit of the larger one: `12/64 GiB`; unequal ones differ."""
    largest, power = max(abs(part_bytes), abs(whole_bytes)), 0
    while largest >= 1024 ** (power + 1) and power < 4:
        power += 1
    unit = ("B", "KiB", "MiB", "GiB", "TiB")[power]
    for digits in range(1, 4):
        part, whole = (_rounded(size / 1024**power, digits) for size in (part_bytes, whole_bytes))
        if float(part) != float(whole) or part_bytes == whole_bytes:
            return f"{part}/{whole} {unit}"
    return f"{part_bytes}/{whole_bytes} B"


def _rounded(number: float, digits: int) -> str:
    return f"{number:.0f}" if number == int(number) else f"{number:.{digits}f}"


def format_clock(at: float, ahead_s: float) -> str:
    """Return a time to come, in seconds since the epoch, as `14:05 UTC`.

    With seconds if it is less than ten minutes ahead, with its date if more than half a day; in
    years to come, how long that is.
    """
    if ahead_s > 366 * 86400:
        return f"a time in {format_seconds(ahead_s)}"
    when = datetime.fromtimestamp(at, UTC)
    if ahead_s > 12 * 3600:
        return f"{when:%Y-%m-%d at %H:%M} UTC"
    return f"{when:%H:%M:%S} UTC" if ahead_s < 600 else f"{when:%H:%M} UTC"


def format_time(at: float) -> str:
    """Return a time, in seconds since the epoch, as `2026-08-01 at 09:30:00 UTC`."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d at %H:%M:%S} UTC"


def format_compact(seconds: float) -> str:
    """Return a short duration for a table: `5s`, `3m20s`, from ten minutes on `45m`, `2h5m`."""
    if 600 <= seconds < 3600:
        seconds -= seconds % 60
    return re.sub(r" |\.[0-9]|in", "", format_seconds(seconds))


def format_seconds(seconds: float) -> str:
    """Return a short duration: `0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    for unit_s, unit, below_s, below in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= unit_s:
            rest = whole % unit_s // below_s
            return f"{whole // unit_s} {unit}" + (f" {rest} {below}" if rest else "")
    raise AssertionError("unreachable: every duration of 60 s or more has a unit")
