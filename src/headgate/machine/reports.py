"""Reports of nodes' use: what they change, and which are not believed."""

from __future__ import annotations

from headgate.protocol import NodeReported
from headgate.state import State
from headgate.state.actual_book import record_report, report_fault


def reported(state: State, event: NodeReported) -> tuple[bool, bool]:
    """Record a report; return whether it counts, and whether other runs may start now than before.

    It counts of a node that is up, unless it says the impossible: then the last one stands.
    """
    row = state.names.node_rows.get(event.node)
    if row is None or not state.nodes.alive[row] or report_fault(state, row, event):
        return False, False
    return True, record_report(state, row, event)
