"""Tables and texts fit a terminal of 80 columns, one line per job; states as Slurm names them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from headgate.base.states import (
    JOB_WORDS,
    NODE_WORDS,
    PREEMPTED,
    TASK_WORDS,
    job_word,
    task_word,
    tasks_by_word,
)
from headgate.base.units import format_compact
from headgate.cli.common import tables
from headgate.cli.simulate import demo
from headgate.protocol import Reason
from headgate.protocol.node_reasons import Infeasible, NodeBusyOutside, NodesDraining
from headgate.protocol.order_reasons import WaitsForTasks
from headgate.protocol.queue_reasons import (
    NotLent,
    QueueQuota,
    QueueStopped,
    UserLimit,
    UserTooSmall,
)
from headgate.protocol.reasons import (
    BackfillTooLong,
    BehindHead,
    BelowShare,
    Declines,
    Fragmented,
    GangShort,
    GpuMemory,
    JobsInFlightLimit,
    NoFittingNode,
    NoFreeGpu,
    NothingFits,
    OutrankedBy,
    PreemptedFor,
    QueueLimit,
    QueueTooSmall,
    ReservedAt,
    ShareLimit,
    Short,
    Shortage,
    Undecided,
    WaitsForLocality,
)
from headgate.protocol.resize import Reclaimed

DOCS = Path(__file__).parents[3] / "docs"
LONG = "a-long-name-of-a-job-that-takes-part-in-a-sweep-of-many-parameters"
WIDE = f"{{name: {LONG}, gang: true, tasks: {{run: x, count: 3}}}}"


@pytest.fixture
def terminal(up: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program on a terminal of 80 columns, with jobs of long names in a queue."""
    monkeypatch.setenv("COLUMNS", "80")

    def call(*arguments: str) -> Any:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        return up(*arguments)

    return call


@pytest.fixture
def shared(up: Any, controller: Any) -> Any:
    """Under `fs`: job-1 has all 4 GPUs and 2 pending tasks, job-2 has 3."""
    controller.policy_name = "fs"
    for name, count in (("many", 6), ("few", 3)):
        text = f"{{name: {name}, tasks: {{run: 'true', count: {count}}}}}"
        controller.submit(text, user="ann", key=None)
    controller.clock += 30.0
    return up


@pytest.fixture
def busy(terminal: Any, controller: Any, job_file: Any) -> Any:
    """Jobs that run, wait in two queues, have failed with a long message, and are preempted."""
    controller.policy_name = "fs"
    controller.on_launch = lambda launch: f"ValueError: {LONG}\n{LONG * 3}"
    controller.submit(f"{{name: {LONG}, run: 'false'}}", user="a-user-with-a-long-name", key=None)
    controller.on_launch = lambda launch: None
    for text in (
        f"{{name: {LONG}, tasks: {{run: x, count: 1200}}}}",
        WIDE,
        f"{{name: {LONG}, queue: narrow, run: x}}",
        f"{{name: {LONG}, queue: narrow, run: x}}",
    ):
        controller.submit(text, user="a-user-with-a-long-name", key=None)
    controller.clock += 400_000.0
    return terminal


@pytest.mark.parametrize(
    "arguments",
    ["jobs", "nodes", "queues", "data ls", "policies", "policies headgate", "get job-1",
     "get job-2", "why job-2", "why job-2/0", "why job-3", "why job-5", "plan",
     "plan --policy fsp,slack=0 --nodes 2"],
)  # fmt: skip
def test_no_line_is_longer_than_a_terminal_of_80_columns(busy: Any, arguments: str) -> None:
    output = busy(*arguments.split())
    assert output.code == 0
    lines = output.out.splitlines()
    assert lines
    if arguments == "get job-1":  # the message ends with the end of the log, unchanged
        lines = [line for line in lines if LONG * 3 not in line]
    assert [line for line in lines if len(line) > 80] == []


def test_jobs_has_one_line_per_job_with_id_state_and_reason(busy: Any) -> None:
    heading, *rows = busy("jobs").out.splitlines()
    assert heading.split() == ["JOB", "USER", "QUEUE", "STATE", "TASKS", "GPUS", "TIME", "REASON"]
    assert len(rows) == 5
    cells = [row.split(maxsplit=7) for row in rows]
    assert [row[3] for row in cells] == ["PENDING"] * 3 + ["RUNNING", "FAILED"]
    assert [row[6] for row in cells] == ["4d15h"] * 4 + ["0s"]
    assert all(row[7] != "-" for row in cells[:3])


