"""The bed of the experiments, for tests: its nodes can be cut off, crashed and started again."""

from __future__ import annotations

from headgate.experiments import bed
from headgate.experiments.bed import HAS_NETWORK, remove_leftovers
from headgate.live.cluster.ray_nodes import kill_node, start_node

__all__ = ["HAS_NETWORK", "Bed", "remove_leftovers"]


class Bed(bed.Bed):
    """A bed that can be broken."""

    def partition(self, node: str, *, cut: bool) -> None:
        """Pull a node's network cable, or plug it in again."""
        self._fabric("link", "set", f"v-{node}", "down" if cut else "up")

    def crash(self, node: str) -> None:
        """Kill all of a node's processes together."""
        kill_node(self.state, node)

    def restart(self, node: str) -> None:
        """Start a node that has crashed again."""
        start_node(self.state, next(n for n in self.nodes if n.id == node))
