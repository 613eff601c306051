"""The verbs drain and resume."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headgate.cli.common import output
from headgate.cli.common.settings import DryRunOption, FormatOption, StateOption, settle
from headgate.cli.common.several import answers, as_one

NodesArgument = Annotated[list[str], typer.Argument(metavar="NODE...", help="The names of nodes.")]


def drain(
    nodes: NodesArgument,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Shown to users whose jobs wait.")
    ] = "",
    dry_run: DryRunOption = False,
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """Let no run start on nodes; for administrators.

    Such as before their maintenance. Their runs end by themselves; headgate migrate --from NODE
    moves them away. If one of the nodes cannot be drained, none is.
    """
    settings = settle(state, fmt)
    with settings.client() as client:
        drained = answers(nodes, lambda node: client.drain(node, reason=reason, dry_run=True))
        if not dry_run:
            drained = answers(nodes, lambda node: client.drain(node, reason=reason))
        runs = {node["id"]: len(node["runs"]) for node in client.nodes(all=True)}
    lines = [_drained(answer, runs[answer["id"]]) for answer in drained]
    output.print_result(as_one("nodes", drained), *lines, as_json=settings.as_json)


def _drained(answer: dict[str, Any], runs: int) -> str:
    if answer["dry_run"]:
        return f"{answer['id']} would drain"
    left = {0: "no run", 1: "1 run"}.get(runs, f"{runs} runs")
    return f"{answer['id']} drains: {left} left"


def resume(
    nodes: NodesArgument,
    dry_run: DryRunOption = False,
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """Let runs start on draining nodes again; for administrators.

    If one of the nodes cannot be resumed, none is.
    """
    settings = settle(state, fmt)
    with settings.client() as client:
        resumed = answers(nodes, lambda node: client.resume(node, dry_run=True))
        if not dry_run:
            resumed = answers(nodes, client.resume)
    does = "would take" if dry_run else "takes"
    lines = [f"{answer['id']} {does} runs" for answer in resumed]
    output.print_result(as_one("nodes", resumed), *lines, as_json=settings.as_json)
