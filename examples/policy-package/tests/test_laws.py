"""The law suite of Headgate's policies, for `shortest`."""

from headgate_shortest import ShortestFirst

from headgate.testing.policy_laws import PolicyLaws


class TestShortestFirst(PolicyLaws):
    """Random clusters and jobs; a failure has the seed of the one that broke a law."""

    def make(self) -> ShortestFirst:
        return ShortestFirst()
