"""`headgate reproduce spillover` as a program: its output, its files and the input it rejects."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.experiments import program
from tests.experiments.invalid_options import INVALID, check_rejected
from tests.experiments.test_reproduce import Page

from headgate.planning.balancers import BALANCERS

pytestmark = pytest.mark.usefixtures("elsewhere")


def run(*arguments: str | Path) -> tuple[int, str, str]:
    return program.run("reproduce", "spillover", *arguments)


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
    assert len({shape["id"] for shape in shapes}) == len(shapes) >= 6
    for shape in shapes:
        assert set(shape) == {
            "id", "claim", "reading", "goal", "unit", "published", "ours", "holds"
        }  # fmt: skip
        assert isinstance(shape["holds"], bool)
        assert shape["ours"]
    assert sum(not shape["goal"] for shape in shapes) >= 6
    tables = found["tables"]
    assert set(tables) == {"sync", "async", "mixed", "scan", "join", "engine", "cpu", "scaling"}
    for name in ("sync", "async", "mixed", "scan", "join", "engine"):
        rows = tables[name]
        assert {row["balancer"] for row in rows} == set(BALANCERS)
        assert {row["cluster"] for row in rows} == {"identical", "unlike"}
        assert all(row["tasks_per_s"] > 0 for row in rows)
    assert {file.name for file in Path("spillover-report").iterdir()} == {"report.html", "rows.csv"}
    check_page(Path(found["report"]))


def check_page(path: Path) -> None:
    """Check that a page is whole, links to its own parts alone, and shows no NaN."""
    text = path.read_text()
    page = Page()
    page.feed(text)
    page.close()

    assert page.open == []
    assert {link.removeprefix("#") for link in page.links} == page.ids
    assert not {"script", "link", "img", "iframe", "object"} & set(page.seen)
    assert not re.search(r"https?:|url\(|@import", text)
    assert "nan" not in re.findall(r'="([^"]*)"', text)


def test_several_processes_print_what_one_prints() -> None:
    assert reproduce("--workers", "2") == reproduce("--workers", "1")


def test_text_output_has_tables_and_claims_and_strict_fails_where_one_does_not_hold() -> None:
    code, out, err = run("--quick", "--seeds", "1", "--workers", "1", "--strict")

    assert err == ""
    held = re.search(r"^\d+ of \d+ hold, (\d+) do not\.", out, re.MULTILINE)
    assert held is not None
    assert (code == 0) is (held[1] == "0")
    assert "Mixed demands, so many in flight, unlike nodes" in out
    assert "spillover-report/report.html" in out


@pytest.mark.parametrize(("arguments", "path"), INVALID)
def test_invalid_options_are_rejected_before_any_run(arguments: tuple[str, ...], path: str) -> None:
    check_rejected(run, "spillover-report", arguments, path)
