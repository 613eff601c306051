"""Why runs were stopped, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headgate.base.units import format_seconds
from headgate.cli.common import output
from headgate.cli.common.times import local_time

_MOST = 4


def stop_lines(tasks: Sequence[dict[str, Any]], *, every: bool) -> Iterator[str]:
    """Yield a line for each stop of a run, the last ones of a job by default."""
    stops = [(stop, task) for task in tasks for stop in task.get("stops", ())]
    stops.sort(key=lambda found: float(found[0]["at"]))
    shown = stops if every else stops[-_MOST:]
    for stop, task in shown:
        yield f"task {task['ordinal']}, run {stop['attempt']}: {stop_text(stop)}"
    if len(shown) < len(stops):
        yield f"and {len(stops) - len(shown)} before; see --task"


def stop_text(stop: dict[str, Any]) -> str:
    """Return why and when a run was stopped, and how it ended."""
    end = "" if stop["end"] is None else f"; {stop['end']}"
    if stop["lost_gpu_s"]:
        end += f"; it lost {format_seconds(stop['lost_gpu_s'])} of GPU time"
    return f"{output.sentence(stop['reason'])}, on {local_time(stop['at'])}{end}"
