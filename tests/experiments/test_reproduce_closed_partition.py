"""`headgate reproduce closed-partition` as a program: its output, its files, rejected input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.csv
import pytest
from tests.experiments import program
from tests.experiments.test_reproduce import Page

from headgate.experiments.closed_partition import large, runs

SOME = ("--seeds", "1", "--workers", "1")


pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.fixture
def few_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "JOBS", 24)
    monkeypatch.setattr(runs, "VARIANTS", (runs.DEFAULT,))
    monkeypatch.setattr(runs, "_CALIBRATION_SEEDS", (1001,))
    monkeypatch.setattr(runs.plan, "__defaults__", ((runs.DEFAULT,),))


def run(*arguments: str | Path) -> tuple[int, str, str]:
    return program.run("reproduce", "closed-partition", *arguments)


def reproduce(*arguments: str) -> dict[str, Any]:
    code, out, err = run(*arguments, "-o", "json")
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


def check_page(path: str) -> None:
    page = Page()
    page.feed(Path(path).read_text())
    page.close()
    assert page.open == []
    assert not {"script", "link", "img", "iframe", "object"} & set(page.seen)


@pytest.mark.usefixtures("few_jobs")
def test_report_judges_every_published_claim_and_has_all_figures() -> None:
    found = reproduce(*SOME)

    assert set(found) == {"seeds", "tables", "shapes", "report"}
    papers = [shape for shape in found["shapes"] if not shape["goal"]]
    assert len(papers) >= 5
    assert all(shape["holds"] in {True, False} for shape in found["shapes"])
    assert len({shape["claim"] for shape in papers}) == len(papers)
    tables = {table["name"]: table for table in found["tables"]}
    of = tables["C/64, default"]["placements"]
    assert of["sequential"]["published"]["mean_s"] == pytest.approx(14.326)
    assert of["closed-minimum"]["published"]["mean_s"] is None
    assert of["closed-minimum"]["ours"]["mean_s"] < of["sequential"]["ours"]["mean_s"]
    assert of["closed-minimum or wait"]["ours"]["shared_links"] == 0
    assert len(tables["calibration"]["rows"]) == 24
    check_page(found["report"])
    rows = pyarrow.csv.read_csv("closed-partition-report/rows.csv")
    assert rows.num_rows == 3 * len(runs.PLACERS)

    code, out, _ = run(*SOME)  # replaces its own report
    assert code == 0
    assert "Closed-minimum placement shortens the jobs" in out


def test_large_machines_have_rows_and_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large.plan, "__defaults__", ((3,),))
    monkeypatch.setattr(large, "JOBS", {3: 45})
    monkeypatch.setattr(large, "_MOST_NODES", 16)

    found = reproduce("--large", "--workers", "1")

    assert [len(table["rows"]) for table in found["tables"]] == [len(large.PLACED_BY)] * 2
    assert [shape["id"] for shape in found["shapes"]] == [
        "large-4-ary-tree-64", "large-square-mesh-64",
    ]  # fmt: skip
    check_page(found["report"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--seeds", "0"), "must be from 1 to 20, not 0"),
        (("--workers", "0"), "must be 1 or more"),
        (("--live", "--large"), "--large: is an experiment of its own"),
        (("--mpi-python", "python"), "--mpi-python: requires --live"),
        (("--traces", "nowhere"), "nowhere/philly2017_jobs.parquet: no such file"),
    ],
)
def test_invalid_options_are_rejected_before_anything_is_written(
    arguments: tuple[str, ...], words: str
) -> None:
    code, out, err = run(*arguments)

    assert code != 0
    assert out == ""
    assert words in " ".join(err.split())
    assert not Path("closed-partition-report").exists()
