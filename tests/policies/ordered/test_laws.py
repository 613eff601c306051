"""The law suite of policies, for each policy that serves jobs in an order."""

from __future__ import annotations

from tests.cases import cases
from tests.policies.laws import OwnPolicy

from headgate.app import POLICIES


class Ordered(OwnPolicy):
    """GPUs are kept for what is first, for reservations, or for what runs are stopped for."""

    idles_by_choice = True


class TestFifo(Ordered):
    policy = "fifo"


class TestFairOrder(Ordered):
    policy = "fair-order"


class TestEasyBackfill(Ordered):
    policy = "easy-backfill"


class TestConservativeBackfill(Ordered):
    worlds = cases(150)  # in which few units have several tasks and a reservation
    policy = "conservative-backfill"


class TestFairEasyBackfill(Ordered):
    policy = "fair-easy-backfill"


class TestFairConservativeBackfill(TestConservativeBackfill):
    policy = "fair-conservative-backfill"


class TestLeastAttainedService(Ordered):
    policy, parameters = "least-attained-service", {"threshold_gpu_s": 3.0}
    preempts_whole_jobs = True


class TestShortestRemaining(Ordered):
    policy = "srtf"
    preempts_whole_jobs = True


def test_every_policy_that_serves_an_order_is_under_the_laws() -> None:
    """Each combination of parts has a name (`test_named_by_parts`), and each name a class here."""
    policies = {each.policy for name, each in globals().items() if name.startswith("Test")}
    assert policies == {name for name, info in POLICIES.items() if info.parts}
