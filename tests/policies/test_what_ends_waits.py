"""Every "no" says what would end the wait, and that can happen: under every policy."""

from __future__ import annotations

import pytest
from tests.cases import cases

from headgate.app import POLICIES
from headgate.foresight.explain import explain
from headgate.foresight.whatif import WhatIf
from headgate.ports import make_policy
from headgate.protocol import Reason
from headgate.protocol.reasons import KeptFor, Undecided
from headgate.state import State
from headgate.testing.random_worlds import random_state

SEEDS = cases(20)
ROUNDS = 8  # those that follow preemptions, and starts of units that come first


def reasons(name: str, seed: int) -> tuple[State, list[Reason]]:
    """Return a random world after a round of a policy, and why its jobs wait."""
    policy = make_policy(POLICIES, name)
    state = random_state(seed, lambda job: policy.refuses(job) is None, every_kind=True)
    what_if = WhatIf(state.freeze(), policy, state.now)
    for _ in range(ROUNDS):
        what_if.round()
        if not what_if.continues:
            break
    after = what_if.state
    explained = [explain(after, job, after.now).reason for job in range(len(after.jobs.state))]
    return after, [reason for reason in explained if reason is not None]


@pytest.mark.parametrize("name", POLICIES)
def test_what_waits_has_a_reason_with_a_way_out_that_is_there(name: str) -> None:
    """No job waits for the ends of runs where none is, nor behind one that is not there."""
    waited = 0
    for seed in range(SEEDS):
        state, found = reasons(name, seed)
        waited += len(found)
        for reason in found:
            said = f"world {seed}: {reason}"
            assert reason.way_out(), said
            assert reason.brief(), said
            assert not isinstance(reason, Undecided), said
            if "tasks end" in reason.way_out() or "tasks of" in reason.way_out():
                assert list(state.holding()), said
            for ahead in (getattr(reason, "ahead", ""), getattr(reason, "head", "")):
                assert not isinstance(ahead, str) or not ahead or ahead in state.names.job_rows
    assert waited > SEEDS


@pytest.mark.parametrize("name", ["gs", "gsp", "gsd", "capacity", "fair"])
def test_free_gpus_that_are_kept_for_the_first_in_line_are_reported_so(name: str) -> None:
    kept = [r for seed in range(SEEDS) for r in reasons(name, seed)[1] if isinstance(r, KeptFor)]
    assert kept
    for reason in kept:
        assert f"kept for {reason.job}, first in line" in reason.brief()
        assert reason.way_out() == "starts after it, or when other GPUs are free"
