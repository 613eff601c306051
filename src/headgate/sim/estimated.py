"""Which run times the jobs of a trace declare; apart, since a verb of the program lists them."""

from __future__ import annotations

from enum import StrEnum


class Estimated(StrEnum):
    """Which run times the jobs of a trace declare: their own, none, or those in the trace.

    These are taken unchanged (`declared`), or `corrected` by those of earlier jobs. `MODELLED`
    are what users would have declared (`headgate.sim.user_estimates`), taken unchanged.
    """

    EXACT = "exact"
    LEARNT = "learnt"
    DECLARED = "declared"
    CORRECTED = "corrected"
    MODELLED = "modelled"

    @property
    def reads(self) -> bool:
        """Whether they are read from the trace."""
        return self in (Estimated.DECLARED, Estimated.CORRECTED)

    @property
    def as_declared(self) -> bool:
        """Whether they are taken unchanged, whatever earlier jobs took."""
        return self in (Estimated.DECLARED, Estimated.MODELLED)
