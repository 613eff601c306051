"""`headgate reproduce flow` as a program: its output, its files and the input that it rejects."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import psutil
import pyarrow.csv
import pyarrow.parquet
import pytest
from tests.experiments.program import run

from headgate.experiments.flow.charts import ticks
from headgate.experiments.flow.claims import CLAIMS

SMALL = ("reproduce", "flow", "--workers", "1", "--seeds", "1")
HEADGATE = Path(sys.executable).with_name("headgate")


pytestmark = pytest.mark.usefixtures("elsewhere")


def reproduce(*arguments: str | Path) -> dict[str, Any]:
    code, out, err = run(*arguments, "-o", "json")
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


# --- output and files ----------------------------------------------------------------------------


@pytest.mark.usefixtures("few_jobs")
def test_report_has_all_tables_claims_and_files(tmp_path: Path) -> None:
    found = reproduce(*SMALL, "-k", "3")

    assert set(found) == {"seeds", "parallel", "tables", "shapes", "report"}
    assert (found["seeds"], found["parallel"]) == ([1], 3)
    tables = {table["name"]: table for table in found["tables"]}
    assert {"in-turn", "constrained", "unconstrained", "users", "supplement", "overhead"} <= set(
        tables
    )
    assert {"gs", "gsp", "gsd", "fs", "fsp", "fsu"} <= set(tables["constrained"]["policies"])
    assert {"capacity", "fair", "fs", "fsp"} <= set(tables["users"]["policies"])
    for table in found["tables"]:
        for row in table.get("policies", {}).values():
            assert set(row["ours"]) >= {"makespan_s", "fairness", "bytes", "share_of_bytes"}
            assert sum(row["ours"]["share_of_bytes"].values()) == pytest.approx(1)
    fairness = tables["constrained"]["policies"]["fs"]["ours"]["fairness"]
    assert 0 < fairness["mean"] < 2
    assert [shape["claim"] for shape in found["shapes"]] == [claim.text for claim in CLAIMS]
    papers = {shape["id"]: shape["holds"] for shape in found["shapes"] if not shape["goal"]}
    assert [name for name, holds in papers.items() if holds is None] == [
        "small-near-ideal", "large-stretch"
    ]  # fmt: skip  # no job is large here
    written = {path.name for path in (tmp_path / "flow-report").iterdir()}
    assert written == {
        "report.html", "runs.csv", "runs.parquet", "jobs.csv", "jobs.parquet", "overhead.csv"
    }  # fmt: skip
    _check_page(tmp_path / "flow-report" / "report.html")


@pytest.mark.usefixtures("few_jobs")
def test_two_calls_differ_only_in_measured_times() -> None:
    some = (*SMALL[:-1], "2", "--policies", "gsd, fair")
    first, second = reproduce(*some, "--out", "a"), reproduce(*some, "--out", "b")

    for found in (first, second):
        del found["report"]
        found["tables"] = [t for t in found["tables"] if t["name"] != "overhead"]
        found["shapes"] = [s for s in found["shapes"] if not s["id"].startswith("overhead")]
    assert first == second
    for name in ("runs.csv", "jobs.csv", "runs.parquet", "jobs.parquet"):
        assert Path("a", name).read_bytes() == Path("b", name).read_bytes()
    for name in ("runs", "jobs"):
        table = pyarrow.parquet.read_table(f"a/{name}.parquet")
        assert pyarrow.csv.read_csv(f"a/{name}.csv").num_rows == table.num_rows > 0
    assert set(pyarrow.parquet.read_table("a/runs.parquet")["policy"].to_pylist()) == {
        "gsd", "fair"
    }  # fmt: skip


@pytest.mark.usefixtures("few_jobs")
def test_text_output_marks_failed_claims_and_strict_exits_with_1() -> None:
    """With few jobs, the claim on the deviation under FSU fails."""
    some = (*SMALL, "--policies", "gsd, fsu", "--out", "mine/report")

    code, out, err = run(*some)

    assert (code, err) == (0, "")
    assert "Jobs in parallel, constrained network" in out
    assert "mine/report/report.html" in out
    assert re.search(r"^NO ", out, re.MULTILINE)
    assert run(*some, "--strict")[0] == 1  # and replaces its own earlier report


# --- the page ------------------------------------------------------------------------------------

_VOID = {"meta", "br", "line", "rect", "path"}


class Page(HTMLParser):
    """Checks that tags close in order, and collects ids and links."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.seen: dict[str, int] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] = self.seen.get(tag, 0) + 1
        for name, value in attrs:
            assert not name.startswith("on")
            if name == "id":
                self.ids.add(value or "")
            if name in ("src", "href", "xlink:href", "action"):
                self.links.append(value or "")
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] = self.seen.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _check_page(path: Path) -> None:
    text = path.read_text()
    page = Page()
    page.feed(text)
    page.close()

    assert page.open == []
    assert {link.removeprefix("#") for link in page.links} == {
        name for name in page.ids if not name.startswith("hatch")
    }
    assert not {"script", "link", "img", "iframe", "object"} & set(page.seen)
    assert not re.search(r"https?:|url\((?!#)|@import", text)
    for claim in CLAIMS:
        assert claim.text in text
    networks, policies = 2, 6
    assert page.seen["svg"] >= networks * policies * 2
    assert "nan" not in re.findall(r'="([^"]*)"', text)


