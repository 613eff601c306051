"""Control characters in text are escaped before a terminal gets them."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.text import indented, visible, visible_values, whole_characters


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;X\x07\x1b[2J", r"\x1b]0;X\x07\x1b[2J"),
        ("a\rb\x7f\x9b31m", r"a\x0db\x7f\x9b31m"),
        ("tab\tand\nline", r"tab\x09and\x0aline"),
        ("\u202egpj.exe\u2066", r"\u202egpj.exe\u2066"),
        ("half \ud83d of a pair", r"half \ud83d of a pair"),
        ("two\u2028lines", r"two\u2028lines"),
        ("Grüße, 世界, 👩‍👩‍👧, a \\x1b", "Grüße, 世界, 👩‍👩‍👧, a \\x1b"),
    ],
)
def test_control_characters_are_escaped_and_other_text_stays(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert visible(shown) == shown


@given(st.text(st.characters()))
def test_escaped_text_has_no_control_character(text: str) -> None:
    left = {c for c in visible(text, lines=True) if unicodedata.category(c) in ("Cc", "Cs")}
    assert left <= {"\n", "\t"}
    assert {c for c in visible(text) if unicodedata.category(c) in ("Cc", "Cs")} == set()


def test_json_values_keep_their_structure_when_escaped() -> None:
    value = {"a\x1b": [1, None, ("\x07", "x\ny")], "b": {"c": True, "d": 1.5}}
    assert visible_values(value) == {
        "a\\x1b": [1, None, ["\\x07", "x\ny"]], "b": {"c": True, "d": 1.5},
    }  # fmt: skip


def test_further_lines_are_indented() -> None:
    assert indented("failed:\nerror: all is lost") == "failed:\n  error: all is lost"


@pytest.mark.parametrize("text", ["plain", "é", "grüße", "汉字", "🜁🜂", "a🜁"])
def test_pieces_of_text_end_between_characters_wherever_they_are_cut(text: str) -> None:
    data = text.encode()
    for cut in range(len(data) + 1):
        whole = whole_characters(data[:cut])
        assert data[:whole].decode() + data[whole:].decode() == text
        assert cut - whole < 4


@pytest.mark.parametrize("data", [b"", b"\x80\x80\x80\x80", b"abc\xff", b"\xf8\x80", b"ab\x80"])
def test_bytes_that_are_no_text_are_not_held_back(data: bytes) -> None:
    assert whole_characters(data) == len(data)
