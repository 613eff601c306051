"""The law suite of policies, for those that decide by a flow, and for some of their settings."""

from __future__ import annotations

from tests.cases import cases
from tests.policies.laws import OwnPolicy

from headgate.machine import apply
from headgate.policies.flow import FlowSharing, PreemptiveFlowSharing, TimelyFlow, UnfairFlow
from headgate.ports import Policy
from headgate.protocol import TopologyChanged
from headgate.state import State
from headgate.testing.random_worlds import linked, random_topology


class TestFlowSharing(OwnPolicy):
    idles_by_choice = True  # a task may wait for a nearer GPU

    def make(self) -> Policy:
        return FlowSharing()


class TestFlowSharingThatWaitsForNoData(OwnPolicy):
    def make(self) -> Policy:
        return FlowSharing(alpha3=1000.0)


class TestPreemptiveFlowSharing(OwnPolicy):
    idles_by_choice = True  # a GPU meant for a task that lacks another resource stays free

    def make(self) -> Policy:
        return PreemptiveFlowSharing()


class TestPreemptiveFlowSharingWithoutSlack(OwnPolicy):
    """On states in which a job is above its share, and another one can use its GPU."""

    seeds = (59, 354, 588, 749, 1839, 1983, 2243, 2475, 2650, 2670, 2751, 3839, 4415, 4856)
    worlds = len(seeds)
    idles_by_choice = True

    def make(self) -> Policy:
        return PreemptiveFlowSharing(slack=0.0)

    def _state(self, seed: int) -> State:
        return super()._state(self.seeds[seed])

    def test_the_states_lead_to_preemptions(self) -> None:
        assert all(len(plan.stops) for _, _, plan in self.rounds())


class TestUnfairFlow(OwnPolicy):
    def make(self) -> Policy:
        return UnfairFlow()


class TestTimelyFlow(OwnPolicy):
    worlds = cases(150)
    idles_by_choice = True  # a task may wait for a GPU near its data

    def make(self) -> Policy:
        return TimelyFlow()


class TestTimelyFlowOnLinks(TestTimelyFlow):
    """On topologies, with jobs that communicate."""

    def _state(self, seed: int) -> State:
        state = super()._state(seed)
        state.names.jobs[:] = [linked(job) for job in state.names.jobs]
        apply(state, TopologyChanged(at=state.now, topology=random_topology(seed, 6)))
        return state


class TestTimelyFlowWithoutSlack(OwnPolicy):
    idles_by_choice = True

    def make(self) -> Policy:
        return TimelyFlow(slack=0.0)
