"""The memo of the policy by node: numbers in named columns, stored where they are not 0."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.state.state import State


def write(state: State, columns: Mapping[str, Mapping[str, float]]) -> None:
    """Write changes: column -> node -> number; in these columns drop what is 0 or of a lost node.

    O(nodes) for each column changed.
    """
    if not columns:
        return
    memos = dict(state.node_memos)
    for name, values in columns.items():
        known = dict(memos.pop(name, {}))
        known |= {state.names.node_rows[node]: value for node, value in values.items()}
        kept = {row: known[row] for row in sorted(known) if known[row] and state.nodes.alive[row]}
        if kept:
            memos[name] = kept
    state.node_memos = memos
