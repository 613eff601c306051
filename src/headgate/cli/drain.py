"""The verbs drain and resume."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headgate.cli import output
from headgate.cli.settings import DryRunOption, FormatOption, StateOption, settle

NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="The node's name.")]


def drain(
    node: NodeArgument,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Shown to users whose jobs wait.")
    ] = "",
    dry_run: DryRunOption = False,
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """Let no run start on a node; for administrators.

    Such as before its maintenance. Its runs end by themselves; headgate migrate --from NODE moves
    them away.
    """
    settings = settle(state, fmt)
    with settings.client() as client:
        answer = client.drain(node, reason=reason, dry_run=dry_run)
        found = next(each for each in client.nodes() if each["id"] == node)
    output.print_result(answer, _drained(answer, len(found["runs"])), as_json=settings.as_json)


def _drained(answer: dict[str, Any], runs: int) -> str:
    if answer["dry_run"]:
        return f"{answer['id']} would drain"
    left = {0: "no run", 1: "1 run"}.get(runs, f"{runs} runs")
    return f"{answer['id']} drains: {left} left"


def resume(
    node: NodeArgument,
    dry_run: DryRunOption = False,
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """Let runs start on a draining node again; for administrators."""
    settings = settle(state, fmt)
    with settings.client() as client:
        answer = client.resume(node, dry_run=dry_run)
    does = "would take" if dry_run else "takes"
    output.print_result(answer, f"{node} {does} runs", as_json=settings.as_json)
