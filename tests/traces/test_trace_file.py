"""A checked trace file is read in batches, in order of time, at every request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.base.errors import SpecError
from headgate.traces import TraceFile, TraceOptions, open_trace
from headgate.traces.trace import BATCH_ROWS

ROWS = 2 * BATCH_ROWS + 3  # so there are three batches


def written(path: Path, *, row_group_size: int | None = None, **columns: Any) -> Path:
    """Write a trace of `ROWS` jobs, some columns of it as given."""
    every = {
        "job_id": [f"job-{row}" for row in range(ROWS)],
        "submit_s": np.arange(ROWS) // 2,
        "duration_s": np.arange(ROWS) % 7 + 0.5,
        "gpus": np.arange(ROWS) % 3 + 0.25,
    }
    pq.write_table(pa.table(every | columns), path, row_group_size=row_group_size)
    return path


def refused(path: Path) -> list[str]:
    with pytest.raises(SpecError) as error:
        open_trace(path)
    return [str(problem).removeprefix(f"{path}:") for problem in error.value.problems]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.parquet"


@pytest.mark.parametrize("row_group_size", [None, 1000, BATCH_ROWS])
def test_batches_give_every_row_in_order_each_time(path: Path, row_group_size: int | None) -> None:
    trace = open_trace(written(path, row_group_size=row_group_size))
    rows = [row[:4] for row in trace.rows()]
    assert (len(trace), trace.in_order, trace.integer_ids) == (ROWS, True, False)
    assert rows == [(f"job-{n}", n // 2, n % 7 + 0.5, n % 3 + 1) for n in range(ROWS)]
    assert [row[:4] for row in trace.rows()] == rows


def test_rows_out_of_order_are_sorted_by_time_and_equal_times_stay_as_written(path: Path) -> None:
    submit_s = (np.arange(ROWS) * 7919) % 50
    submit_s[0] = 0
    trace = open_trace(written(path, submit_s=submit_s))
    assert not trace.in_order
    expected = sorted(range(ROWS), key=lambda row: (submit_s[row], row))
    assert [job for job, *_ in trace.rows()] == [f"job-{row}" for row in expected]


def test_one_step_back_between_two_batches_is_seen(path: Path) -> None:
    submit_s = np.arange(ROWS)
    submit_s[BATCH_ROWS:] -= 1
    assert open_trace(written(path, submit_s=submit_s)).in_order  # equal times are in order
    submit_s[BATCH_ROWS:] -= 1
    assert not open_trace(written(path, submit_s=submit_s)).in_order


@pytest.mark.parametrize("shuffled", [False, True])
def test_one_part_of_a_trace_is_selected_in_every_batch(path: Path, shuffled: bool) -> None:
    submit_s = (np.arange(ROWS) * 7919) % 50 if shuffled else np.arange(ROWS)
    vc = [("x", "y", None)[row % 3] for row in range(ROWS)]
    file = written(path, submit_s=submit_s, vc=vc)
    whole = [*open_trace(file).rows()]
    for part in ("x", "y"):
        trace = open_trace(file, TraceOptions(vc=part))
        rows = [*trace.rows()]
        assert [row[:8] for row in rows] == [row[:8] for row in whole if row.vc == part]
        assert len(trace) == len(rows) == vc.count(part)


def test_part_that_only_one_batch_has_is_selected(path: Path) -> None:
    vc = ["x"] * ROWS
    vc[BATCH_ROWS + 7] = "y"
    trace = open_trace(written(path, vc=vc), TraceOptions(vc="y"))
    assert [row.job_id for row in trace.rows()] == [f"job-{BATCH_ROWS + 7}"]


def test_nulls_of_a_column_are_counted_over_all_batches(path: Path) -> None:
    user = [None if row % 1000 == 999 else "ada" for row in range(ROWS)]
    (problem,) = refused(written(path, user=user))
    assert problem.startswith(f"user: is null in {ROWS // 1000} of {ROWS} rows, first in row 999;")


def test_problems_name_rows_of_the_file_in_every_batch(path: Path) -> None:
    ids: list[str | None] = [f"job-{row}" for row in range(ROWS)]
    ids[BATCH_ROWS + 5], ids[2 * BATCH_ROWS + 1], ids[ROWS - 1] = "job-3", None, "job-3"
    gpus = np.ones(ROWS)
    gpus[[1, BATCH_ROWS, ROWS - 2]] = -1
    assert refused(written(path, job_id=ids, gpus=gpus)) == [
        f"job_id[{2 * BATCH_ROWS + 1}]: is null",
        f"job_id[{BATCH_ROWS + 5}]: 'job-3' is the id of row 3 too",
        f"job_id[{ROWS - 1}]: 'job-3' is the id of row 3 too",
        "gpus[1]: is negative (-1)",
        f"gpus[{BATCH_ROWS}]: is negative (-1)",
        f"gpus[{ROWS - 2}]: is negative (-1)",
    ]


def test_problems_of_one_kind_are_counted_over_all_batches(path: Path) -> None:
    said = refused(written(path, job_id=["same"] * ROWS))
    assert said[9] == "job_id[10]: 'same' is the id of row 0 too"
    assert said[10:] == [f"job_id: ... and {ROWS - 1 - 10} more like these"]


def test_ids_that_share_a_hash_are_no_duplicates(path: Path) -> None:
    ids = np.arange(ROWS)
    ids[:4] = (-1, -2, 2**61 - 1, 0)
    assert hash(-1) == hash(-2), "Python hashes these alike"
    ids[4:] += 10
    trace = open_trace(written(path, job_id=ids))
    assert trace.integer_ids
    assert [job for job, *_ in trace.rows()] == [str(job) for job in ids]


def test_file_that_was_replaced_since_its_check_is_refused(path: Path) -> None:
    trace: TraceFile = open_trace(written(path))
    written(path, duration_s=np.zeros(ROWS))
    with pytest.raises(SpecError, match="has changed since it was checked"):
        next(trace.rows())
