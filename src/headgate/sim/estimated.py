"""Which run times the jobs of a trace declare; apart, since a verb of the program lists them."""

from __future__ import annotations

from enum import StrEnum


class Estimated(StrEnum):
    """Which run times the jobs of a trace declare: their own, none, or those in the trace."""

    EXACT = "exact"
    LEARNT = "learnt"
    DECLARED = "declared"
