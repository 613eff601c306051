"""The law suite of policies, for headgate."""

from __future__ import annotations

from headgate.machine import apply
from headgate.policies.flow import TimelyFlow
from headgate.ports import Policy
from headgate.protocol import TopologyChanged
from headgate.state import State
from headgate.testing.policy_laws import PolicyLaws
from headgate.testing.random_worlds import linked, random_topology


class TestTimelyFlow(PolicyLaws):
    idles_by_choice = True  # a task may wait for a GPU near its data

    def make(self) -> Policy:
        return TimelyFlow()


class TestTimelyFlowOnLinks(PolicyLaws):
    """On topologies, with jobs that communicate."""

    idles_by_choice = True

    def make(self) -> Policy:
        return TimelyFlow()

    def _state(self, seed: int) -> State:
        state = super()._state(seed)
        state.names.jobs[:] = [linked(job) for job in state.names.jobs]
        apply(state, TopologyChanged(at=state.now, topology=random_topology(seed, 6)))
        return state


class TestTimelyFlowWithoutSlack(PolicyLaws):
    idles_by_choice = True

    def make(self) -> Policy:
        return TimelyFlow(slack=0.0)
