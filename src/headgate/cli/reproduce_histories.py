"""`headgate reproduce histories`: policies on recorded job histories, and Headgate's own goals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.app import POLICIES
from headgate.base.errors import Problem, SpecError
from headgate.base.units import format_compact
from headgate.cli import output, report_options
from headgate.cli.errors import OUTSIDE
from headgate.cli.settings import FormatOption, settle

if TYPE_CHECKING:
    from headgate.experiments.histories.histories import History
    from headgate.experiments.histories.report import Results
    from headgate.experiments.histories.runs import Contender, Row, Run, Which

_MOST_GPUS = 1_000_000


def histories(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="Traces; else the published ones in --traces."),
    ] = None,
    by_vc: Annotated[
        bool, typer.Option("--by-vc", help="Each vc of the files is a history of its own.")
    ] = False,
    traces: Annotated[
        Path | None,
        typer.Option(metavar="DIR", envvar="HEADGATE_TRACES", help="Where published traces are."),
    ] = None,
    gpus: Annotated[
        str, typer.Option(metavar="goal|near|all|N,...", help="Which sizes of the cluster.")
    ] = "near",
    policies: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="Which policies.", show_default="those of the goals"),
    ] = None,
    out: report_options.OutOption = Path("histories-report"),
    workers: report_options.WorkersOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 when a goal is missed.")
    ] = False,
    fmt: FormatOption = None,
) -> None:
    """Simulate job histories under several policies.

    Writes a report on how Headgate meets its goals.
    """
    from headgate.experiments.histories import goals, report, runs
    from headgate.experiments.histories.sizes import find_sizes

    as_json = settle(None, fmt).as_json
    on = _check(files or [], traces, gpus, workers, out, by_vc=by_vc)
    names = None if policies is None else [name.strip() for name in policies.split(",")]
    chosen = runs.choose(POLICIES, names)
    read = _read(files or [], traces, by_vc=by_vc)
    report_options.make(out)
    sizes = {history: find_sizes(history) for history in read}
    rows = _run(runs.plan(read, sizes, chosen, on), read, workers or report_options.cpus(), as_json)
    judged = goals.judge_all(read, sizes, rows)
    results = report.Results(histories=read, sizes=sizes, rows=rows, goals=judged)
    with report_options.writing(out):
        report.write(out, results)
    page = out / report.PAGE
    if as_json:
        found = {"rows": [*rows.values()], "goals": goals.as_json(judged)}
        output.print_json({**found, "report": str(page)})
    else:
        _show(results)
        output.print_text("", f"The report, with charts: {page}")
    if strict and any(goal.verdict.holds is False for goal in judged):
        raise typer.Exit(OUTSIDE)


def _check(
    files: Sequence[Path],
    traces: Path | None,
    gpus: str,
    workers: int | None,
    out: Path,
    *,
    by_vc: bool,
) -> Which | Sequence[int]:
    """Return the sizes; raise SpecError `usage` with all invalid options."""
    from headgate.experiments.histories import COMMAND, report

    wrong: list[report_options.Wrong] = []
    if not files and traces is None:
        hint = "name trace files, or the directory of the published ones: docs/traces.md"
        wrong.append(("FILE", "give trace files, --traces DIR or HEADGATE_TRACES", hint))
    if by_vc and not files:
        wrong.append(("--by-vc", "requires FILE", "published traces are divided as they need"))
    wrong += report_options.invalid_workers(workers)
    on = _sizes(gpus)
    if on is None:
        text = f"must be goal, near, all, or numbers from 1 to {_MOST_GPUS}, not '{gpus}'"
        wrong.append(("--gpus", text, "for example --gpus 64,128"))
    wrong += report_options.invalid_directory(out, (report.PAGE,), COMMAND)
    report_options.reject(wrong)
    assert on is not None
    return on


def _sizes(text: str) -> Which | Sequence[int] | None:
    """Return the sizes that `--gpus` names, None for an invalid value."""
    from headgate.experiments.histories.runs import Which

    if text in [*Which]:
        return Which(text)
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= 7 for part in parts):
        return None
    numbers = [*dict.fromkeys(map(int, parts))]
    return numbers if all(1 <= number <= _MOST_GPUS for number in numbers) else None


def _read(files: Sequence[Path], traces: Path | None, *, by_vc: bool) -> tuple[History, ...]:
    """Return the histories; raise SpecError for bad files, and for two with the same name."""
    from headgate.experiments.histories import histories as sources

    if files:
        found = sources.read(files, by_vc=by_vc)
    else:
        assert traces is not None, "checked by _check"
        found = sources.published(traces)
    if names := sources.repeated(found):
        hint = "histories are named for their files"
        problems = [
            Problem(path="FILE", problem=f"two histories are called {n}", hint=hint) for n in names
        ]
        raise SpecError(problems, code="usage")
    return found


def _run(
    runs: Sequence[Run], read: Sequence[History], workers: int, as_json: bool
) -> dict[Run, Row]:
    """Return the row of each run, in order; those of long histories are started first."""
    from headgate.experiments.frame.pool import run_all
    from headgate.experiments.histories.runs import measure

    jobs = {history.source: len(history) for history in read}
    with report_options.counting("Simulating", len(runs), as_json=as_json) as advance:

        def step(run: Run) -> None:
            where = f"{run.source.name} on {run.gpus} GPUs"
            advance(f"Simulated {where}, {run.contender.name}")

        ordered = sorted(runs, key=lambda run: -jobs[run.source])
        found = run_all(ordered, measure, dict(POLICIES), workers=workers, step=step)
    return {run: found[run] for run in runs}


# --- tables --------------------------------------------------------------------------------------

_HEAD = (
    "POLICY", "MEAN JCT", "MEDIAN", "P99", "WAIT", "WIDE P99", "FAIR P95", "USED", "LOST"
)  # fmt: skip


def _show(results: Results) -> None:
    from headgate.experiments.frame.claims import numbers_text, summary

    for history in results.histories:
        for gpus, rows in results.on(history).items():
            output.print_text("", f"{history.name}, {len(history)} jobs, {gpus} GPUs")
            output.print_table(_HEAD, _cells(rows))
    output.print_text("", "Goals")
    for goal in results.goals:
        measured = numbers_text(goal.verdict.ours, goal.verdict.claim.unit)
        text = f"{goal.trace}: {goal.verdict.claim.text}"
        output.print_wrapped(output.verdict(goal.verdict.holds, text, measured=measured))
    output.print_text("", summary([goal.verdict for goal in results.goals]))


def _cells(rows: Mapping[Contender, Row]) -> list[list[object]]:
    from headgate.experiments.histories.report import wide_of

    def row_of(contender: Contender, row: Row) -> list[object]:
        times_s = (
            row["mean_jct_s"], row["median_jct_s"], row["p99_jct_s"], row["mean_wait_s"],
            wide_of(row)["p99_wait_s"],
        )  # fmt: skip
        p95 = row["finish_time_fairness"]["p95"]
        return [
            contender.name,
            *(None if s is None else format_compact(s) for s in times_s),
            None if p95 is None else f"{p95:.2f}",
            f"{row['gpu_utilisation']:.1%}",
            format_compact(row["lost_gpu_s"]),
        ]

    return [row_of(contender, row) for contender, row in rows.items()]
