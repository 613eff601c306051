"""`headgate top`: what is allocated and used, and which jobs slow each other down."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from headgate.base.errors import Problem, SpecError
from headgate.base.units import BadQuantity, parse_duration
from headgate.cli.common import output
from headgate.cli.common.screen import ScreenLine, can_be_drawn_on
from headgate.cli.common.settings import (
    FormatOption,
    ProgramSettings,
    StateOption,
    client_of,
    parsed,
    settle,
)
from headgate.cli.jobs.top_live import watch
from headgate.cli.jobs.top_pages import LINKS, PAGES, link_lines, read, slowdown_lines

_MOST = 50
_INTERVAL_S, _LEAST_S, _MOST_S = 2.0, 0.1, 3600.0
_RESPONSE_S = 20.0  # after which a live view says that the controller does not respond
_WIDE = 10_000  # columns: nothing is cropped


def top(
    links: Annotated[bool, typer.Option("--links", help="Begin with the links.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Print the page once, as text.")] = False,
    interval: Annotated[
        str | None,
        typer.Option(metavar="SECONDS", help="Read again after this time, 2 s by default."),
    ] = None,
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """Show nodes, GPUs, jobs, queues, links: allocated and used.

    On a terminal the view is refreshed in place: keys 1 to 4 choose the page, q quits. Elsewhere,
    with --once and -o wide the page is printed once: running jobs that communicate, the most slowed
    first, the nodes and the running jobs; with --links the busiest links. What links carry is
    computed from where jobs run, what they declare, and the topology; it is not measured.
    """
    settings, interval_s = settle(state, fmt), _INTERVAL_S
    live = not (once or settings.as_json or settings.wide) and can_be_drawn_on()
    if interval is not None:
        interval_s = parsed("--interval", _seconds, interval)
        _need_live(settings, once=once, live=live)
    if live:
        with client_of(settings.state, timeout_s=_RESPONSE_S) as client:
            watch(client, interval_s, LINKS if links else 0)
        return
    with settings.client() as client:
        views = read(client, ("running", "links"))
    if settings.as_json:
        gpus = [{"node": node["id"], **gpu} for node in views["nodes"] for gpu in node["gpus"]]
        keys = ("jobs", "links", "undeclared", "nodes", "queues", "running")
        output.print_json({**{key: views[key] for key in keys}, "gpus": gpus})
        return
    width, terminal = _WIDE if settings.wide else output.columns(), sys.stdout.isatty()
    if views["jobs"] and not links:
        _print([*slowdown_lines(views, width, terminal), ScreenLine("")])
    _print(PAGES[LINKS if links else 0].lines(views, width, terminal))


def _seconds(text: str) -> float:
    """Return the seconds of an interval: a number, or a duration."""
    try:
        seconds = parse_duration(text if text[-1:].isalpha() else f"{text}s")
    except BadQuantity:
        hint = "write seconds, such as 2 or 0.5"
        raise BadQuantity(f"'{text}' is not a time", hint) from None
    if not _LEAST_S <= seconds <= _MOST_S:
        raise BadQuantity(f"must be from {_LEAST_S:g} s to {_MOST_S:g} s, not '{text}'")
    return seconds


def _need_live(settings: ProgramSettings, *, once: bool, live: bool) -> None:
    """Raise SpecError `usage` for an interval where the page is printed once."""
    if live:
        return
    other = "--once" if once else f"-o {settings.format.value}"
    if once or settings.as_json or settings.wide:
        text, hint = f"with {other} the page is printed once", f"leave out {other}, or --interval"
    else:
        text = "needs a terminal: elsewhere the page is printed once"
        hint = "leave it out"
    raise SpecError([Problem(path="--interval", problem=text, hint=hint)], code="usage")


def _print(lines: Sequence[ScreenLine]) -> None:
    for line in lines:
        output.write(f"{line.text}\n")


def print_links(links: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of links, the busiest of them: load, capacity, the jobs that share each."""
    _print(link_lines(links[:_MOST], output.columns(), sys.stdout.isatty()))
    if len(links) > _MOST:
        output.print_note(f"and {len(links) - _MOST} more; -o json lists all")


def link_rows(figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the rows of a simulation's figures on diameters, slowdowns and links."""
    if figures["mean_diameter"] is not None:
        yield "mean diameter", f"{figures['mean_diameter']:.2f} hops"
    slowdown = figures["slowdown"]
    if slowdown["mean"] is not None:
        yield "slowdown", f"mean {slowdown['mean']:.2f}, p95 {slowdown['p95']:.2f}"
        yield "shared links", str(figures["shared_links"])
