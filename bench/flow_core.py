"""The flow core against OR-tools and LEMON: small to large clusters, light to heavy loads.

Without arguments a short form, under a minute. `--full` measures all sizes and loads, with one GPU
class and with four, with three seeds (the better part of an hour), and writes the tables and the
chart of docs/flow-core.md; `--render FILE` writes them again from the results of an earlier run.
Results are written to build/bench/ as JSON, as a table and as a chart.

No constant of the solver was chosen on these seeds: tuning happens on seeds 11 to 13.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import matplotlib as mpl
import psutil
from matplotlib.figure import Figure

from flow_bench.instances import LOADS, SIZES, generate
from flow_bench.problem import Source
from flow_bench.report import measure
from flow_bench.structure import save

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build" / "bench"
PAGE = ROOT / "docs" / "flow-core.md"
CHART = ROOT / "docs" / "img" / "flow-core.svg"

Row = dict[str, Any]
"""A report (see `flow_bench.report`) with its size, load, seed and number of classes."""


# ---------------------------------------------------------------- what is measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One instance to measure; `lemon_limit_s` for each of LEMON's algorithms, 0: without LEMON."""

    size: str
    load: str
    classes: int
    seed: int
    lemon_limit_s: int


def short_cases() -> list[Case]:
    """Return the cases of the short form, under a minute in all."""
    few = [("S", load, 1, 5) for load in LOADS]
    few += [("M", load, 1, 5) for load in LOADS]
    few += [("M", "base", 4, 5), ("L", "base", 1, 0), ("XL", "base", 1, 0)]
    return [
        Case(size=size, load=load, classes=classes, seed=1, lemon_limit_s=limit_s)
        for size, load, classes, limit_s in few
    ]


def all_cases() -> list[Case]:
    """Return all cases; without LEMON where it needs most of a minute."""
    return [
        Case(
            size=size,
            load=load,
            classes=classes,
            seed=seed,
            lemon_limit_s=0 if size == "XL" and load in ("base", "over5") else 20,
        )
        for size in SIZES
        for load in LOADS
        for classes in (1, 4)
        for seed in (1, 2, 3)
    ]


def run(cases: Sequence[Case], out: Path) -> list[Row]:
    """Measure the cases one after the other; write all results after each."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        path = Path(folder) / "instance.npz"
        for number, case in enumerate(cases, start=1):
            started = time.perf_counter()
            save(generate(case.size, case.load, case.seed), path)
            report = measure(
                Source(path=path, classes=case.classes, seed=case.seed), case.lemon_limit_s
            )
            if wrong := report.disagreements():
                sys.exit(f"{case}: {'; '.join(wrong)}")
            names = {"size": case.size, "load": case.load, "seed": case.seed}
            rows.append(names | {"classes": case.classes} | report.as_json())
            out.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")
            taken_s = time.perf_counter() - started
            print(f"[{number}/{len(cases)}] {line(rows[-1])}  ({taken_s:.0f} s)", flush=True)
    return rows


def line(row: Row) -> str:
    """Return a row as one line of text."""
    name = f"{row['size']:>2} {row['load']:<5} {row['classes']} class(es), seed {row['seed']}:"
    return (
        f"{name} cold {ms(row['cold_ms'])} warm {ms(row['warm_ms'])} "
        f"recomputed {ms(row['warm_recomputed_ms'])} ms; OR-tools {ms(row['ortools_cold_ms'])}, "
        f"LEMON {ms(row['lemon_ms'])}; optimal, {row['peak_rss_mb']:.0f} MB"
    )


def machine() -> str:
    """Return the machine and the versions of the software, as text."""
    model = platform.processor() or platform.machine()
    cpus = Path("/proc/cpuinfo")
    if cpus.exists() and (found := re.search(r"model name\s*: (.*)", cpus.read_text())):
        model = found[1]
    memory_gb = psutil.virtual_memory().total / 2**30
    return (
        f"{model}, {psutil.cpu_count()} cores, {memory_gb:.0f} GiB, {platform.system()}; "
        f"Python {platform.python_version()}, NumPy {version('numpy')}, "
        f"OR-tools {version('ortools')}"
    )


# ---------------------------------------------------------------- goals


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """At most `most_ms` milliseconds, or at most OR-tools' cold time divided by `times`."""

    title: str
    sizes: tuple[str, ...]
    classes: int
    what: str
    most_ms: float | None = None
    times: float | None = None

    def taken(self, row: Row) -> float:
        """Return the time relative to the goal: at most 1 if it is met."""
        allowed = row["ortools_cold_ms"] / self.times if self.times else self.most_ms
        return float(row[self.what] / allowed)

    def result(self, row: Row) -> str:
        """Return the result of a row, in the goal's unit."""
        if self.times:
            return f"1/{row['ortools_cold_ms'] / row[self.what]:,.0f}"
        return f"{ms(row[self.what])} ms"


