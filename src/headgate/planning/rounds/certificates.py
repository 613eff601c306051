"""Statistics of the certificates of a policy that solves its rounds exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateStats:
    """The number of warm rounds that were checked, and of those that were not optimal.

    `last_gap` is the cost of the last one above the lower bound that its prices certify, in
    microseconds.
    """

    rounds: int = 0
    violations: int = 0
    last_gap: int = 0


@runtime_checkable
class HasCertificates(Protocol):
    """A policy that checks the certificates of some of its rounds."""

    certified: CertificateStats