@pytest.mark.parametrize("option", ["--limit 5", "-o wide"])
def test_jobs_into_a_pipe_has_whole_names(busy: Any, up: Any, option: str) -> None:
    sys.stdout.isatty = lambda: False  # type: ignore[method-assign]
    shown = up("jobs", *option.split()).out
    assert "a-user-with-a-long-name" in shown
    assert len(shown.splitlines()) == 6


def test_the_queue_is_left_out_where_all_jobs_are_in_the_default_one(
    terminal: Any, controller: Any
) -> None:
    controller.submit("{run: x}", user="ann", key=None)
    assert "QUEUE" not in terminal("jobs").out
    controller.submit("{run: x, queue: narrow}", user="ann", key=None)
    assert "QUEUE" in terminal("jobs").out


def test_jobs_are_found_by_the_states_that_the_table_shows(up: Any, controller: Any) -> None:
    narrow, wide = "{queue: narrow, run: x}", WIDE.replace("3", "4")
    for text in ("{run: x}", narrow, narrow, wide):
        controller.submit(text, user="ann", key=None)

    def found(status: str) -> list[str]:
        return [job["id"] for job in up("jobs", "--state", status, "-o", "json").json["jobs"]]

    assert found("RUNNING") == ["job-2", "job-1"]
    assert found("pending") == ["job-4", "job-3"]
    assert found("queued") == ["job-3"]
    assert found("active") == ["job-4", "job-2", "job-1"]
    assert (found("completed"), found("preempted")) == ([], [])
    controller.end("job-1", 0, b"")
    assert found("completed") == found("finished") == ["job-1"]
    error = up("jobs", "--state", "pendin", "-o", "json").error
    assert error["problems"][0]["hint"] == "did you mean 'pending'?"


def test_tasks_that_wait_after_a_preemption_are_shown_as_preempted(
    up: Any, controller: Any
) -> None:
    controller.policy_name = "fsp"
    controller.submit("{name: many, tasks: {run: 'true', count: 4}}", user="ann", key=None)
    controller.submit("{name: few, tasks: {run: 'true', count: 2}}", user="bob", key=None)
    view = up("get", "job-1", "-o", "json").json
    assert view["preempted_tasks"] == 2
    shown = up("get", "job-1").out
    assert "Tasks: 4 (2 PREEMPTED, 2 RUNNING)" in shown
    assert sum("PREEMPTED" in line for line in shown.splitlines()) == 3
    assert up("why", "job-1").out.startswith("job-1: RUNNING (tasks: 2 PREEMPTED, 2 RUNNING)\n")
    assert up("why", "job-1/3").out.startswith("job-1/3: PREEMPTED (job: RUNNING)\n")


def test_states_are_those_of_slurm() -> None:
    assert job_word("queued", {"held": 3}) == "PENDING"
    assert job_word("active", {"waiting": 3}) == "PENDING"
    assert job_word("active", {"waiting": 3, "starting": 1}) == "RUNNING"
    assert job_word("active", {"waiting": 3, "finished": 1}, preempted=1) == "PREEMPTED"
    assert job_word("active", {"running": 3}, preempted=1) == "RUNNING"
    assert job_word("finished", {"finished": 3}) == "COMPLETED"
    assert task_word("waiting", preempted=True) == "PREEMPTED"
    assert task_word("running", preempted=True) == "RUNNING"
    assert task_word("hibernating") == "HIBERNATING"
    counts = {"total": 9, "blocked": 2, "waiting": 3, "running": 4}
    assert tasks_by_word(counts, preempted=1) == {"PREEMPTED": 1, "PENDING": 4, "RUNNING": 4}


