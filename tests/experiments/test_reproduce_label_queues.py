"""`headgate reproduce label-queues` as a program: its output, its files and its options."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.experiments import program
from tests.experiments.invalid_options import INVALID, check_rejected
from tests.experiments.test_reproduce_spillover import check_page

from headgate.experiments.label_queues.runs import QUICK, VARIANTS

pytestmark = pytest.mark.usefixtures("elsewhere")


def run(*arguments: str | Path) -> tuple[int, str, str]:
    return program.run("reproduce", "label-queues", *arguments)


def reproduce(*arguments: str) -> dict[str, Any]:
    code, out, err = run("--quick", "--seeds", "1", *arguments, "-o", "json")
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


def test_report_has_a_verdict_for_every_claim_and_rows_for_every_experiment() -> None:
    found = reproduce("--workers", "1")

    assert set(found) == {"seeds", "tables", "shapes", "report"}
    assert found["seeds"] == [1]
    shapes = found["shapes"]
    assert len({shape["id"] for shape in shapes}) == len(shapes)
    for shape in shapes:
        assert set(shape) == {
            "id", "claim", "reading", "goal", "unit", "published", "ours", "holds"
        }  # fmt: skip
        assert isinstance(shape["holds"], bool)
        assert shape["ours"]
    assert sum(not shape["goal"] for shape in shapes) >= 4
    tables = found["tables"]
    assert set(tables) == {"mixed", "alone", "assumptions"}
    assert [row["variant"] for row in tables["mixed"]] == [*VARIANTS]
    assert [(row["jobs"], row["variant"]) for row in tables["alone"]] == [
        (jobs, name) for jobs in QUICK.alone for name in VARIANTS
    ]
    for row in (*tables["mixed"], *tables["alone"]):
        assert 0 < row["least_total_s"] <= row["total_s"] <= row["most_total_s"]
        assert 0 < row["completion_s"] <= row["most_total_s"]
        assert row["longest_wait_s"] >= 0
    assert {row["assumption"] for row in tables["assumptions"]} == {*QUICK.assumed}
    written = {file.name for file in Path("label-queues-report").iterdir()}
    assert written == {"report.html", "runs.csv"}
    check_page(Path(found["report"]))


def test_several_processes_print_what_one_prints() -> None:
    assert reproduce("--workers", "2") == reproduce("--workers", "1")


def test_text_output_has_tables_and_claims_and_strict_fails_where_one_does_not_hold() -> None:
    code, out, err = run("--quick", "--seeds", "1", "--workers", "1", "--strict")

    assert err == ""
    held = re.search(r"^\d+ of \d+ hold, (\d+) do not\.", out, re.MULTILINE)
    assert held is not None
    assert (code == 0) is (held[1] == "0")
    assert "2 WordCounts and 2 MNISTs: seconds" in out
    assert "label-queues-report/report.html" in out


@pytest.mark.parametrize(("arguments", "path"), INVALID)
def test_invalid_options_are_rejected_before_any_run(arguments: tuple[str, ...], path: str) -> None:
    check_rejected(run, "label-queues-report", arguments, path)
