"""Names of GPU models: as drivers report them, and as people ask for them."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import accumulate

_WORD = re.compile(r"[a-z0-9]+")
_VARIANTS = frozenset({"ti", "super", "ada"})  # after a name these words make another model of it


def words_of(name: str) -> tuple[str, ...]:
    """Return the words of a model's name, in lower case."""
    return tuple(_WORD.findall(name.lower()))


@lru_cache(maxsize=4096)
def is_model(asked: str, name: str) -> bool:
    """Return whether a GPU of this name is of the model asked for.

    That is so if all words of what is asked for follow each other in the name; case, spaces and
    punctuation do not count. So `H100` is `NVIDIA H100 80GB HBM3`, and no `GH100`; `rtx3090` is
    `NVIDIA GeForce RTX 3090`, and no `RTX 3090 Ti`.
    """
    sought, words = "".join(words_of(asked)), words_of(name)
    for first in range(len(words) if sought else 0):
        for end, text in enumerate(accumulate(words[first:]), first + 1):
            if text == sought:
                return end == len(words) or words[end] not in _VARIANTS
    return False
