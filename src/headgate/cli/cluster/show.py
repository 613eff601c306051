"""The verb that shows the nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from headgate.base.states import node_word
from headgate.base.text import enumerated, used_elsewhere
from headgate.base.units import format_ratio, format_size
from headgate.cli.common import output
from headgate.cli.common.settings import FormatOption, StateOption, settle


def nodes(
    all_nodes: Annotated[
        bool, typer.Option("--all", help="Also list nodes that have been down for over an hour.")
    ] = False,
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """List the nodes: state, allocated resources, runs.

    Also shows the expected bandwidth; -o wide shows labels, models of GPUs and what nodes
    actually use.
    """
    settings = settle(state, fmt)
    with settings.client() as client:
        every, info = client.nodes(all=True), client.info()
        found = every if all_nodes else client.nodes()
    bandwidth, stand_in = info["bandwidth"], {key: info[key] for key in ("policy", "stand_in")}
    if settings.as_json:
        output.print_json({"nodes": found, "bandwidth": bandwidth, **stand_in})
        return
    headings = ("NODE", "RACK", "STATE", "GPUS", "GPU MEM", "CPUS", "MEMORY", "RUNS")
    if settings.wide:
        rows = (
            (*_node_cells(node), ", ".join(node["labels"]) or None, _models(node), *_used(node))
            for node in found
        )
        output.print_table((*headings, "LABELS", "GPU MODEL", "CPUS USED", "MEMORY USED"), rows)
    else:
        cropped = ("RUNS", "GPU MEM", "RACK", "NODE")
        output.print_table(headings, map(_node_cells, found), names=cropped)
    output.print_text("GPUS, CPUS, MEMORY: allocated/total")
    if unlisted := len(every) - len(found):
        has = "has" if unlisted == 1 else "have"
        counted = output.counted(unlisted, "node")
        output.print_note(f"{counted} {has} been down for over an hour; see --all")
    for line in (*stand_in_lines(stand_in), *in_use_elsewhere(found), *in_use_outside(found)):
        output.print_wrapped(line)
    output.print_wrapped(
        f"Bandwidth: {format_size(bandwidth['disk_bytes_per_s'])}/s disk,"
        f" {format_size(bandwidth['rack_bytes_per_s'])}/s in a rack,"
        f" {format_size(bandwidth['cluster_bytes_per_s'])}/s across racks"
    )


def stand_in_lines(view: Mapping[str, Any]) -> list[str]:
    """Return the line that says that another policy decides, none if that in force does."""
    if view["stand_in"] is None:
        return []
    hung = f"{view['policy']}, which made no plan in time, several times in a row"
    return [f"Policy: {view['stand_in']} decides in place of {hung}, until the controller restarts"]


def in_use_elsewhere(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each node that has GPUs which other Ray programs use."""
    withheld = {
        node["id"]: [gpu["index"] for gpu in node["gpus"] if gpu.get("withheld")] for node in nodes
    }
    return [used_elsewhere(node, gpus) for node, gpus in withheld.items() if gpus]


def in_use_outside(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each node of which processes outside Headgate use some."""
    lines = []
    for node in nodes:
        outside, used = node["outside"] or {"cpus": 0, "memory_bytes": 0}, []
        if outside["memory_bytes"]:
            used.append(f"{format_size(outside['memory_bytes'])} of memory")
        if outside["cpus"]:
            used.append(f"{outside['cpus']:.3g} CPUs")
        for gpu in (gpu for gpu in node["gpus"] if gpu["outside_memory_bytes"]):
            size = format_size(gpu["outside_memory_bytes"])
            used.append(f"{size} of GPU {gpu['index']} (pid {gpu['outside_pid']})")
        if used:
            lines.append(f"{node['id']}: {enumerated(used)} in use outside Headgate")
    return lines


def _node_cells(node: dict[str, Any]) -> tuple[object, ...]:
    memory = sorted({gpu["memory_bytes"] for gpu in node["gpus"]})
    total, granted = node["total"], node["granted"]
    cpus, size = total.get("cpus"), total.get("memory_bytes")
    up = node["state"] == "up"
    taken = ("granted_share", "granted_memory_bytes", "withheld")
    used = sum(any(gpu[key] for key in taken) for gpu in node["gpus"])
    return (
        *(node["id"], node["rack"], node_word(node["state"], draining=bool(node["draining"]))),
        f"{used}/{len(node['gpus'])}" if up else None,
        ", ".join(format_size(size) for size in memory) or None,
        f"{granted.get('cpus', 0):g}/{cpus:g}" if cpus else None,
        format_ratio(granted.get("memory_bytes") or 0, size) if size else None,
        ", ".join(node["runs"]) or None,
    )


def _models(node: dict[str, Any]) -> str | None:
    """Return the models of a node's GPUs."""
    return ", ".join(dict.fromkeys(gpu["model"] for gpu in node["gpus"] if gpu["model"])) or None


def _used(node: dict[str, Any]) -> tuple[str | None, str | None]:
    """Return the CPUs and the memory that a node reports as actually used."""
    actual = node["actual"]
    if actual is None:
        return None, None
    return f"{actual['cpus']:g}", format_size(actual["memory_bytes"])
