"""The time line of `plan`: what is reserved, for which job, and what it waits for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from headgate.cli.common import output
from headgate.cli.jobs import timeline
from headgate.reports import colours

WIDE = "{name: wide, gang: true, tasks: {run: 'true', count: 4}}"
ONE = "{name: one, run: 'true'}"


@pytest.fixture
def reserved(up: Any, job_file: Any, controller: Any) -> Any:
    """Under `easy-backfill`: job-2 runs on one GPU for 160 s more, job-3 waits for all four."""
    controller.policy_name = "easy-backfill"
    up("submit", job_file(ONE))
    controller.end("job-1", 0, b"", after_s=160.0)
    up("submit", job_file(ONE))
    up("submit", job_file(WIDE))
    return up


def cells(text: str) -> list[list[str]]:
    """Return the cells of the time line."""
    lines = text.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("TIME LINE"))
    return [re.split(" {2,}", line.strip()) for line in lines[first:]]


def test_plan_shows_reservations_and_the_runs_that_they_wait_for(reserved: Any) -> None:
    head, run, wide = cells(reserved("plan").out)
    assert head[:6] == ["TIME LINE", "GPUS", "NODES", "STARTS", "ENDS", "now"]
    assert run[:5] == ["job-2", "1", "n0", "runs", "in 2 min 40 s"]
    assert wide[:5] == ["job-3", "4", "n0, n1", "in 2 min 40 s", "in 5 min 20 s"]
    ends, starts = run[5].count("="), wide[5].count(".")
    assert run[5] == "=" * ends
    assert re.fullmatch(r"\.+#+", wide[5])
    assert abs(ends - starts) <= 1


def test_why_gives_the_time_of_the_reservation_and_the_job_before(reserved: Any) -> None:
    view = reserved("why", "job-3", "-o", "json").json
    numbers = view["reason"]["numbers"]
    assert (view["reason"]["code"], numbers["free_gpus"], numbers["needed_gpus"]) == (
        "GangShort", 3, 4,
    )  # fmt: skip
    assert numbers["reserved"] == {
        "at": view["now"] + 160.0, "ahead_s": 160.0, "after": ["job-2"], "others": 0,
        "superseded": None, "announced": True, "late": False, "late_s": None,
    }  # fmt: skip
    line = reserved("why", "job-3").out.splitlines()[2]
    assert line == (
        "Reason: 3 of 4 needed GPUs are free; reserved for 13:52:00 UTC when runs of job-2 have "
        "ended"
    )


def test_why_gives_the_hole_that_a_longer_job_does_not_fit(reserved: Any, job_file: Any) -> None:
    reserved("submit", job_file("{run: 'true', estimated_runtime: 10min}"))
    assert reserved("why", "job-4").out.splitlines()[2] == (
        "Reason: needs 10 min, GPUs are free for 2 min 40 s; "
        "starts after job-3, for which they are reserved"
    )


@pytest.mark.parametrize(
    ("resources", "reason"),
    [
        ("{gpus: 2}", "2 free GPUs, at most 1 on one node, 2 needed there"),
        ("{gpus: 0.5, cpus: 3}", "CPUs: 3 needed, at most 2 free on a node"),
    ],
)
def test_why_gives_what_is_short_on_each_node_and_the_reservation(
    up: Any, job_file: Any, controller: Any, resources: str, reason: str
) -> None:
    controller.policy_name = "headgate"
    held = "resources: {gpus: 1, cpus: 2}, estimated_runtime: 5min"
    up("submit", job_file(f"{{num_nodes: 2, run: 'true', {held}}}"))
    up("submit", job_file(f"{{run: 'true', resources: {resources}}}"))
    line = up("why", "job-2").out.splitlines()[2]
    assert line.startswith(f"Reason: {reason}; reserved for ")
    assert line.endswith(" when runs of job-1 have ended")


def test_plan_gives_reservations_to_programs(reserved: Any) -> None:
    view = reserved("plan", "-o", "json").json
    (found,) = view["what_if"]["reservations"]
    assert found == {
        "job": "job-3", "at": view["now"] + 160.0, "until": view["now"] + 320.0, "gpus": 4,
        "places": [{"node": "n0", "gpus": [0, 1]}, {"node": "n1", "gpus": [0, 1]}],
        "waits_for": [
            {"task": "job-2/0", "node": "n0", "gpus": [0], "until": view["now"] + 160.0}
        ],
    }  # fmt: skip
    other = reserved("plan", "--policy", "fifo", "-o", "json").json
    assert other["what_if"]["reservations"] == []
    assert [each["job"] for each in other["today"]["reservations"]] == ["job-3"]


def test_run_of_unknown_length_leaves_the_time_of_a_reservation_unknown(
    up: Any, job_file: Any, controller: Any
) -> None:
    controller.policy_name = "easy-backfill"
    up("submit", job_file(ONE))
    up("submit", job_file(WIDE))
    _, run, wide = cells(up("plan").out)
    assert run[3:] == ["runs", "unknown", run[5]]
    assert wide[3:5] == ["unknown", "unknown"]
    assert re.fullmatch("=+>", run[5])
    assert re.fullmatch(r"\.+", wide[5])
    assert up("plan", "-o", "json").json["what_if"]["reservations"][0]["at"] is None
    text = up("why", "job-2").out
    assert (
        "3 of 4 needed GPUs are free; GPUs are reserved, it starts when runs of job-1 have ended"
        in text
    )


def test_report_is_a_page_with_a_chart(reserved: Any, tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    shown = reserved("plan", "--report", str(page))
    assert shown.code == 0
    assert f"report: {page}" in shown.err
    text = page.read_text()
    assert text.count('<div class="chart"') == 1
    for job, state, css_class in (("job-2", "runs", ""), ("job-3", "reserved", "reserved")):
        look = f'fill="{colours.fill(job)}"'
        assert f'class="{css_class}" {look}><title>{job}: {state}</title>' in text
        assert f"{look}/></svg>{job}</li>" in text, "the legend names each job in its look"
    assert "http" not in text
    assert reserved("plan", "--report", str(page)).code == 0, "an earlier page is replaced"
    assert reserved("plan", "--policy", "fifo", "--report", str(page)).code == 0
    assert "No GPU is reserved." in page.read_text()


def test_report_replaces_no_other_file(reserved: Any, tmp_path: Path) -> None:
    mine = tmp_path / "notes.html"
    mine.write_text("mine")
    error = reserved("plan", "--report", str(mine), "-o", "json").error
    (problem,) = error["problems"]
    assert (error["code"], problem["path"]) == ("usage", "--report")
    assert mine.read_text() == "mine"
    missing = reserved("plan", "--report", str(tmp_path / "no" / "plan.html"), "-o", "json")
    assert missing.error["code"] == "cannot_write"


def _reservation(job: str, at: float | None, until: float | None, *held: Any) -> dict[str, Any]:
    return {
        "job": job, "at": at, "until": until, "gpus": 2,
        "places": [{"node": f"n{n}", "gpus": [0]} for n in range(5)],
        "waits_for": [
            {"task": f"{job}/0", "node": "n0", "gpus": [0], "until": end} for job, end in held
        ],
    }  # fmt: skip


@pytest.mark.parametrize("columns", [40, 80, 120, 200])
def test_time_line_is_as_wide_as_the_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.console import Console

    monkeypatch.setattr(
        output,
        "stdout",
        lambda: Console(width=columns, force_terminal=True, color_system=None, highlight=False),
    )
    reservations = [_reservation("wide", 1200.0, 9e6, ("a", 300.0), ("b", 1200.0))]
    timeline.print_timeline(reservations, 0.0)
    lines = capsys.readouterr().out.splitlines()[1:]
    wide = next(line for line in lines if line.startswith("wide"))
    if columns >= 80:
        assert max(map(len, lines)) == columns
        assert len(lines) == 4
        assert "n0, n1, n2, +2" in wide
        assert wide.endswith("#>")


def test_many_runs_are_cut_to_those_that_end_last(capsys: pytest.CaptureFixture[str]) -> None:
    held = [(f"j{number}", 10.0 * number) for number in range(1, 30)]
    timeline.print_timeline([_reservation("wide", 290.0, None, *held)], 0.0)
    shown = capsys.readouterr()
    assert "j29" in shown.out
    assert "j17 " not in shown.out
    assert "and runs of 17 more jobs that end before" in shown.err


def test_names_are_escaped_in_the_page(tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    timeline.write_page(page, "p<b>", [_reservation("<i>\x1b", 5.0, 6.0, ("<u>", 5.0))], 0.0)
    text = page.read_text()
    assert "<i>" not in text
    assert "<u>" not in text
    assert "p<b>" not in text
    assert "\x1b" not in text
