"""What is known of the network between nodes."""

from __future__ import annotations

from headgate.protocol import BandwidthMeasured, TopologyChanged
from headgate.state import State


def set_network(state: State, event: BandwidthMeasured | TopologyChanged) -> bool:
    """Store the bandwidth or the topology of an event; return whether it differs."""
    if isinstance(event, BandwidthMeasured):
        before, state.bandwidth = state.bandwidth, event.bandwidth
        return before != event.bandwidth
    known, state.topology = state.topology, event.topology
    return known != event.topology
