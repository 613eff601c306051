"""Tables for people: one row per line, cropped to the width of the terminal."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

from headgate.base.text import visible

_GAP = "  "
_ELLIPSIS = "..."
_NUMBER = re.compile(r"\d[\d.,/]*[%x]?")
_NAME_LEAST, _TEXT_LEAST, _LEAST = 14, 20, 8  # columns of the terminal that cropped cells keep


def lines(
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    width: int | None = None,
    text: str | None = None,
    names: Sequence[str] = (),
) -> list[str]:
    """Return the lines of a table; None is shown as `-`, columns of numbers are right-aligned.

    Where a line would be longer than `width`, cells are cropped: those of the column `text` at
    their end, then those of the columns `names` in their middle, where names differ least.
    """
    written = [list(headings), *([_written(cell) for cell in row] for row in rows)]
    columns = list(zip(*written, strict=True))
    widths = [max(map(columns_of, column)) for column in columns]
    if width is not None:
        _narrow(headings, widths, width, text, names)
    shown = []
    for heading, column, wide in zip(headings, columns, widths, strict=True):
        crop = cropped if heading == text else _cropped_inside
        numbers = _are_numbers(column[1:])
        shown.append([_aligned(crop(cell, wide), wide, right=numbers) for cell in column])
    return [_GAP.join(cells).rstrip() for cells in zip(*shown, strict=True)]


def wrapped(line: str, width: int, indent: str = "  ") -> str:
    """Return a line wrapped between words, its further lines indented."""
    return textwrap.fill(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def columns_of(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _first(text: str, width: int) -> str:
    """Return the beginning of a text that takes at most `width` columns, at least a character."""
    if text.isascii():
        return text[: max(1, width)]
    from rich.cells import chop_cells

    return chop_cells(text, max(2, width))[0]


def _written(cell: object) -> str:
    return "-" if cell is None else visible(str(cell))


def _are_numbers(cells: Sequence[str]) -> bool:
    found = [cell for cell in cells if cell != "-"]
    return bool(found) and all(_NUMBER.fullmatch(cell) for cell in found)


def _narrow(
    headings: Sequence[str], widths: list[int], width: int, text: str | None, names: Sequence[str]
) -> None:
    """Reduce widths of the columns that may be cropped until a line fits, if it can."""
    steps = [(text, _TEXT_LEAST), *((name, _NAME_LEAST) for name in names), (text, _LEAST)]
    steps += [(name, _LEAST) for name in names]
    for heading, least in steps:
        excess = sum(widths) + len(_GAP) * (len(widths) - 1) - width
        if excess > 0 and heading in headings:
            column = list(headings).index(heading or "")
            kept = min(widths[column], max(least, columns_of(headings[column])))
            widths[column] = max(kept, widths[column] - excess)


def cropped(cell: str, width: int) -> str:
    """Return text of at most `width` columns; an ellipsis stands for its end."""
    if columns_of(cell) <= width:
        return cell
    return _first(cell, width - len(_ELLIPSIS)).rstrip(" ,;:") + _ELLIPSIS


def _cropped_inside(cell: str, width: int) -> str:
    """Return a name of at most `width` columns; an ellipsis stands for its middle."""
    if columns_of(cell) <= width:
        return cell
    end = (width - len(_ELLIPSIS)) // 2
    last = _first(cell[::-1], end)[::-1]
    return _first(cell, width - len(_ELLIPSIS) - end) + _ELLIPSIS + last


def _aligned(cell: str, width: int, *, right: bool) -> str:
    blanks = " " * (width - columns_of(cell))
    return blanks + cell if right else cell + blanks
