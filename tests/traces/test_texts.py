"""Histories as text: CSV with our columns, and what `sacct --parsable2` prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.base.errors import SpecError
from headgate.traces import TraceJob, TraceOptions, open_trace

SACCT = """JobID|Submit|Elapsed|End|State|AllocTRES|ReqMem|User|Partition|JobName|Timelimit
12|2026-01-01T10:00:00|1-02:03:04|2026-01-02T12:03:04|COMPLETED|cpu=8,gres/gpu:h100=4,gres/gpu=4|64G|ann|gpu|train|2-00:00:00
12.batch|2026-01-01T10:00:00|1-02:03:04|2026-01-02T12:03:04|COMPLETED|cpu=8|64G|||batch|
12.0|2026-01-01T10:00:00|00:10:00|2026-01-01T10:10:00|COMPLETED|cpu=8|64G|||python|
13_0|2026-01-01T09:59:00|00:30:00|2026-01-01T10:30:00|TIMEOUT|cpu=1,gres/gpu:a100=1,gres/gpu:h100=1|8G|bob|gpu|array|UNLIMITED
13_1|2026-01-01T09:59:00|05:00|2026-01-01T10:30:00|CANCELLED by 1000|gres/gpu=1|8G|bob|gpu|array|Partition_Limit
13_[2-9]|2026-01-01T09:59:00|00:00:00|Unknown|PENDING||8G|bob|gpu|array|01:00:00
14|2026-01-01T11:00:00|00:30:00|Unknown|RUNNING|gres/gpu=2|8G|bob|gpu|train|01:00:00
15|2026-01-01T11:00:00|00:30:00|2026-01-01T12:00:00|FAILED|cpu=4|8G|bob|cpu|prepare|01:00:00
"""  # noqa: E501


def written(directory: Path, text: str, name: str = "jobs.txt") -> Path:
    path = directory / name
    path.write_text(text)
    return path


def test_output_of_sacct_is_read_with_arrays_models_and_limits(tmp_path: Path) -> None:
    """Without steps, jobs that have not ended or held no GPU; no limit is the longest."""
    for name in ("jobs.txt", "jobs.csv", "jobs", "export.psv"):
        path = written(tmp_path, SACCT, name)
        found = open_trace(path, TraceOptions(declared=True))
        day_s, longest_s = 86400 + 2 * 3600 + 3 * 60 + 4.0, 2 * 86400.0
        assert [*found.rows()] == [
            TraceJob("13_0", 0.0, 1800.0, 2, "bob", "gpu", "array", "", longest_s),
            TraceJob("13_1", 0.0, 300.0, 1, "bob", "gpu", "array", "", longest_s),
            TraceJob("12", 60.0, day_s, 4, "ann", "gpu", "train", "", longest_s),
        ]
        assert len(found) == 3
        assert found.notes == (
            "2 jobs left out: they have not ended",
            "1 job left out: they held no GPU, or never started",
        )


def test_raw_limits_of_sacct_are_minutes_and_raw_times_seconds(tmp_path: Path) -> None:
    header = "JobIDRaw|Submit|ElapsedRaw|AllocTRES|TimelimitRaw"
    text = f"{header}\n7|2026-01-01T10:00:00|90|gres/gpu=1|60\n"
    (job,) = open_trace(written(tmp_path, text), TraceOptions(declared=True)).rows()
    assert (job.duration_s, job.estimate_s) == (90.0, 3600.0)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv_has_the_columns_of_parquet(tmp_path: Path, delimiter: str) -> None:
    rows = [
        "job_id,submit_s,duration_s,gpus,user,vc",
        "b,60,00:01:30,0.5,ann,",
        'a,0.5,20,2,"bob, jr",x',
    ]
    text = "\r\n".join(rows) + "\r\n"
    if delimiter != ",":
        text = text.replace('"bob, jr"', "bob").replace(",", delimiter)
    found = open_trace(written(tmp_path, "\ufeff" + text, "jobs.csv"))
    assert [(j.job_id, j.submit_s, j.duration_s, j.gpus, j.vc) for j in found.rows()] == [
        ("a", 0.5, 20.0, 2, "x"), ("b", 60.0, 90.0, 1, ""),
    ]  # fmt: skip
    (vc,) = open_trace(found.path, TraceOptions(vc="x")).rows()
    assert vc.user in ("bob", "bob, jr")


def test_all_bad_rows_are_named_with_line_column_and_hint(tmp_path: Path) -> None:
    good = "1|2026-01-01T10:00:00|00:01:00|gres/gpu=1|gpu"
    lines = [
        "JobID|Submit|Elapsed|AllocTRES|Partition", good, good,
        "2|yesterday-1|00:01:00|gres/gpu=1|q",
        "3|2026-01-01T10:00:00|soon|gres/gpu=1|q", "4|2026-01-01T10:00:00|00:01:00|gres/gpu=1|a|b",
        *(f"{n}|2026-01-01T10:00:00|-5|gres/gpu=1|q" for n in range(5, 30)),
    ]  # fmt: skip
    path = written(tmp_path, "\n".join(lines))
    with pytest.raises(SpecError) as error:
        open_trace(path)
    assert error.value.code == "bad_trace"
    listed = [f"{p.path}: {p.problem}; {p.hint}" for p in error.value.problems]
    assert listed[:4] == [
        f"{path}:3: JobID: '1' is the id of line 2 too; keep one row a job",
        f"{path}:4: Submit: 'yesterday-1' is no time; write it as 2026-01-01T10:00:00",
        f"{path}:5: Elapsed: 'soon' is no number; seconds, or [days-]hours:minutes:seconds",
        f"{path}:6: has 6 fields, the header has 5; a name may contain the delimiter: quote it",
    ]
    assert listed[4].startswith(f"{path}:7: Elapsed: is -5, not 0 or more")
    assert len(listed) == 15
    assert listed[-1] == f"{path}: Elapsed: ... and 15 more like these; "


def test_header_that_lacks_columns_names_the_export(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as error:
        open_trace(written(tmp_path, "JobID|Submit|State\n1|2026-01-01T10:00:00|COMPLETED\n"))
    assert [p.path.rpartition(": ")[2] for p in error.value.problems] == ["ElapsedRaw", "AllocTRES"]
    assert "sacct --allusers --parsable2" in error.value.problems[0].hint
    with pytest.raises(SpecError) as error:
        open_trace(written(tmp_path, "1|2026-01-01T10:00:00|COMPLETED\n"))
    assert "without --noheader" in error.value.problems[0].hint


def test_history_without_a_job_that_held_a_gpu_is_empty(tmp_path: Path) -> None:
    text = "".join(SACCT.splitlines(keepends=True)[i] for i in (0, 2, 8))
    with pytest.raises(SpecError, match="has no jobs"):
        open_trace(written(tmp_path, text))


def test_docs_name_the_command_that_is_read() -> None:
    from headgate.traces.texts import EXPORT

    page = Path(__file__).parents[2] / "docs" / "traces.md"
    assert " ".join(EXPORT.split()) in " ".join(page.read_text().replace("\\\n", " ").split())
