"""The frame of experiments: what a report writes, prints and returns, and when its claims fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet
import pytest
import typer

from headgate.base.errors import SpecError
from headgate.cli.common.settings import Format
from headgate.cli.reproduce import report_options
from headgate.experiments.frame.claims import Claim, NotRunError, judge, judged
from headgate.experiments.frame.experiment import Experiment, Runner
from headgate.experiments.frame.paper import Paper
from headgate.experiments.frame.report import Claims, Report, Table, page, write

pytestmark = pytest.mark.usefixtures("elsewhere")

PAPER = Paper(command="reproduce squares", pages=("report.html", "other.html"))


def _never(found: dict[int, int]) -> tuple[bool, dict[str, float]]:
    raise NotRunError


CLAIMS = (
    Claim(id="grow", text="squares <grow>", reading="r", unit="count",
          check=lambda found: (found[3] > found[2], {"of 3": found[3]}), published={"of 3": 9}),
    Claim(id="even", text="all are even", reading="", unit="count", is_goal=True,
          check=lambda found: (all(n % 2 == 0 for n in found.values()), {})),
    Claim(id="cubes", text="cubes, too", reading="", unit="count", check=_never),
)  # fmt: skip


def square(number: int, plus: int) -> int:
    return number * number + plus


def report(found: dict[int, int]) -> Report:
    rows = [{"number": n, "square": s} for n, s in found.items()]
    table = Table(
        title="Squares",
        head=("number", "square", "published", "note"),
        brief=("NUMBER", "SQUARE", "PAPER", None),
        rows=[(n, f"{s:.1f}", None, f"<{n}>") for n, s in found.items()],
    )
    return Report(
        paper=PAPER,
        title="Squares & more",
        words="<cite>words</cite>",
        claims=Claims(rows=judged(judge(CLAIMS, found))),
        sections=[("Tables", table.html())],
        files={"rows.csv": rows, "rows.parquet": rows, "none.csv": {"a": []}},
        shown=[table, ("", "a line")],
        facts={"first": 1},
    )


def experiment() -> Experiment[dict[int, int]]:
    numbers = (3, 2)

    def measure(runner: Runner) -> dict[int, int]:
        return runner.all(numbers, square, 0, lambda number: f"squared {number}")

    return Experiment(plan=numbers, measure=measure, report=report)


def made(fmt: Format | None = None, *, strict: bool = False, out: str = "out") -> None:
    report_options.reproduce(PAPER, experiment, out=Path(out), fmt=fmt, workers=1, strict=strict)


def test_runner_reports_each_run_and_returns_all_in_order() -> None:
    words: list[str] = []
    runner = Runner(workers=1, advance=words.append, note=words.append)
    assert list(experiment().measure(runner).items()) == [(3, 9), (2, 4)]
    assert words == ["squared 3", "squared 2"]


def test_report_writes_rows_and_columns_by_suffix() -> None:
    Path("out").mkdir()
    written = write(Path("out"), report({3: 9, 2: 4}))
    assert written == Path("out/report.html")
    assert pyarrow.csv.read_csv("out/rows.csv").to_pydict() == {"number": [3, 2], "square": [9, 4]}
    assert pyarrow.parquet.read_table("out/rows.parquet").num_rows == 2
    assert Path("out/none.csv").read_text() == '"a"\n'


def test_page_has_published_claims_then_own_goals_and_no_empty_column() -> None:
    text = page(report({3: 9, 2: 4}))
    assert "Squares &amp; more" in text
    assert text.index("squares &lt;grow&gt;") < text.index("own goals") < text.index("all are even")
    assert "1 of 3 hold, 1 do not; 1 need runs that were not made." in text
    assert "&lt;3&gt;" in text
    head = text[text.rindex("<thead>") : text.rindex("</thead>")]
    assert "published" not in head


def test_report_prints_tables_lines_and_claims(capsys: pytest.CaptureFixture[str]) -> None:
    made()
    out = capsys.readouterr().out
    assert [line.split() for line in out.splitlines()[1:5]] == [
        ["Squares"], ["NUMBER", "SQUARE", "PAPER"], ["3", "9.0", "-"], ["2", "4.0", "-"]
    ]  # fmt: skip
    assert "\na line\n" in out
    assert "yes  squares <grow> (published of 3 9; measured of 3 9)" in out
    assert "-    cubes, too (not run)" in out
    assert out.endswith("The report, with charts: out/report.html\n")


def test_strict_fails_for_a_claim_that_does_not_hold_but_not_for_one_that_was_not_run() -> None:
    found = report({3: 9, 2: 4})
    assert found.fails
    assert found.claims is not None
    kept = [row for row in found.claims.rows if row.holds is not False]
    assert not replace(found, claims=replace(found.claims, rows=kept)).fails
    assert not replace(found, claims=None).fails
    made()
    with pytest.raises(typer.Exit) as ended:
        made(strict=True)  # replaces its own report
    assert ended.value.exit_code == 1


def test_facts_then_claims_are_the_values_in_json() -> None:
    values = report({3: 9, 2: 4}).as_json()
    assert [*values] == ["first", "shapes"]
    assert [shape["holds"] for shape in values["shapes"]] == [True, False, None]


def test_directory_of_other_files_is_rejected_before_the_experiment_is_prepared() -> None:
    Path("full").mkdir()
    Path("full/notes.txt").write_text("mine")
    with pytest.raises(SpecError) as raised:
        report_options.reproduce(
            PAPER,
            lambda: pytest.fail("nothing is prepared"),
            out=Path("full"),
            fmt=None,
            wrong=[("--seeds", "must be 1", "")],
        )
    assert [problem.path for problem in raised.value.problems] == ["--seeds", "--out"]
