"""Random states under every policy: each task has an explanation."""

from __future__ import annotations

from collections.abc import Iterator

from random_numbers import RandomNumbers
from tests.foresight.test_why import explained

from headgate.app import POLICIES

Case = tuple[str, int]
"""A policy and the seed of a state."""

_NAMES = list(POLICIES)


def draw(rng: RandomNumbers) -> Case:
    """Return a policy and a state."""
    return rng.one_of(_NAMES), rng.number(0, 2**32 - 1)


def check(case: Case) -> None:
    """Explain all of the state under the policy; AssertionError for what breaks a law."""
    explained(*case)


def smaller(case: Case) -> Iterator[Case]:
    """Yield nothing: a seed has no parts that could be dropped."""
    del case
    return iter(())
