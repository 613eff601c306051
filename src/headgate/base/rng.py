"""Seeded random streams: one per purpose, so that one draw more or less shifts no other."""

from __future__ import annotations

import hashlib
from random import Random

__all__ = ["Random", "stream"]


def stream(seed: int, *purpose: str | int) -> Random:
    """Return the random stream of a purpose for a seed; the same in any process."""
    text = repr((seed, *purpose)).encode()
    return Random(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()))
