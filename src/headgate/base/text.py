"""Names that users may give, and their text escaped before it is shown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Valid names of jobs, queues and datasets."""

NAME_FORM = "letters, digits, '.', '_' and '-', a letter or digit first, at most 100"

# Controls (C0, DEL, C1), line and paragraph separators, bidirectional marks, embeddings, overrides
# and isolates, and halves of surrogate pairs, which no encoding can write.
_ACTIVE = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_IN_LINES = re.compile(f"[{_ACTIVE}]")
_IN_A_LINE = re.compile(f"[\t\n{_ACTIVE}]")


def visible(text: str, *, lines: bool = False) -> str:
    r"""Return text whose control characters are escaped, such as `\x1b`.

    A terminal then shows them instead of executing them. With `lines`, line ends and tabs stay.
    """
    return (_IN_LINES if lines else _IN_A_LINE).sub(_written, text)


def visible_values(value: Any) -> Any:
    """Return a JSON value with all text in it escaped by `visible`; line ends and tabs stay."""
    if isinstance(value, str):
        return visible(value, lines=True)
    if isinstance(value, dict):
        return {visible_values(key): visible_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [visible_values(item) for item in value]
    return value


def whole_characters(data: bytes) -> int:
    """Return how many bytes of UTF-8 text there are up to a character whose end is missing.

    Bytes that are no UTF-8 count as whole.
    """
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte >= 0xC0:  # begins a character of two bytes, three from 0xE0, four from 0xF0
            length = 2 + (byte >= 0xE0) + (byte >= 0xF0)
            return len(data) - back if length > back and byte < 0xF8 else len(data)
        if byte < 0x80:
            break
    return len(data)


def enumerated(words: Sequence[str]) -> str:
    """Return `a`, `a and b`, `a, b and c`."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def one_of(words: Sequence[str]) -> str:
    """Return `a`, `a or b`, `a, b or c`."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def used_elsewhere(node: str, gpus: Sequence[int]) -> str:
    """Return the sentence that other Ray programs use GPUs of a node, by index."""
    if len(gpus) == 1:
        are, free = f"GPU {gpus[0]} is", "it is"
    else:
        are, free = f"GPUs {enumerated([str(gpu) for gpu in gpus])} are", "they are"
    return f"{node}: {are} in use by other Ray programs; available to jobs when {free} free"


def indented(text: str) -> str:
    """Return text whose further lines are indented, so that none looks like a line of its own."""
    return text.replace("\n", "\n  ")


def _written(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
