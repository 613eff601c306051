"""One instance of the flow core's benchmark, measured: one made here, or one of a file.

See `docs/flow-core.md`; `flow_core.py` measures all sizes and loads.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from flow_bench.classes import MOST_CLASSES
from flow_bench.instances import LOADS, SIZES, generate
from flow_bench.problem import Source
from flow_bench.report import Report, measure
from flow_bench.structure import save
from headgate.base.errors import HeadgateError, WorldError


def main(arguments: list[str] | None = None) -> int:
    """Measure what the arguments ask for and print it; return the exit code.

    0: measured and proven; 1: optima differ, or a certificate is not clean, or a solver failed;
    2: the arguments or the file are wrong.
    """
    asked = _parser().parse_args(arguments)
    try:
        report = _measure(asked)
    except HeadgateError as error:
        sys.stderr.write(f"{error}\n")
        return 1 if isinstance(error, WorldError) else 2
    except KeyboardInterrupt:
        return 130
    if asked.output == "json":
        sys.stdout.write(json.dumps(report.as_json(), indent=2) + "\n")
    else:
        sizes = (f"{name} {count:,}" for name, count in report.instance.items())
        print(", ".join(sizes).replace("_", " "))
        Console(highlight=False).print(_table(report))
        print(_proof(report))
    wrong = report.disagreements()
    sys.stderr.writelines(f"{line}\n" for line in wrong)
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--instance", type=Path, metavar="FILE", help="an instance as .npz")
    which.add_argument("--size", choices=SIZES, help="make one of this size")
    parser.add_argument("--load", choices=LOADS, default="base", help="waiting tasks per free GPU")
    parser.add_argument("--seed", type=_number(0, 1 << 62), default=1, help="of all that is drawn")
    parser.add_argument("--classes", type=_number(1, MOST_CLASSES), default=1, help="of GPUs")
    parser.add_argument(
        "--lemon-limit-s",
        type=_number(0, 86_400),
        default=10,
        help="seconds for each of LEMON's algorithms; 0: leave LEMON out (default: 10)",
    )
    parser.add_argument("-o", dest="output", choices=["json", "table"], default="table")
    return parser


def _number(least: int, most: int) -> Callable[[str], int]:
    """Return a reader of whole numbers within bounds."""

    def read(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} to {most}")
        return int(text)

    return read


def _measure(asked: argparse.Namespace) -> Report:
    """Measure the file, or one made for this."""
    classes, seed = asked.classes, asked.seed
    if asked.instance:
        source = Source(path=asked.instance, classes=classes, seed=seed)
        return measure(source, asked.lemon_limit_s)
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        path = Path(folder) / f"{asked.size}-{asked.load}-{seed}.npz"
        save(generate(asked.size, asked.load, seed), path)
        return measure(Source(path=path, classes=classes, seed=seed), asked.lemon_limit_s)


def _table(report: Report) -> Table:
    """Return the report for people: what takes how long, also as multiples of our times."""
    table = Table("what", box=box.SIMPLE)
    for heading in ("ms", "x our cold", "x our warm"):
        table.add_column(heading, justify="right")
    lemon = f"LEMON, {report.lemon_algorithm}" if report.lemon_algorithm else "LEMON"
    for what, taken_ms in (
        ("ours, cold", report.cold_ms),
        ("  of it, building", report.build_ms),
        ("ours, a warm round", report.warm_ms),
        ("  with all shares reset", report.warm_recomputed_ms),
        ("OR-tools, cold", report.ortools_cold_ms),
        ("  of it, its solve()", report.ortools_solve_ms),
        (f"{lemon}, cold", report.lemon_ms),
    ):
        over = [
            taken_ms / ms if taken_ms and ms else None for ms in (report.cold_ms, report.warm_ms)
        ]
        cells = [
            f"{value:,.{digits}f}" if value else "-"
            for value, digits in zip((taken_ms, *over), (3, 1, 1), strict=True)
        ]
        table.add_row(what, *cells)
    return table


def _proof(report: Report) -> str:
    """Return what holds of the whole measurement."""
    certificate = report.certificate
    return (
        f"optimum {report.optimal_cost:,}; certificates: {certificate.violations} violations, "
        f"gap {certificate.gap}; {report.rounds} rounds of each kind with "
        f"{report.changes_per_round:,} changes; peak {report.peak_rss_mb:.0f} MB, "
        f"{report.start_rss_mb:.0f} of them before"
    )


if __name__ == "__main__":
    sys.exit(main())
