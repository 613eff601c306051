"""What a policy offers beyond the protocol, whether it inherits from it or not."""

from __future__ import annotations

from headgate.app import POLICIES
from headgate.base.rng import Random
from headgate.model import Job
from headgate.ports import capabilities, make_policy
from headgate.protocol import Plan, Reason
from headgate.state import Snapshot


class Foreign:
    """A policy that inherits from nothing and offers nothing else."""

    name = "foreign"

    def refuses(self, job: Job) -> Reason | None:
        del job
        return None

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        del snapshot, rng
        return Plan()


def test_a_policy_of_the_protocol_alone_offers_nothing_else() -> None:
    offers = capabilities(Foreign())
    assert not offers.migrates
    assert not offers.preempts_by_order
    assert offers.rounded_up(Job(id="job", name="job", queue="main", user="ada", tasks=())) == 0
    assert offers.warm_copy is None
    assert offers.certified is None
    assert offers.prices is None


def test_a_flow_policy_has_prices_certificates_and_warm_copies() -> None:
    policy = make_policy(POLICIES, "headgate", {"migrate": "when-cheaper"})
    offers = capabilities(policy)
    assert offers.migrates
    assert offers.prices is not None
    assert offers.certified is not None
    assert offers.certified.rounds == 0
    assert offers.warm_copy is not None
    assert type(offers.warm_copy()) is type(policy)


def test_an_order_that_preempts_says_so() -> None:
    assert capabilities(make_policy(POLICIES, "srtf")).preempts_by_order
    assert not capabilities(make_policy(POLICIES, "fifo")).preempts_by_order
