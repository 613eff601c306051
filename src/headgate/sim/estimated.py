"""Which run times the jobs of a trace declare; apart, since a verb of the program lists them."""

from __future__ import annotations

from enum import StrEnum


class Estimated(StrEnum):
    """Which run times the jobs of a trace declare: their own, none, or those in the trace.

    These are taken as they are (`declared`), or `corrected` by those of earlier jobs.
    """

    EXACT = "exact"
    LEARNT = "learnt"
    DECLARED = "declared"
    CORRECTED = "corrected"

    @property
    def reads(self) -> bool:
        """Whether they are read from the trace."""
        return self in (Estimated.DECLARED, Estimated.CORRECTED)
