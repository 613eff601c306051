"""The policy keeps every law that Headgate has for policies."""

from headgate_shortest import ShortestFirst

from headgate.testing.policy_laws import PolicyLaws


class TestShortestFirst(PolicyLaws):
    """Hundreds of random clusters and jobs; a failure names the one that broke a law."""

    def make(self) -> ShortestFirst:
        return ShortestFirst()
