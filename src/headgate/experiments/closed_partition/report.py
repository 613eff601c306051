"""The experiment on the three sets of jobs, and its report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape

from headgate.experiments.closed_partition import PAPER, runs
from headgate.experiments.closed_partition.claims import CLAIMS
from headgate.experiments.closed_partition.kernels import KERNELS, SIZES, Size, published_mean_s
from headgate.experiments.closed_partition.runs import (
    CLOSED,
    PLACERS,
    SEQUENTIAL,
    PartitionRun,
)
from headgate.experiments.closed_partition.tables import (
    PartitionResults,
    as_json,
    calibration_rows,
    figures,
    gather,
)
from headgate.experiments.closed_partition.training import trainings
from headgate.experiments.frame.claims import judge, judged
from headgate.experiments.frame.experiment import Experiment, Runner
from headgate.experiments.frame.report import Claims, Report, Table
from headgate.reports.drawing import bars
from headgate.reports.pages import grid, legend


def experiment(seeds: Sequence[int]) -> Experiment[PartitionResults]:
    """Return the calibration of each variant, and the simulations."""
    planned = runs.plan(seeds)

    def words(run: PartitionRun) -> str:
        return f"Simulated {run.size.name}, {run.placer}, seed {run.seed}"

    def measured(runner: Runner) -> PartitionResults:
        splits = runner.all(
            runs.VARIANTS, runs.calibrate, runs.JOBS, lambda variant: f"Calibrated: {variant.name}"
        )
        rows = runner.all(planned, runs.measure, splits, words)
        return gather(rows, seeds, splits, trainings())

    return Experiment(plan=(*runs.VARIANTS, *planned), measure=measured, report=report)


def report(results: PartitionResults) -> Report:
    """Return the page, and a row for each variant, set and placement."""
    sets = {size: _set(results, size) for size in SIZES}
    return Report(
        paper=PAPER,
        title="Closed-minimum placement, reproduced",
        words="Published figures and claims of Zhang and Lin, <cite>Multi-job assignment "
        "optimization approach based on closed minimum graph-partitioning model</cite>, beside "
        "those of a simulation on the published machine, 32 nodes in a tree, in which jobs slow "
        "each other down where their messages share links. Seeds: "
        f"{', '.join(map(str, results.seeds))}; figures are means over them.",
        claims=Claims(rows=judged(judge(CLAIMS, results))),
        sections=(
            ("Sets", "".join(_with_published(table, size) for size, table in sets.items())),
            ("Part saved by kernel", _gains(results)),
            ("Other assumptions", _variants(results)),
            ("Training", _trainings(results)),
            ("Calibration", _calibration(results)),
        ),
        files={"rows.csv": list(_flat(results))},
        shown=[*sets.values()],
        facts={"seeds": list(results.seeds), "tables": as_json(results)},
        called="The report",
    )


def _flat(results: PartitionResults) -> Iterable[dict[str, object]]:
    for variant, size, placer in results.rows:
        ours = figures(results, variant, size, placer)
        kernels_s, mean_s, _ = ours.pop("kernels_s"), ours.pop("mean_s"), ours.pop("gain")
        yield {
            "variant": variant.name,
            "set": size.name,
            "placement": placer,
            "mean_s": mean_s,
            **{f"{k.name}_s": kernels_s[k.name] for k in KERNELS},
            **ours,
        }


def _set(results: PartitionResults, size: Size) -> Table:
    """Return a row for each placement of a set."""

    def row(placer: str) -> list[str | None]:
        row = results.row(size, placer)
        return [
            placer,
            f"{results.mean_s(size, placer):.3f} s",
            f"{results.gain(size, placer):.1%}",
            *(f"{row.mean_s[k.name]:.2f}" for k in KERNELS),
            f"{row.wait_s:.1f} s",
            f"{row.slowdown:.3f}",
            None if row.diameter is None else f"{row.diameter:.2f}",
            None if row.closed is None else f"{row.closed:.0%}",
            f"{row.utilisation:.0%}",
            f"{row.shared_links:.2f}",
        ]

    return Table(
        title=f"{size.name}; published, sequential: {published_mean_s(size):.3f} s",
        head=(
            "placement", "mean", "saved", *(k.name for k in KERNELS), "wait", "slowdown",
            "diameter", "least", "used", "shared links",
        ),
        brief=(
            "PLACEMENT", "MEAN", "SAVED", *(None for _ in KERNELS), "WAIT", "SLOWDOWN", "DIAMETER",
            None, "USED", "SHARED",
        ),
        rows=[row(placer) for placer in PLACERS],
    )  # fmt: skip


def _with_published(table: Table, size: Size) -> str:
    """Return the table of a set in HTML, below the published figures."""
    kernels = [f"{k.published_s(size):.2f}" for k in KERNELS]
    mean = f"{published_mean_s(size):.3f} s"
    published = ["published, sequential", mean, None, *kernels, *(None,) * 6]
    nodes = f"{size.nodes} node{'s' * (size.nodes > 1)}"
    beside = replace(table, rows=[published, *table.rows])
    return f"<h3>{size.name}, {nodes} a job</h3>{beside.html(titled=False)}"


def _gains(results: PartitionResults) -> str:
    shown = {
        kernel.name: {
            size.name: 100 * max(0.0, results.kernel_gain(kernel.name, size, CLOSED))
            for size in SIZES
        }
        for kernel in KERNELS
    }
    most = max(value for values in shown.values() for value in values.values())
    drawn = bars(
        shown, [s.name for s in SIZES], most=most or 1.0, form="{:.1f} %", title="part saved"
    )
    return legend((f"b{n}", size.name) for n, size in enumerate(SIZES)) + drawn


def _variants(results: PartitionResults) -> str:
    head = ("assumption", *(f"saved, {s.name}" for s in SIZES), "EP C/64", "IS C/64", "FT C/64")
    rows = [
        (
            escape(variant.name),
            *(f"{results.gain(size, CLOSED, variant):.1%}" for size in SIZES),
            *(
                f"{results.kernel_gain(name, SIZES[-1], CLOSED, variant):.1%}"
                for name in ("EP", "IS", "FT")
            ),
        )
        for variant in results.splits
    ]
    words = "<p>Each is calibrated on its own, so that sequential placement takes the published "
    return f"{words}means; then closed-minimum is compared with it.</p>{grid(head, rows)}"


def _trainings(results: PartitionResults) -> str:
    head = ("server's link", "4 GPUs in one server", "4 GPUs on 4 servers", "ratio")
    rows = [
        (
            f"{t.gbit_per_s:g} Gbit/s",
            f"{t.one_server:.1f} steps/s",
            f"{t.four_servers:.1f} steps/s",
            f"{t.ratio:.2f}",
        )
        for t in results.trainings
    ]
    return grid(head, rows)


def _calibration(results: PartitionResults) -> str:
    head = (
        "kernel", "set", "pattern", "published", "computing", "communication", SEQUENTIAL,
    )  # fmt: skip
    rows = [
        (
            row["kernel"],
            row["set"],
            row["pattern"],
            *(
                f"{row[name]:.3f} s"
                for name in ("published_s", "compute_s", "communication_s", "simulated_s")
            ),
        )
        for row in calibration_rows(results)
    ]
    return (
        "<p>Computing is the published time of class A on 4 processes, which run in one node, "
        "times the ratio of operations for each process. The rest of the published mean is "
        "communication in the best set, alone, times the slowdown that it has under sequential "
        f"placement in the simulation, with seeds of its own.</p>{grid(head, rows)}"
    )