def goals() -> list[Goal]:
    """Return the goals, each for cold, warm, and warm with all capacities reset."""
    wanted: list[tuple[str, tuple[str, ...], int, Sequence[float], Sequence[float | None]]] = [
        # title, sizes, classes; at most ms; at most 1/x of OR-tools cold
        ("S, 30 GPUs", ("S",), 1, (0, 0.01, 0.05), (4, None, None)),
        ("M, 2,000", ("M",), 1, (0, 0, 1), (15, 300, None)),
        ("L, 12,500, one per node", ("L",), 1, (), (5, 50, 20)),
        ("XL, 100,000", ("XL",), 1, (), (30, 300, 80)),
        ("four classes, M to XL", ("M", "L", "XL"), 4, (), (10, 50)),
    ]
    columns = ("cold_ms", "warm_ms", "warm_recomputed_ms")
    return [
        Goal(
            title=title,
            sizes=sizes,
            classes=classes,
            what=what,
            times=times,
            most_ms=None if times else most_ms[nth],
        )
        for title, sizes, classes, most_ms, ratios in wanted
        for nth, (what, times) in enumerate(zip(columns, ratios, strict=False))
    ]


_WHAT = {"cold_ms": "cold", "warm_ms": "warm", "warm_recomputed_ms": "warm, all capacities reset"}


def goals_table(rows: Sequence[Row]) -> str:
    """Return a table of the goals, the results under the load `base`, and the worst of all."""
    cells = []
    for goal in goals():
        mine = [
            row
            for row in rows
            if row["size"] in goal.sizes and row["classes"] == goal.classes and row[goal.what]
        ]
        if not mine:
            continue
        base = sorted((row for row in mine if row["load"] == "base"), key=goal.taken)
        worst = max(mine, key=goal.taken)
        met = sum(goal.taken(row) <= 1 for row in mine)
        cells.append(
            [
                goal.title,
                _WHAT[goal.what],
                f"1/{goal.times:g}" if goal.times else f"{goal.most_ms:g} ms",
                goal.result(base[len(base) // 2]) if base else "-",
                f"{goal.result(worst)} ({worst['size']} {worst['load']}, seed {worst['seed']})",
                "all" if met == len(mine) else f"{met} of {len(mine)}",
            ]
        )
    heading = ["", "", "goal, at most", "`base`, median", "worst of all", "met by"]
    return markdown(heading, cells)


# ---------------------------------------------------------------- tables


def table(rows: Sequence[Row]) -> str:
    """Return a table of medians over seeds, a row per size, load and number of classes."""
    groups: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["size"], row["load"], row["classes"]), []).append(row)
    cells = []
    for (size, load, classes), group in groups.items():
        middle = {key: median(row[key] for row in group) for key in _NUMBERS}
        tasks = median(row["instance"]["tasks"] for row in group)
        cells.append(
            [
                f"{size} {load}",
                str(classes),
                f"{tasks:,.0f}",
                *(ms(middle[key]) for key in _TIMES),
                *(times(middle[key]) for key in ("ratio_cold", "ratio_warm")),
                f"{median(row['peak_rss_mb'] for row in group):,.0f}",
                f"{median(row['peak_rss_mb'] - row['start_rss_mb'] for row in group):,.0f}",
            ]
        )
    heading = [
        "instance", "classes", "tasks", "cold", "building", "warm", "reset", "OR-tools",
        "its `solve()`", "LEMON", "x cold", "x warm", "MB", "MB more",
    ]  # fmt: skip
    return markdown(heading, cells)


