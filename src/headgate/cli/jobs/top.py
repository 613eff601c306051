"""`headgate top`: which running jobs slow each other down, and over which links."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headgate.base.states import node_word
from headgate.base.units import format_ratio, format_seconds, format_size
from headgate.cli.common import output
from headgate.cli.common.settings import FormatOption, StateOption, settle
from headgate.cli.jobs.jobs import job_lines

if TYPE_CHECKING:
    from headgate.api.client import Client

_MOST = 50
LINK_HEADINGS = ("LINK", "CAPACITY", "LOAD", "USE", "JOBS")


def top(
    links: Annotated[bool, typer.Option("--links", help="Show links instead of jobs.")] = False,
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """List running jobs that communicate, the most slowed first.

    Where none does, lists the nodes and the running jobs with what they use. With --links, lists
    the busiest links. What links carry is computed from where jobs run, what they declare, and the
    topology; it is not measured.
    """
    settings = settle(state, fmt)
    with settings.client() as client:
        found = client.links()
        if not (settings.as_json or links or found["jobs"]):
            _print_use(client)
    if settings.as_json:
        output.print_json(found)
        return
    if links:
        links_found = found["links"]
        print_links([{**row, "jobs": [j["job"] for j in row["jobs"]]} for row in links_found])
    elif found["jobs"]:
        _print_jobs(found["jobs"])
    if undeclared := found["undeclared"]:
        output.print_wrapped(
            f"Not included: {len(undeclared)} gangs on several nodes that declare no communication"
        )


def _print_use(client: Client) -> None:
    """Print the nodes with what is allocated and used of them, then the running jobs."""
    headings = ("NODE", "STATE", "GPUS", "GPU USE", "GPU MEM USED", "CPUS USED", "MEMORY USED")
    output.print_table(headings, map(_use_cells, client.nodes()), names=("NODE",))
    output.print_text("")
    running = client.jobs(state="running", limit=_MOST)["jobs"]
    for line in job_lines(running, output.columns(), terminal=sys.stdout.isatty()):
        output.write(f"{line}\n")


def _use_cells(node: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the cells of a node: allocated/total GPUs, and use as last reported."""
    gpus, actual, total = node["gpus"], node["actual"], node["total"]
    held = sum(bool(gpu["granted_share"] or gpu["withheld"]) for gpu in gpus)
    shares = [gpu["utilisation"] for gpu in gpus if gpu["utilisation"] is not None]
    memory = [gpu for gpu in gpus if gpu["actual_memory_bytes"] is not None]
    used_bytes = sum(gpu["actual_memory_bytes"] for gpu in memory)
    word = node_word(node["state"], draining=bool(node["draining"]))
    return (
        *(node["id"], word, f"{held}/{len(gpus)}" if node["state"] == "up" else None),
        f"{sum(shares) / len(shares):.0%}" if shares else None,
        format_ratio(used_bytes, sum(gpu["memory_bytes"] for gpu in memory)) if memory else None,
        f"{actual['cpus']:g}/{total.get('cpus', 0):g}" if actual else None,
        format_size(actual["memory_bytes"]) if actual else None,
    )


def print_links(links: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of links, the busiest of them: load, capacity, the jobs that share each."""
    rows = [
        (
            link["link"],
            _rate(link["capacity_bytes_per_s"]),
            _rate(link["load_bytes_per_s"]),
            f"{link['use']:.0%}",
            ", ".join(link["jobs"]) or None,
        )
        for link in links[:_MOST]
    ]
    output.print_table(LINK_HEADINGS, rows, text="JOBS", names=("LINK",))
    if len(links) > _MOST:
        output.print_note(f"and {len(links) - _MOST} more; -o json lists all")


def _rate(bytes_per_s: float | None) -> str | None:
    return None if bytes_per_s is None else f"{format_size(bytes_per_s)}/s"


def _print_jobs(jobs: Sequence[Mapping[str, Any]]) -> None:
    rows = (
        (
            job["job"],
            f"{job['slowdown']:.2f}x",
            format_seconds(job["step_s"]),
            format_seconds(job["best_step_s"]),
            job["diameter"],
            ", ".join(job["shared_with"]) or None,
        )
        for job in jobs
    )
    headings = ("JOB", "SLOWDOWN", "STEP", "BEST STEP", "HOPS", "SHARES LINKS WITH")
    output.print_table(headings, rows, text="SHARES LINKS WITH", names=("JOB",))


def link_rows(figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the rows of a simulation's figures on diameters, slowdowns and links."""
    if figures["mean_diameter"] is not None:
        yield "mean diameter", f"{figures['mean_diameter']:.2f} hops"
    slowdown = figures["slowdown"]
    if slowdown["mean"] is not None:
        yield "slowdown", f"mean {slowdown['mean']:.2f}, p95 {slowdown['p95']:.2f}"
        yield "shared links", str(figures["shared_links"])