def test_ticks_are_few_and_round() -> None:
    for most in (0.3, 1.0, 7.0, 8.1, 99.0, 412.3, 1e6):
        found = ticks(most)
        assert 2 <= len(found) <= 9
        assert found[-1] <= most
        assert found[0] == 0


# --- rejected input ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (("-k", "0"), "--parallel"),
        (("--parallel", "-3"), "--parallel"),
        (("-k", "37"), "--parallel"),
        (("--seeds", "0"), "--seeds"),
        (("--seeds", "21"), "--seeds"),
        (("--workers", "0"), "--workers"),
        (("--policies", "fs,fps"), "--policies"),
        (("--policies", ""), "argument 4, after --policies"),
        (("--seeds", "many"), "--seeds"),
        (("--out", "notes.txt"), "--out"),
        (("--out", "full"), "--out"),
    ],
)
def test_invalid_option_is_rejected_and_no_file_is_overwritten(
    arguments: tuple[str, ...], path: str
) -> None:
    Path("notes.txt").write_text("mine")
    Path("full").mkdir()
    Path("full", "report.html").write_text("<p>mine, too</p>")

    code, out, err = run("reproduce", "flow", *arguments, "-o", "json")

    assert (code, out) == (2, "")
    assert [problem["path"] for problem in json.loads(err)["problems"]] == [path]
    assert Path("full", "report.html").read_text() == "<p>mine, too</p>"
    assert not Path("flow-report").exists()


def test_directory_that_cannot_be_written_is_rejected_before_the_runs() -> None:
    Path("notes.txt").write_text("mine")

    code, _, err = run("reproduce", "flow", "--out", "notes.txt/report", "-o", "json")

    assert code == 1
    assert json.loads(err)["code"] == "cannot_write"


@pytest.mark.parametrize("what", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_reproduction_leaves_no_process(what: signal.Signals) -> None:
    """SIGINT is sent to all processes, as by a terminal; SIGKILL only to the parent."""
    program = subprocess.Popen(
        [HEADGATE, "reproduce", "flow", "--seeds", "1", "--policies", "gs", "--workers", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    _wait_until(lambda: len(_session_of(program)) >= 3)
    send = os.killpg if what is signal.SIGINT else os.kill
    send(program.pid, what)
    _, err = program.communicate(timeout=60)

    _wait_until(lambda: _session_of(program) == [])
    assert program.returncode == (130 if what is signal.SIGINT else -what)
    if what is signal.SIGINT:  # a starting worker prints an error when its parent is killed
        assert "Traceback" not in err


def _session_of(program: subprocess.Popen[str]) -> list[int]:
    """Return the processes of a program's session, orphans included."""
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(pid) == program.pid:
                found.append(pid)
    return found


def _wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until, "timed out"
        time.sleep(0.05)
