"""`headgate reproduce histories` as a program: its output, its files and the input it rejects."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.experiments import program
from tests.experiments.test_reproduce import Page

POLICIES = "fifo,easy-backfill"
FIGURES = {
    "trace", "gpus", "policy", "estimates", "resume_s", "mean_jct_s", "median_jct_s", "p99_jct_s",
    "mean_wait_s", "median_wait_s", "p99_wait_s", "by_size", "wait_by_size",
    "finish_time_fairness", "reservations", "gpu_utilisation", "lost_gpu_s",
}  # fmt: skip


pytestmark = pytest.mark.usefixtures("elsewhere")


def write(path: str, *, hours: float = 1.0, submitted: int = 30, least: int = 1) -> Path:
    """Write a trace of two clusters: `a <b>` is always busy, `idle` never.

    Jobs of the first have `least` GPUs, two times and four times that.
    """
    of = [
        ("a <b>", 100.0 * n, 3600 * hours * (1 + n % 3), least * 2 ** (n % 3))
        for n in range(submitted)
    ]
    of += [("idle", 1e6 * n, 60.0, 1) for n in range(3)]
    vc, submit_s, duration_s, gpus = zip(*of, strict=True)
    table = {
        "job_id": list(range(len(of))),
        "submit_s": submit_s,
        "duration_s": duration_s,
        "gpus": gpus,
        "vc": vc,
    }
    pq.write_table(pa.table(table), path)
    return Path(path)


def run(*arguments: str | Path) -> tuple[int, str, str]:
    return program.run("reproduce", "histories", *arguments)


def reproduce(*arguments: str | Path) -> dict[str, Any]:
    code, out, err = run(*arguments, "--workers", "1", "-o", "json")
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


def test_report_has_rows_goals_and_files() -> None:
    path = write("own.parquet")

    found = reproduce(path, "--by-vc", "--policies", f"{POLICIES},headgate")

    assert set(found) == {"rows", "goals", "report"}
    assert {row["trace"] for row in found["rows"]} == {"own/a <b>"}
    assert all(set(row) >= FIGURES for row in found["rows"])
    sizes = list(dict.fromkeys(row["gpus"] for row in found["rows"]))
    assert sizes[0] == max(
        goal["gpus"] for goal in found["goals"] if goal["id"].startswith("fairness")
    )
    every = [(r["policy"], r["estimates"]) for r in found["rows"] if r["gpus"] == sizes[0]]
    assert every == [
        ("fifo", None), ("easy-backfill", "exact"), ("easy-backfill", "learnt"),
        ("headgate", "learnt"), ("headgate", "exact"),
    ]  # fmt: skip
    fewer = [(r["policy"], r["estimates"]) for r in found["rows"] if r["gpus"] == sizes[1]]
    assert fewer == [("fifo", None), ("easy-backfill", "exact"), ("headgate", "learnt")]
    for goal in found["goals"]:
        assert goal["trace"] == "own/a <b>"
        known = goal["id"].startswith("jct") and goal["gpus"] in sizes
        assert (goal["holds"] is not None) is known
    assert {file.name for file in Path("histories-report").iterdir()} == {
        "report.html", "rows.csv", "rows.parquet"
    }  # fmt: skip
    table = pq.read_table("histories-report/rows.parquet")
    assert table.num_rows == len(found["rows"])
    assert table["wait_by_size_1_p99_wait_s"].to_pylist() == [
        row["wait_by_size"][0]["p99_wait_s"] for row in found["rows"]
    ]
    _check_page(Path(found["report"]))


def _check_page(path: Path) -> None:
    text = path.read_text()
    page = Page()
    page.feed(text)
    page.close()

    assert page.open == []
    assert {link.removeprefix("#") for link in page.links} == page.ids
    assert not {"script", "link", "img", "iframe", "object", "b>"} & set(page.seen)
    assert not re.search(r"https?:|url\((?!#)|@import", text)
    assert "own/a &lt;b&gt;" in text
    assert page.seen["svg"] == 5
    assert "nan" not in re.findall(r'="([^"]*)"', text)


def test_several_processes_print_what_one_prints() -> None:
    path = write("own.parquet")
    some = (path, "--gpus", "8,4", "--policies", POLICIES)

    one = reproduce(*some)
    code, out, _ = run(*some, "--workers", "2", "-o", "json")

    assert code == 0
    assert json.loads(out) == one
    assert [(row["gpus"], row["policy"]) for row in one["rows"]] == [
        (gpus, policy) for gpus in (8, 4) for policy in ("fifo", "easy-backfill", "easy-backfill")
    ]


def test_published_histories_are_found_by_directory_or_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("traces").mkdir()
    for name in ("philly2017_jobs", "itp2021_jobs", "gavel_shockwave_traces"):
        write(f"traces/{name}.parquet", submitted=6)
    some = ("--gpus", "4", "--policies", "fifo")

    by_option = reproduce("--traces", "traces", *some)
    monkeypatch.setenv("HEADGATE_TRACES", "traces")
    by_environment = reproduce(*some)

    assert by_option == by_environment
    assert [row["trace"] for row in by_option["rows"]] == [
        "philly2017_jobs",
        "itp2021_jobs/a <b>",
        "itp2021_jobs/idle",
        "gavel_shockwave_traces/a <b>",
        "gavel_shockwave_traces/idle",
    ]


def test_patience_has_rows_and_a_curve_for_policies_that_learn_run_times() -> None:
    path = write("own.parquet", least=4)

    found = reproduce(
        path, "--gpus", "16", "--policies", "fifo,easy-backfill", "--patience", "0,600,1e9"
    )

    assert [(row["policy"], row["estimates"], row["patience_s"]) for row in found["rows"]] == [
        ("fifo", None, None), ("easy-backfill", "exact", None), ("easy-backfill", "learnt", None),
        *(("easy-backfill", "learnt", patience_s) for patience_s in (0, 600, 1e9)),
    ]  # fmt: skip
    hardened = [row["reservations"]["hardened"] for row in found["rows"][3:]]
    assert hardened == sorted(hardened, reverse=True)
    assert hardened[0] > hardened[-1]
    text = Path(found["report"]).read_text()
    assert "Patience, on 16 GPUs" in text
    assert text.count("<polyline") == 1
    assert "<td>unbounded</td>" in text


def test_text_output_has_a_table_per_size_and_the_goals() -> None:
    path = write("own.parquet")

    code, out, err = run(path, "--policies", f"{POLICIES},headgate", "--workers", "1")

    assert (code, err) == (0, "")
    assert "own, 33 jobs" in out
    assert "easy-backfill, exact" in out
    assert re.search(r"^\d+ of \d+ hold, \d+ do not", out, re.MULTILINE)
    assert "histories-report/report.html" in out


def test_history_without_waits_has_no_rows_and_no_goals() -> None:
    path = write("own.parquet", hours=0.0)

    assert reproduce(path, "--policies", POLICIES) | {"report": ""} == {
        "rows": [], "goals": [], "report": ""
    }  # fmt: skip


# --- rejected input ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "path"),
    [
        ((), "usage", "FILE"),
        (("--by-vc", "--traces", "."), "usage", "--by-vc"),
        (("own.parquet", "own.parquet"), "usage", "FILE"),
        (("own.parquet", "--gpus", "0"), "usage", "--gpus"),
        (("own.parquet", "--gpus", "4,,8"), "usage", "--gpus"),
        (("own.parquet", "--gpus", "most"), "usage", "--gpus"),
        (("own.parquet", "--gpus", "1000001"), "usage", "--gpus"),
        (("own.parquet", "--gpus", "-4"), "usage", "--gpus"),
        (("own.parquet", "--patience", "-1"), "usage", "--patience"),
        (("own.parquet", "--patience", "60,,"), "usage", "--patience"),
        (("own.parquet", "--patience", "nan"), "usage", "--patience"),
        (("own.parquet", "--workers", "0"), "usage", "--workers"),
        (("own.parquet", "--out", "own.parquet"), "usage", "--out"),
        (("own.parquet", "--out", "full"), "usage", "--out"),
        (("own.parquet", "--policies", "fifo,lifo"), "unknown_policy", "--policies"),
        (("missing.parquet",), "missing_file", "missing.parquet"),
        (("full/report.html",), "bad_trace", "full/report.html"),
        (("no-vc.parquet", "--by-vc"), "bad_trace", "no-vc.parquet:vc"),
    ],
)
def test_invalid_input_is_rejected_before_any_run(
    arguments: tuple[str, ...], code: str, path: str
) -> None:
    table = pq.read_table(write("own.parquet"))
    pq.write_table(table.drop_columns(["vc"]), "no-vc.parquet")
    Path("full").mkdir()
    Path("full", "report.html").write_text("<p>mine</p>")

    exit_code, out, err = run(*arguments, "-o", "json")

    assert (exit_code, out) == (2, "")
    found = json.loads(err)
    assert (found["code"], [p["path"] for p in found["problems"]]) == (code, [path])
    assert Path("full", "report.html").read_text() == "<p>mine</p>"
    assert not Path("histories-report").exists()


def test_missing_published_histories_are_all_named() -> None:
    code, _, err = run("--traces", "nowhere", "-o", "json")

    assert code == 2
    assert [Path(p["path"]).name for p in json.loads(err)["problems"]] == [
        "philly2017_jobs.parquet", "itp2021_jobs.parquet", "gavel_shockwave_traces.parquet"
    ]  # fmt: skip
