"""`headgate plan`: what would change now under another policy, or with more nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from headgate.base.units import format_seconds
from headgate.cli.common import output
from headgate.cli.common.settings import POLICY_FORM, FormatOption, StateOption, settle
from headgate.cli.common.times import in_local_time
from headgate.cli.jobs.timeline import check_page, print_timeline, write_page
from headgate.cli.jobs.why import reads

View = dict[str, Any]
_RUNS_MOST = 40


def plan(
    policy: Annotated[
        str | None,
        typer.Option(
            metavar=POLICY_FORM,
            help="Policy to try, such as fsp or fs,alpha1=2; default: the one in force.",
        ),
    ] = None,
    nodes: Annotated[int | None, typer.Option(metavar="N", help="Number of nodes to add.")] = None,
    like: Annotated[
        str | None,
        typer.Option(
            metavar="NODE", help="Node whose hardware they have; default: of the commonest kind."
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write the reservations as an HTML page."),
    ] = None,
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """Show what another policy or more nodes would change now.

    Changes nothing. Where the policy reserves GPUs, a time line shows for which jobs, and after
    which runs.
    """
    settings = settle(state, fmt)
    if report is not None:
        check_page(report)
    with settings.client() as client:
        outlooks = client.plan(policy=policy, nodes=nodes, like=like)
    what_if, now = outlooks["what_if"], outlooks["now"]
    if report is not None:
        write_page(report, policy or what_if["policy"], what_if["reservations"], now)
    if settings.as_json:
        output.print_json(outlooks)
        return
    other = policy or outlooks["what_if"]["policy"]
    if outlooks["new_nodes"]:
        other += f", with {output.counted(len(outlooks['new_nodes']), 'node')} more"
    output.print_wrapped(f"Now ({outlooks['today']['policy']}): {_summary(outlooks['today'])}")
    output.print_wrapped(f"What if ({other}): {_summary(outlooks['what_if'])}")
    if outlooks["what_if"]["jobs"]:
        output.print_text("")
        output.print_table(
            ("JOB", "GPUS", "NOW", "WHAT IF", "RUNS", "PENDING", "REASON"),
            _jobs(outlooks, whole=settings.wide),
            text=None if settings.wide else "REASON",
            names=("JOB",),
        )
    _print_runs(what_if)
    if what_if["reservations"]:
        print_timeline(what_if["reservations"], now)
    if report is not None:
        output.print_note(f"report: {report}")


def _summary(found: View) -> str:
    if not found["starts"] and not found["cuts"]:
        return f"no change; {found['free_gpus']} of {found['gpus']} GPUs stay free"
    text = f"{output.counted(len(found['starts']), 'run')} would start"
    if found["cuts"]:
        lost = format_seconds(sum(job["lost_gpu_s"] for job in found["jobs"]))
        text += f", {len(found['cuts'])} would be preempted (GPU time lost: {lost})"
    text += f"; {found['free_gpus']} of {found['gpus']} GPUs would stay free"
    return text if found["settled"] else f"{text}; further rounds would change more"


def _jobs(outlooks: View, *, whole: bool) -> Iterator[tuple[object, ...]]:
    """Yield the rows of the jobs; unless `whole`, with the short form of reasons."""
    today = {job["job"]: job for job in outlooks["today"]["jobs"]}
    for job in outlooks["what_if"]["jobs"]:
        reason = None if job["reason"] is None else job["reason"]["text" if whole else "brief"]
        reason = reason and in_local_time(reason)
        yield (
            *(job["job"], job["held_gpus"], today[job["job"]]["holds_gpus"], job["holds_gpus"]),
            *(_change(job["started_tasks"], job["cut_tasks"]), job["waiting_tasks"], reason),
        )


def _change(started: int, preempted: int) -> str | None:
    """Return how many runs start and are preempted as text: `+2 -1`."""
    parts = [f"+{started}"] * bool(started) + [f"-{preempted}"] * bool(preempted)
    return " ".join(parts) or None


def _print_runs(found: View) -> None:
    rows: list[tuple[object, ...]] = [
        (_name(c), "is preempted", c["node"], _gpus(c), f"after {format_seconds(c['ran_s'])}")
        for c in found["cuts"]
    ]
    rows += [
        (_name(s), "starts", s["node"], _gpus(s), reads(s["read_bytes"])) for s in found["starts"]
    ]
    if not rows:
        return
    output.print_text("")
    output.print_table(
        ("TASK", "WHAT IF", "NODE", "GPU IDS", ""),
        rows[:_RUNS_MOST],
        names=("TASK", "GPU IDS", "NODE"),
    )
    if len(rows) > _RUNS_MOST:
        output.print_note(f"and {len(rows) - _RUNS_MOST} more; -o json lists all")


def _name(run: View) -> str:
    return f"{run['job']}/{run['ordinal']}"


def _gpus(run: View) -> str | None:
    return ",".join(map(str, run["gpus"])) or None
