"""The compiled part of the flow core; its sources are in `native/`."""

from headgate.flow.network import Ints

def min_cost_flow(
    tail: Ints, head: Ints, capacity: Ints, cost: Ints, supply: Ints
) -> tuple[Ints, Ints, int, int]:
    """Return flow, potential, cost and how many units are unsent; the arrays are a `Network`."""
