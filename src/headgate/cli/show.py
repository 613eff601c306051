"""Verbs that show the cluster: nodes, queues."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headgate.base.text import used_elsewhere
from headgate.base.units import format_size
from headgate.cli import output
from headgate.cli.settings import FormatOption, StateOption, settle


def nodes(state: StateOption = None, fmt: FormatOption = None) -> None:
    """List the nodes: amounts granted and actually used, and the expected bandwidth."""
    settings = settle(state, fmt)
    with settings.client() as client:
        found, bandwidth = client.nodes(), client.info()["bandwidth"]
    if settings.as_json:
        output.print_json({"nodes": found, "bandwidth": bandwidth})
        return
    output.print_table(
        ("NODE", "RACK", "STATE", "FREE GPUS", "GPU MEMORY", "CPUS", "MEMORY", "RUNS"),
        map(_node_cells, found),
    )
    for line in in_use_elsewhere(found):
        output.print_text(line)
    output.print_text(
        "a transfer can expect"
        f" {format_size(bandwidth['disk_bytes_per_s'])}/s from a disk,"
        f" {format_size(bandwidth['rack_bytes_per_s'])}/s within a rack,"
        f" {format_size(bandwidth['cluster_bytes_per_s'])}/s across racks"
    )


def in_use_elsewhere(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each node that has GPUs which other Ray programs use."""
    withheld = {
        node["id"]: [gpu["index"] for gpu in node["gpus"] if gpu.get("withheld")] for node in nodes
    }
    return [used_elsewhere(node, gpus) for node, gpus in withheld.items() if gpus]


def _node_cells(node: dict[str, Any]) -> tuple[object, ...]:
    memory = sorted({gpu["memory_bytes"] for gpu in node["gpus"]})
    return (
        *(node["id"], node["rack"], node["state"]),
        f"{node['free_gpus']}/{len(node['gpus'])}",
        ", ".join(format_size(size) for size in memory) or None,
        _book(node, "cpus", "{:g}".format),
        _book(node, "memory_bytes", format_size),
        ", ".join(node["runs"]) or None,
    )


def _book(node: dict[str, Any], kind: str, write: Callable[[float], str]) -> str | None:
    """Return the granted, total and actually used amount of a resource; None if not booked."""
    total, granted = node["total"].get(kind), node["granted"].get(kind, 0)
    used = (node["actual"] or {}).get(kind)
    text = f"{write(granted)} of {write(total)}" if total else None
    if used is None or text is None:
        return text
    return f"{text}, {write(used)} used"


def queues(state: StateOption = None, fmt: FormatOption = None) -> None:
    """List the queues: weights, ceilings and the GPUs that they hold."""
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
