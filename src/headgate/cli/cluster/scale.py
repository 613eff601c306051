"""The verb scale."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import typer

from headgate.base.units import format_seconds
from headgate.cli.common import output
from headgate.cli.common.settings import FormatOption, StateOption, settle


def scale(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Also what the next round would order and drain.")
    ] = False,
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """Show the nodes that are ordered, up by order, and being removed.

    Nodes are ordered by the controller itself, for what waits; see headgate up --scaling.
    """
    settings = settle(state, fmt)
    with settings.client() as client:
        found = client.scaling()
    output.print_result(found, *_lines(found, dry_run=dry_run), as_json=settings.as_json)


def _lines(found: dict[str, Any], *, dry_run: bool) -> list[str]:
    if found["shapes"] is None:
        return ["no node can be ordered: the cluster does not scale (headgate up --scaling FILE)"]
    lines = [_order_text(order) for order in found["orders"]]
    lines += [f"{each['node']} is up, a node of shape {each['shape']}" for each in found["made"]]
    lines += [f"{each['node']} is being removed" for each in found["removing"]]
    lines = lines or ["no node is on its way, up or being removed by order"]
    if dry_run:
        orders = Counter(found["would_order"])
        lines += [f"would order {count} of shape {name}" for name, count in orders.items()]
        lines += [f"would remove {node}" for node in found["would_drain"]]
        lines += [f"would not order: {why}" for why in found["unmet"]]
        if not orders and not found["would_drain"]:
            lines.append("would change nothing now")
    return lines


def _order_text(order: dict[str, Any]) -> str:
    failed = ""
    if order["failures"]:
        failed = f"; failed {order['failures']} times, last: {order['message']}"
    since = format_seconds(order["since_s"])
    return f"{order['order']}: a node of shape {order['shape']} ordered {since} ago{failed}"