RESERVED = ReservedAt(at=1e9, ahead_s=3600.0, after=("sort-1", "kmeans-2", "train-3"), others=12)
SAMPLES: list[Reason] = [
    Infeasible(
        need="6 CPUs on one node",
        largest="nodes have at most 2 CPUs",
        shape="large",
        resources="8 CPUs",
        ready_s=30.0,
        scales=True,
    ),
    NodesDraining(nodes=("n1",), why="a new disk"),
    NodeBusyOutside(node="n3", resource="gpu_memory", used=41 << 30, gpu=2, pid=4711, others=2),
    GangShort(placeable_tasks=3, tasks=4, free_gpus=16, needed_gpus=16, lacking="memory"),
    Fragmented(free_gpus=8, most_on_one_node=3, needed_gpus=4),
    BackfillTooLong(needs_s=7200.0, hole_s=2400.0, ahead="train-3"),
    NoFreeGpu(free_gpus=0, needed_gpus=1, total_gpus=4),
    GpuMemory(needed_bytes=40 << 30, largest_free_bytes=16 << 30),
    Shortage(resource="memory", needed=64 << 30, most_free=12 << 30, beside="2 GPUs"),
    NoFittingNode(need="a GPU and 4 CPUs"),
    ShareLimit(running_gpus=5, share_gpus=4, ahead="sort-1"),
    BelowShare(running_gpus=1, share_gpus=3, ahead="sort-1", ahead_over_gpus=2),
    QueueLimit(queue="poor", used_gpus=2, max_gpus=2),
    QueueQuota(queue="poor", resource="cpus", used=8000, limit=8000),
    UserLimit(queue="poor", user="ann", resource="gpus", used=8000, limit=8000),
    QueueStopped(queue="poor"),
    NotLent(queue="vision", resource="GPUs"),
    JobsInFlightLimit(queue="nightly", in_flight=1, max_jobs_in_flight=1, ahead=2),
    BehindHead(head="wide-1"),
    WaitsForLocality(move_s=50.0, wait_s=49.0),
    Declines(move_s=50.0, best_s=5.0, skips=3, patience=10),
    WaitsForTasks(unfinished=3),
    PreemptedFor(job="sort-1"),
    OutrankedBy(job="train-3", order="srtf"),
    Reclaimed(job="sort-1", queue="default", user="ann"),
    Infeasible(need="9 GPUs on one node", largest="nodes have at most 8 GPUs"),
    Undecided(),
]
REASONS: list[Reason] = [
    NoFreeGpu(free_gpus=10, needed_gpus=1, total_gpus=2000, memory_bytes=80 << 30),
    Fragmented(free_gpus=100, most_on_one_node=6, needed_gpus=8, reserved=RESERVED),
    GangShort(placeable_tasks=100, tasks=128, free_gpus=1000, needed_gpus=1024, reserved=RESERVED),
    Shortage(resource="memory", needed=512 << 30, most_free=500 << 30),
    NoFittingNode(need="8 GPUs and 64 CPUs"),
    GpuMemory(needed_bytes=80 << 30, largest_free_bytes=40 << 30),
    BackfillTooLong(needs_s=7200.0, hole_s=2400.0, ahead="train-3"),
    ShareLimit(running_gpus=1000, share_gpus=1000, ahead="sort-1"),
    BelowShare(running_gpus=100, share_gpus=120, ahead="sort-1", ahead_over_gpus=20),
    QueueLimit(queue="research", used_gpus=100, max_gpus=100),
    QueueQuota(queue="research", resource="memory", used=512 << 30, limit=512 << 30),
    UserLimit(queue="research", user="ann", resource="memory", used=512 << 30, limit=512 << 30),
    UserTooSmall(queue="research", resource="gpus", needed=100_000, limit=64_000),
    QueueStopped(queue="research"),
    NotLent(queue="research", resource="cpus"),
    QueueTooSmall(queue="research", needed_gpus=100, max_gpus=64),
    JobsInFlightLimit(queue="research", in_flight=10, max_jobs_in_flight=10, ahead=99),
    BehindHead(head="train-3"),
    WaitsForLocality(move_s=5000.0, wait_s=4000.0),
    Declines(move_s=50.0, best_s=5.0, skips=3, patience=10),
    PreemptedFor(job="train-3"),
    OutrankedBy(job="train-3", order="priority"),
    WaitsForTasks(unfinished=1000),
    NothingFits(need="9 GPUs on one node", task=0, most="nodes have at most 8 GPUs"),
    NothingFits(need="9 GPUs on one node"),
    Undecided(),
]


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: reason.code)
def test_what_is_in_the_way_is_a_short_clause_before_the_way_out(reason: Reason) -> None:
    assert ";" not in reason.cause()
    assert len(reason.cause()) <= 58
    assert reason.detail().partition("; ")[0] == reason.cause()


