"""Random storms of jobs and faults under every policy, in the simulator."""

from __future__ import annotations

from collections.abc import Iterator

from random_numbers import RandomNumbers
from tests.policies.test_storms import MAKERS, weathered

Case = tuple[str, int]
"""A policy and the seed of a storm."""

_NAMES = list(MAKERS)


def draw(rng: RandomNumbers) -> Case:
    """Return a policy and a storm."""
    return rng.one_of(_NAMES), rng.number(0, 10**6)


def check(case: Case) -> None:
    """Let the storm pass under the policy; AssertionError for what breaks a law."""
    weathered(*case)


def smaller(case: Case) -> Iterator[Case]:
    """Yield nothing: a storm has no parts that could be dropped."""
    del case
    return iter(())
