"""Verbs that show the cluster: nodes, queues."""

from __future__ import annotations

from typing import Any

from headgate.base.units import format_size
from headgate.cli import output
from headgate.cli.settings import FormatOption, StateOption, settle


def nodes(state: StateOption = None, fmt: FormatOption = None) -> None:
    """List the nodes and who holds their GPUs."""
    settings = settle(state, fmt)
    with settings.client() as client:
        found = client.nodes()
    if settings.as_json:
        output.print_json({"nodes": found})
        return
    output.print_table(
        ("NODE", "RACK", "STATE", "FREE GPUS", "GPU MEMORY", "FREE CPUS", "RUNS"),
        map(_node_cells, found),
    )


def _node_cells(node: dict[str, Any]) -> tuple[object, ...]:
    memory = sorted({gpu["memory_bytes"] for gpu in node["gpus"]})
    runs = dict.fromkeys(gpu["task"] for gpu in node["gpus"] if gpu["task"])
    return (
        *(node["id"], node["rack"], node["state"]),
        f"{node['free_gpus']}/{len(node['gpus'])}",
        ", ".join(format_size(size) for size in memory) or None,
        f"{node['free_cpus']}/{node['cpus']}",
        ", ".join(runs) or None,
    )


def queues(state: StateOption = None, fmt: FormatOption = None) -> None:
    """List the queues, their shares and what they hold."""
    settings = settle(state, fmt)
    with settings.client() as client:
        found = client.queues()
    if settings.as_json:
        output.print_json({"queues": found})
        return
    output.print_table(
        ("QUEUE", "WEIGHT", "GPUS", "MAX GPUS", "JOBS IN FLIGHT", "MAX JOBS", "QUEUED"),
        (
            (
                *(q["name"], f"{q['weight']:g}", q["held_gpus"], q["max_gpus"]),
                *(q["in_flight"], q["max_jobs_in_flight"], q["queued"]),
            )
            for q in found
        ),
    )
