"""The verb migrate."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headgate.base.units import format_seconds
from headgate.cli.common import output
from headgate.cli.common.settings import DryRunOption, FormatOption, StateOption, YesOption, settle


def migrate(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")],
    leave: Annotated[
        str | None, typer.Option("--from", metavar="NODE", help="Only its runs on this node.")
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="NODE", help="Only to this node.")
    ] = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """Move the runs of a job to other nodes; for administrators.

    They get notice, end, and start again there; their places are held for them meanwhile. A gang
    starts again as a whole; its members on other nodes stay there. Asks first for runs that save no
    checkpoints.
    """
    settings = settle(state, fmt)
    with settings.client() as client:
        moved = client.migrate(job, leave=leave, to=to, dry_run=True)
        if not dry_run:
            if (unsaved := moved["unsaved"]) is not None:
                output.confirm(f"{_lost(job, unsaved)}; move them?", yes=yes)
            moved = client.migrate(job, leave=leave, to=to)
    output.print_result(moved, *_lines(moved), as_json=settings.as_json)


def _lost(job: str, unsaved: dict[str, Any]) -> str:
    """Return what the runs of a job without checkpoints lose by a move."""
    runs = output.counted(unsaved["runs"], "run")
    of_gpus = f" and {unsaved['gpu_s']:,.0f} s of GPU time" if unsaved["gpu_s"] else ""
    lost = f"up to {format_seconds(unsaved['run_s'])} of work{of_gpus} are lost"
    return f"{job} saves no checkpoints: {runs} would start from the beginning, {lost}"


def _lines(moved: dict[str, Any]) -> list[str]:
    does = "would move" if moved["dry_run"] else "moves"
    return [f"task {each['task']}: {_where(each, does)}" for each in moved["moves"]]


def _where(move: dict[str, Any], does: str) -> str:
    if move["from"] == move["to"]:
        return f"starts again on {move['to']} with its gang"
    return f"{does} from {move['from']} to {move['to']}"
