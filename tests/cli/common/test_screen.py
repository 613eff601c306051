"""Keys of terminals, as bytes."""

from __future__ import annotations

import random

import pytest

from headgate.cli.common.screen import key_names


@pytest.mark.parametrize(
    ("pressed", "names", "rest"),
    [
        (b"q1 G", ["q", "1", " ", "G"], b""),
        (b"\x1b[A\x1b[B\x1bOA\x1bOB", ["up", "down", "up", "down"], b""),
        (b"\x1b[5~\x1b[6~\x1b[H\x1b[F\x1bOH\x1b[4~", ["page up", "page down", "home", "end", "home",
                                                     "end"], b""),
        (b"\t\x03\x1a", ["tab", "ctrl-c", "ctrl-z"], b""),
        (b"j\x1b", ["j"], b"\x1b"),
        (b"\x1b[", [], b"\x1b["),
        (b"\x1b[5", [], b"\x1b[5"),
        (b"\x1bq", ["q"], b""),  # the escape key, then q
        (b"\x1b[1;5Aq", ["q"], b""),  # Ctrl and an arrow, which has no name here
        (b"\xff\xc3\x00\x7fq", ["q"], b""),
        (b"", [], b""),
    ],
)  # fmt: skip
def test_keys_have_names(pressed: bytes, names: list[str], rest: bytes) -> None:
    assert key_names(pressed) == (names, rest)


def test_a_key_may_arrive_in_pieces() -> None:
    names, rest = [], b""
    for byte in b"\x1b[6~\x1bOA\x1b[1;2Bq":
        more, rest = key_names(rest + bytes((byte,)))
        names += more
    assert (names, rest) == (["page down", "up", "q"], b"")


def test_no_input_is_kept_without_end() -> None:
    rng = random.Random(3)
    rest = b""
    for _ in range(2000):
        some = bytes(rng.choices(b"\x1b\x1b[O;0123~A q\xff", k=9))
        _, rest = key_names(rest + some)
        assert len(rest) < 32
