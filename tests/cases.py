"""How many random cases heavy tests try: few in `make test`, ten times as many in `make fuzz`."""

from __future__ import annotations

import os

TIMES = int(os.environ.get("HEADGATE_TEST_TIMES", "1"))


def cases(few: int) -> int:
    """Return how many cases to try where `make test` tries a few."""
    return few * TIMES
