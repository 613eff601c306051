"""`headgate top`: which running jobs slow each other down, and over which links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from headgate.base.units import format_seconds, format_size
from headgate.cli import output
from headgate.cli.settings import FormatOption, StateOption, settle

_MOST = 50
LINK_HEADINGS = ("LINK", "CAPACITY", "LOAD", "USE", "JOBS")


def top(
    links: Annotated[bool, typer.Option("--links", help="Show links instead of jobs.")] = False,
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """List running jobs that communicate, the most slowed first.

    With --links, lists the busiest links. Computed from where jobs run, what they declare, and the
    topology; nothing is measured.
    """
    settings = settle(state, fmt)
    with settings.client() as client:
        found = client.links()
    if settings.as_json:
        output.print_json(found)
        return
    if links:
        links_found = found["links"]
        print_links([{**row, "jobs": [j["job"] for j in row["jobs"]]} for row in links_found])
    else:
        _print_jobs(found["jobs"])
    if undeclared := found["undeclared"]:
        output.print_wrapped(
            f"Not included: {len(undeclared)} gangs on several nodes that declare no communication"
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
