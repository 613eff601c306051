"""`headgate reproduce packing`: policies on recorded pods, beside what was published of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli.common import output
from headgate.cli.common.settings import FormatOption, settle
from headgate.cli.reproduce import report_options
from headgate.cli.simulate.pack import NodesOption, PodsOption, files

if TYPE_CHECKING:
    from headgate.experiments.packing.report import Reached
    from headgate.experiments.packing.runs import Outcome, Run


def packing(
    pods: PodsOption = None,
    nodes: NodesOption = None,
    policies: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="Which policies.", show_default="all"),
    ] = None,
    seeds: Annotated[int, typer.Option(metavar="N", help="How many orders of the pods.")] = 10,
    out: report_options.OutOption = Path("packing-report"),
    workers: report_options.WorkersOption = None,
    fmt: FormatOption = None,
) -> None:
    """Pack recorded pods under several policies.

    Writes a report of their figures, beside the published ones if the pods and nodes are those.
    """
    from headgate.experiments.packing import report
    from headgate.experiments.packing.reading import read
    from headgate.experiments.packing.runs import POLICIES, Run, check

    as_json = settle(None, fmt).as_json
    where = files(pods, nodes)
    names = POLICIES if policies is None else [name.strip() for name in policies.split(",")]
    for name in names:
        check(name, "--policies")
    _check(seeds, workers, out)
    workload = read(*where)
    report_options.make(out)
    runs = [Run(name, seed) for seed in range(seeds) for name in dict.fromkeys(names)]
    outcomes = _run(runs, where, workers or report_options.cpus(), as_json)
    reached = report.reached(outcomes, workload)
    with report_options.writing(out):
        report.write(out, reached, outcomes, workload)
    page = out / report.PAGE
    if as_json:
        output.print_json({"rows": [r.as_json() for r in reached], "report": str(page)})
    else:
        _show(reached)
        output.print_text("", f"The report, with charts: {page}")


def _check(seeds: int, workers: int | None, out: Path) -> None:
    """Raise SpecError `usage` with all invalid options."""
    from headgate.experiments.packing import COMMAND, report

    wrong = report_options.invalid_directory(out, (report.PAGE,), COMMAND)
    if seeds < 1:
        wrong.append(("--seeds", f"must be 1 or more, not {seeds}", ""))
    wrong += report_options.invalid_workers(workers)
    report_options.reject(wrong)


def _run(
    runs: Sequence[Run], where: tuple[Path, Path], workers: int, as_json: bool
) -> Mapping[Run, Outcome]:
    from headgate.experiments.packing.runs import pack_files
    from headgate.experiments.pool import run_all

    with report_options.counting("Packing", len(runs), as_json=as_json) as advance:

        def step(run: Run) -> None:
            advance(f"Packed with {run.policy}, seed {run.seed}")

        return run_all(runs, pack_files, where, workers=workers, step=step)


_HEAD = ("POLICY", "ALLOCATED", "DEVIATION", "PUBLISHED", "FRAGMENTED", "PUBLISHED")


def _show(reached: Sequence[Reached]) -> None:
    from headgate.experiments.packing.report import cells

    output.print_table(_HEAD, [cells(one) for one in reached])
