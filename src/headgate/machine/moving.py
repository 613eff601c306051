"""The beginning of a move: places are held for next runs, before the present ones are stopped."""

from __future__ import annotations

from headgate.protocol import Admitted, Moved, StopCause, StopKind
from headgate.state import State
from headgate.state.moves import hold_target, stays


def hold_targets(state: State, move: Moved) -> list[tuple[int, StopCause]]:
    """Hold the targets of an admitted move; return the tasks whose runs are to stop, and why."""
    stops = []
    for member in move.runs:
        task, node = state.run_row(member.run), state.names.node_rows[member.node]
        assert task is not None, "admission has checked the run"
        text = _text(state, task, member, move.reason)
        stops.append((task, StopCause(StopKind.MOVED, text, job=move.job)))
        hold_target(state, task, node, member.gpus)
    return stops


def _text(state: State, task: int, to: Admitted, reason: str) -> str:
    """Return why a run that moves is stopped."""
    if stays(state, task, state.names.node_rows[to.node], to.gpus):
        what = f"its gang moves; starts again on {to.node}"
    else:
        what = f"moved from {state.node(state.tasks.node[task]).id} to {to.node}"
    return f"{what}: {reason}" if reason else what
