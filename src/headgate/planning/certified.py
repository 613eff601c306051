"""What a policy that solves its rounds exactly can say of the proofs of its plans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True, kw_only=True)
class Certified:
    """How many rounds that followed others were checked, and how many of them were not optimal.

    `last_gap` is what the last one cost above the bound that its prices prove, microseconds.
    """

    rounds: int = 0
    violations: int = 0
    last_gap: int = 0


@runtime_checkable
class Certifying(Protocol):
    """A policy that has the certificates of some of its rounds checked."""

    certified: Certified