_TIMES = (
    "cold_ms", "build_ms", "warm_ms", "warm_recomputed_ms", "ortools_cold_ms", "ortools_solve_ms",
    "lemon_ms",
)  # fmt: skip
_NUMBERS = (*_TIMES, "ratio_cold", "ratio_warm")


def median(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that were measured, None without any."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def ms(value: float | None) -> str:
    """Return milliseconds with about three digits."""
    if value is None:
        return "-"
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def times(value: float | None) -> str:
    """Return a ratio."""
    if value is None:
        return "-"
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def markdown(heading: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [heading, ["---"] * len(heading), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# ---------------------------------------------------------------- the chart


def chart(rows: Sequence[Row], path: Path) -> None:
    """Draw the time of a decision over the size of the cluster, load `base`, one class."""
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "headgate"}
    figure = Figure(figsize=(7.5, 5), layout="constrained")
    axes = figure.subplots()
    for label, key, style in (
        ("OR-tools, cold", "ortools_cold_ms", "s--"),
        ("LEMON, the faster of two", "lemon_ms", "^--"),
        ("Headgate, cold", "cold_ms", "o-"),
        ("Headgate, warm, all capacities reset", "warm_recomputed_ms", "v-"),
        ("Headgate, warm", "warm_ms", "D-"),
    ):
        points = [
            (shape.nodes * shape.gpus, value)
            for size, shape in SIZES.items()
            if (value := median(_base(rows, size, key))) is not None
        ]
        if points:
            axes.plot(*zip(*points, strict=True), style, label=label)
    # The flow paper: 5.04 ms on its test bed, one to two seconds for 2,000 GPUs and 100 jobs.
    axes.plot([30], [5.04], "kx", label="flow paper (2022), its solver and machine")
    axes.errorbar([2_000], [1_500], yerr=[[500], [500]], fmt="kx", capsize=4)
    axes.plot([12_000], [265], "k*", markersize=9, label="Firmament (2016), mean, 12,000 machines")
    axes.set(xscale="log", yscale="log", xlabel="GPUs in the cluster", ylabel="ms per decision")
    gpus = [shape.nodes * shape.gpus for shape in SIZES.values()]
    axes.set_xticks(gpus, [f"{count:,}" for count in gpus])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def _base(rows: Sequence[Row], size: str, key: str) -> list[float | None]:
    return [
        row[key] for row in rows if (row["size"], row["load"], row["classes"]) == (size, "base", 1)
    ]


# ---------------------------------------------------------------- the page


def render(results: dict[str, Any], blocks: Callable[[str, str], None], drawn: Path) -> None:
    """Pass each block of the page, by name and text, to `blocks`, and draw the chart."""
    rows = results["rows"]
    seeds = ", ".join(str(seed) for seed in sorted({row["seed"] for row in rows}))
    blocks("machine", f"{results['machine']}. Seeds {seeds}.")
    blocks("goals", goals_table(rows))
    blocks("table", table(rows))
    chart(rows, drawn)


def into_page(name: str, text: str) -> None:
    """Replace the text between the markers of a block in the page."""
    begin, end = f"<!-- {name}: written by bench/flow_core.py -->", f"<!-- end of {name} -->"
    page = PAGE.read_text()
    before, after = page.index(begin) + len(begin), page.index(end)
    PAGE.write_text(f"{page[:before]}\n{text}\n{page[after:]}")


def main() -> None:
    """Measure and print; with `--full` or `--render`, write the page too."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--full", action="store_true", help="everything, and into the docs")
    form.add_argument("--render", type=Path, metavar="FILE", help="an earlier run, into the docs")
    arguments = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    kept = arguments.render or OUT / f"flow_core{'_full' if arguments.full else ''}.json"
    if not arguments.render:
        run(all_cases() if arguments.full else short_cases(), kept)
    results = json.loads(kept.read_text())
    if arguments.full or arguments.render:
        render(results, into_page, CHART)
    texts: list[str] = []
    render(results, lambda _, text: texts.append(text), kept.with_suffix(".svg"))
    kept.with_suffix(".md").write_text("\n\n".join(texts) + "\n")
    print("\n" + "\n\n".join(texts))


if __name__ == "__main__":
    main()
