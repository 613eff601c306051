"""Reading training jobs with deadlines, and measured throughputs: all problems of both files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.base.errors import SpecError
from headgate.traces.training import RecordedJob, read_training

JOBS: dict[str, list[Any]] = {
    "job_id": ["a", "b", "c"],
    "submit_s": [0.0, 1.0, 2.0],
    "duration_s": [10.0, 10.0, 10.0],
    "gpus": [1.0, 2.0, 1.0],
    "vc": ["x", "x", "y"],
    "ef_model": ["net", "net", "other"],
    "ef_batch_size": [4, 8, 4],
    "ef_iterations": [100, 200, 300],
    "ef_deadline_s": [50.0, 60.0, 70.0],
}
MEASURED: dict[str, list[Any]] = {
    "source": ["elasticflow"] * 7 + ["gavel"],
    "model": ["net", "net", "net", "net", "net", "net", "other", "net"],
    "batch_size": [4, 4, 4, 4, 8, 8, 4, 4],
    "gpu_type": ["T4", "T4", "T4", "T4", "T4", "T4", "A100", "T4"],
    "gpus": [1, 8, 4, 2, 1, 2, 1, 1],
    "throughput": [1.0, 9.0, 3.0, None, 2.0, 1.5, 8.0, 77.0],
}


def written(
    folder: Path,
    jobs: dict[str, list[Any]] | None = None,
    rates: dict[str, list[Any]] | None = None,
) -> tuple[Path, Path]:
    trace, throughputs = folder / "jobs.parquet", folder / "rates.parquet"
    pq.write_table(pa.table(JOBS if jobs is None else jobs), trace)
    pq.write_table(pa.table(MEASURED if rates is None else rates), throughputs)
    return trace, throughputs


def read(
    folder: Path, *tables: dict[str, list[Any]] | None, vc: str | None = "x", gpu_type: str = "T4"
) -> list[RecordedJob]:
    return read_training(*written(folder, *tables), vc=vc, gpu_type=gpu_type)


def problems(folder: Path, *tables: dict[str, list[Any]] | None, **how: Any) -> list[str]:
    with pytest.raises(SpecError) as caught:
        read(folder, *tables, **how)
    assert caught.value.code == "bad_trace"
    return [f"{p.path.rpartition('/')[2]}: {p.problem}" for p in caught.value.problems]


def test_jobs_have_the_curve_of_their_model(tmp_path: Path) -> None:
    """A null is no width, and a batch of 4 has none above 4."""
    first, second = read(tmp_path)
    assert (first.id, first.submit_s, first.deadline_s, first.work) == ("a", 0.0, 50.0, 100.0)
    assert (first.curve.widths, first.curve.rates, first.useful) == ((1, 4), (1.0, 3.0), 4)
    assert (second.curve.widths, second.useful, second.requested) == ((1, 2), 1, 2)
    assert first.alone_s(gpus=2) == 100.0
    assert first.alone_s(gpus=64) == pytest.approx(100 / 3)
    assert first.alone_s(gpus=0) is None


def test_all_problems_of_both_files_are_named(tmp_path: Path) -> None:
    jobs = {name: column for name, column in JOBS.items() if name != "ef_deadline_s"}
    rates = {name: column for name, column in MEASURED.items() if name != "gpus"}
    assert problems(tmp_path, jobs, rates) == [
        "rates.parquet:gpus: column missing",
        "jobs.parquet:ef_deadline_s: column missing",
    ]


def test_what_was_not_measured_is_named_once(tmp_path: Path) -> None:
    found = problems(tmp_path, vc=None)
    assert len(found) == 1
    assert found[0].startswith("jobs.parquet:ef_model[2]: ")
    assert found[0].endswith("no throughput of other with batch size 4 on T4")
    assert problems(tmp_path, gpu_type="V100") == ["rates.parquet:gpu_type: no row has 'V100'"]
    assert problems(tmp_path, vc="z") == ["jobs.parquet:vc: no row has 'z'"]


@pytest.mark.parametrize(
    ("column", "values", "problem"),
    [
        ("ef_iterations", [1.0, None, 1.0], "ef_iterations[1]: is null or not a number"),
        ("ef_iterations", [1, -2, 1], "ef_iterations[1]: is -2, less than 0"),
        ("ef_batch_size", [4, 0, 4], "ef_batch_size[1]: is 0, less than 1"),
        ("ef_deadline_s", [1.0, float("inf"), 1.0], "ef_deadline_s[1]: is infinite"),
        ("ef_deadline_s", ["1", "2", "3"], "ef_deadline_s: is string, not a number"),
        ("ef_model", [1.5, 2.5, 3.5], "ef_model: is double, not text"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_its_row(
    tmp_path: Path, column: str, values: list[Any], problem: str
) -> None:
    assert problems(tmp_path, {**JOBS, column: values}) == [f"jobs.parquet:{problem}"]


def test_a_width_measured_twice_is_refused(tmp_path: Path) -> None:
    rates = {**MEASURED, "gpus": [1, 1, 4, 2, 1, 2, 1, 1]}
    assert problems(tmp_path, None, rates) == [
        "rates.parquet:throughput: net, batch size 4 on 1 GPUs was measured twice"
    ]


def test_missing_files_are_named(tmp_path: Path) -> None:
    trace, _ = written(tmp_path)
    with pytest.raises(SpecError, match="no such file"):
        read_training(trace, tmp_path / "none.parquet", vc=None, gpu_type="T4")
    (tmp_path / "text.parquet").write_text("job_id\n")
    with pytest.raises(SpecError, match="not readable as Parquet"):
        read_training(trace, tmp_path / "text.parquet", vc=None, gpu_type="T4")


def test_work_and_deadlines_that_cannot_be_met_are_no_error(tmp_path: Path) -> None:
    jobs = {**JOBS, "ef_iterations": [0, 200, 1], "ef_deadline_s": [50.0, 1.0, 70.0]}
    assert [job.impossible() for job in read(tmp_path, jobs)] == [
        "no_work",
        "deadline_before_submission",
    ]
