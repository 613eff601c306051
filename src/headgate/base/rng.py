"""Seeded random streams: one per purpose, so that a lost draw shifts nothing after it."""

from __future__ import annotations

import hashlib
from random import Random

__all__ = ["Random", "stream"]


def stream(seed: int, *purpose: str | int) -> Random:
    """Return the random stream of a purpose under a seed; the same in any process."""
    text = repr((seed, *purpose)).encode()
    return Random(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()))