def test_report_of_the_demo_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    row = demo._Row(
        job="occurrence-1", what="a gang: 2 GPUs on each of 4 nodes", tasks=17, wait_s=5000.0,
        run_s=5000.0, simulated_s=5000.0,
        fairness=0.654, read_bytes=(131 << 20, 121 << 20, 105 << 20), verdict="",
        why_after_s=38.0, why=SAMPLES[0].detail(),
        expected="occurrence-1/8 in 12 s to 22 s (80 %; most likely 16 s) on n5",
    )  # fmt: skip
    wrong = replace(row, job="matmul-4", verdict="the product differs from that of NumPy by 0.5")
    read = {"node": 1 << 30, "rack": 1 << 29, "cluster": 1 << 20}
    facts = {"makespan_s": 81.0, "bytes": read}
    demo._show(Console(width=80), [row, wrong], {**facts, "simulated": facts})
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line.rstrip()) > 80] == []
    shown = next(line for line in lines if line.startswith("occurrence-1"))
    assert shown.split() == [
        "occurrence-1", "17", "1h23m", "1h23m", "1h23m", "0.65", "131/121/105", "correct",
    ]  # fmt: skip
    assert any(line.startswith("matmul-4") and line.endswith("...") for line in lines)


def test_errors_are_wrapped_on_a_terminal(terminal: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    lines = terminal("plan", "--policy", "unknown").err.splitlines()
    assert lines[0] == "error: policy: there is no policy 'unknown'"
    assert len(lines) > 2, "the hint lists all policies"
    assert all(line.startswith("  ") and len(line) <= 80 for line in lines[1:])


def test_free_text_is_cropped_at_its_end_and_names_in_their_middle() -> None:
    headings = ("JOB", "GPUS", "REASON")
    rows = [("training-of-a-large-model-17", "16", "12 of 16 needed GPUs are free, so it waits")]
    assert tables.lines(headings, rows, width=42, text="REASON", names=("JOB",)) == [
        "JOB             GPUS  REASON",
        "traini...el-17    16  12 of 16 needed G...",
    ]
    assert tables.lines(headings, rows)[1].endswith("so it waits")


def test_columns_are_those_of_a_terminal_also_for_wide_characters() -> None:
    shown = tables.lines(
        ("USER", "N"), [("\u65e5\u672c\u8a9e" * 9, 1), ("ann", 22)], width=24, names=("USER",)
    )
    assert [tables.columns_of(line) for line in shown[1:]] == [24, 24]


def test_page_of_reasons_has_their_present_sentences() -> None:
    page = (DOCS / "why.md").read_text()
    sentences = [reason.detail() for reason in SAMPLES]
    assert [text for text in sentences if f"| {text}" not in page] == []


def _kinds(base: type[Reason]) -> Iterator[type[Reason]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _kinds(kind)


def test_page_of_reasons_has_every_reason() -> None:
    page = (DOCS / "why.md").read_text()
    codes = {kind.__name__ for kind in _kinds(Reason) if kind.__module__.startswith("headgate.")}
    assert {code for code in codes - {Short.__name__} if f"`{code}`" not in page} == set()


def test_pages_have_all_states_and_the_present_tables(shared: Any) -> None:
    page = (DOCS / "cli.md").read_text()
    assert {*TASK_WORDS.values(), *JOB_WORDS.values(), *NODE_WORDS.values(), PREEMPTED} <= {
        word.strip("|,") for word in page.split()
    }
    heading = "JOB           USER  STATE      TASKS  GPUS  TIME  REASON"
    assert f"$ headgate jobs\n{heading}\n" in page
    plan = shared("plan", "--policy", "fsp,slack=0").out
    sample = (DOCS / "why.md").read_text().replace("\n  ", " ")  # further lines are indented
    assert f"$ headgate plan --policy fsp,slack=0\n{plan}" in sample


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (9.96, "10s"),
        (90.0, "1m30s"),
        (2999.0, "49m"),
        (7500.0, "2h5m"),
        (1e5, "1d3h"),
        (4e7, "462d23h"),
    ],
)
def test_durations_in_tables_are_short(seconds: float, text: str) -> None:
    assert format_compact(seconds) == text
