"""A job history is read unchanged, or every problem of it is reported."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import SpecError
from headgate.traces import TraceOptions, read_trace

GOOD: dict[str, list[Any]] = {
    "job_id": ["b", "a", "c"],
    "submit_s": [0.0, 5.5, 5.5],
    "duration_s": [10.0, 0.0, 7.25],
    "gpus": [1.0, 0.46, 8.0],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.parquet"


def problems(path: Path, options: TraceOptions | None = None) -> list[str]:
    """Return the problems that the reader reports, without the file's name."""
    with pytest.raises(SpecError) as refused:
        read_trace(path, options)
    assert refused.value.code == "bad_trace"
    assert all(problem.path.startswith(str(path)) for problem in refused.value.problems)
    return [str(problem).removeprefix(f"{path}:").strip() for problem in refused.value.problems]


def problems_of(path: Path, **columns: Any) -> list[str]:
    pq.write_table(pa.table(GOOD | columns), path)
    return problems(path)


# ---------------------------------------------------------------------------- what is read


def test_columns_are_read_unchanged(path: Path) -> None:
    pq.write_table(pa.table({"vc": ["x", None, "y"]} | GOOD), path)
    trace = read_trace(path)
    assert len(trace) == 3
    assert trace.job_id.tolist() == ["b", "a", "c"]
    assert trace.submit_s.tolist() == [0.0, 5.5, 5.5]
    assert trace.duration_s.tolist() == [10.0, 0.0, 7.25]
    assert trace.gpus.tolist() == [1, 1, 8]
    assert (trace.submit_s.dtype, trace.gpus.dtype) == (np.float64, np.int64)


def test_whole_numbers_and_many_row_groups_are_fine(path: Path) -> None:
    table = pa.table(
        {
            "job_id": pa.array(range(100), pa.int32()),
            "submit_s": pa.array(range(100), pa.uint64()),
            "duration_s": pa.array([2] * 100, pa.int8()),
            "gpus": pa.array([4] * 100, pa.float32()),
        }
    )
    pq.write_table(table, path, row_group_size=7)
    trace = read_trace(path)
    assert trace.job_id.dtype == np.int32
    assert trace.job_id.tolist() == list(range(100))
    assert trace.submit_s.tolist() == list(range(100))
    assert set(trace.gpus.tolist()) == {4}


def test_the_example_is_a_trace() -> None:
    trace = read_trace(Path(__file__).parents[2] / "examples" / "philly-500.parquet")
    assert len(trace) == 500
    assert trace.job_id[0] == "philly-31566"
    assert (np.diff(trace.submit_s) >= 0).all()


@given(
    rows=st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1e9), st.floats(0, 1e6)), min_size=1),
    ids=st.randoms(use_true_random=False),
)
def test_a_valid_trace_is_read_in_its_order(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[float, float, float]], ids: Any
) -> None:
    path = tmp_path_factory.mktemp("trace") / "jobs.parquet"
    names = [f"job-{number}" for number in range(len(rows))]
    ids.shuffle(names)
    submit_s, duration_s, gpus = (list(column) for column in zip(*rows, strict=True))
    columns = {"job_id": names, "submit_s": submit_s, "duration_s": duration_s, "gpus": gpus}
    pq.write_table(pa.table(columns), path)
    trace = read_trace(path)
    assert trace.job_id.tolist() == names
    assert trace.submit_s.tolist() == submit_s
    assert trace.duration_s.tolist() == duration_s
    assert trace.gpus.tolist() == [math.ceil(need) for need in gpus]


def test_optional_columns_are_read_as_text(path: Path) -> None:
    columns = {
        "user": pa.array(["ada", "bob", "ada"], pa.large_string()),
        "queue": pa.array([7, 8, 7], pa.int16()),
        "kind": pa.array(["bert", "vgg", "bert"]).dictionary_encode(),
        "vc": pa.array([1, None, 1]).dictionary_encode(),
        "estimate_s": [0.0, -1.0, None],  # not read
    }
    pq.write_table(pa.table(GOOD | columns), path)
    assert [row[4:8] for row in read_trace(path).rows()] == [
        ("ada", "7", "bert", "1"),
        ("bob", "8", "vgg", ""),
        ("ada", "7", "bert", "1"),
    ]
    assert read_trace(path).estimate_s is None


@pytest.mark.parametrize("kind", [pa.string(), pa.float64(), pa.null(), pa.list_(pa.int8())])
def test_optional_columns_without_any_value_count_as_missing(path: Path, kind: pa.DataType) -> None:
    names = ("user", "queue", "kind", "vc", "estimate_s")
    pq.write_table(pa.table(GOOD | {name: pa.nulls(3, kind) for name in names}), path)
    trace = read_trace(path)
    assert [trace.user, trace.queue, trace.kind, trace.vc, trace.estimate_s] == [None] * 5
    assert {row[4:8] for row in trace.rows()} == {("", "", "", "")}


def test_declared_estimates_are_read_where_they_are_needed(path: Path) -> None:
    pq.write_table(pa.table(GOOD | {"estimate_s": [60, 1, 3600]}), path)
    trace = read_trace(path, TraceOptions(declared=True))
    assert [row.estimate_s for row in trace.rows()] == [60.0, 1.0, 3600.0]


@pytest.mark.parametrize("name", ["vc", "user", "kind", "job_id"])
def test_any_column_of_text_can_name_the_queues(path: Path, name: str) -> None:
    columns: dict[str, list[Any]] = {"user": ["u", "v", "w"], "kind": [1, 2, 3]}
    every = GOOD | columns | {"vc": ["x", "y", "x"], "queue": [1.5, None, 2.5]}
    pq.write_table(pa.table(every), path)
    rows = [*read_trace(path, TraceOptions(queue_column=name)).rows()]
    assert [row.queue for row in rows] == [str(value) for value in every[name]]
    assert [row.user for row in rows] == ["u", "v", "w"]


# ---------------------------------------------------------------------------- wrong files


def test_a_missing_file_is_reported(path: Path) -> None:
    with pytest.raises(SpecError, match="no such file") as refused:
        read_trace(path)
    assert refused.value.code == "missing_file"


def test_a_directory_is_reported(tmp_path: Path) -> None:
    (said,) = problems(tmp_path)
    assert "name a file" in said


def test_a_file_of_another_format_is_reported(path: Path) -> None:
    for content in (b"", b"job_id,submit_s\n1,2\n", b"PAR1" + bytes(500) + b"PAR1"):
        path.write_bytes(content)
        (said,) = problems(path)
        assert "not readable as Parquet" in said


@given(data=st.data())
def test_a_truncated_file_is_reported(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("trace") / "jobs.parquet"
    pq.write_table(pa.table(GOOD), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    (said,) = problems(path)
    assert "is it whole?" in said


@given(data=st.data())
def test_a_damaged_file_is_read_or_rejected(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("trace") / "jobs.parquet"
    pq.write_table(pa.table(GOOD), path, write_page_checksum=True)
    spoilt = bytearray(path.read_bytes())
    spoilt[data.draw(st.integers(0, len(spoilt) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(bytes(spoilt))
    try:
        trace = read_trace(path)
    except SpecError as refused:
        outcome = refused.code
    else:
        outcome = f"{len(trace)} jobs"
    assert outcome in ("bad_trace", "3 jobs")


def test_an_empty_trace_is_reported(path: Path) -> None:
    pq.write_table(pa.table(GOOD).slice(0, 0), path)
    assert problems(path) == ["has no jobs; one row is one job"]


# ---------------------------------------------------------------------------- wrong columns


def test_missing_columns_are_reported_with_the_nearest_names(path: Path) -> None:
    pq.write_table(pa.table({"jobid": ["a"], "submit_s": [1.0], "gpus": [1], "length": [2]}), path)
    assert problems(path) == [
        "job_id: column missing; did you mean 'jobid'?",
        "duration_s: column missing; known: gpus, jobid, length, submit_s",
    ]


def test_columns_of_wrong_types_are_reported(path: Path) -> None:
    said = problems_of(
        path,
        job_id=[1.5, 2.5, 3.5],
        submit_s=pa.array([0, 1, 2], pa.timestamp("ms")),
        duration_s=["1", "2", "3"],
        gpus=[True, False, True],
    )
    assert said == [
        "job_id: is double, not text or an integer; write it as a string",
        "submit_s: is timestamp[ms], not a number; write it as a double, in seconds",
        "duration_s: is string, not a number; write it as a double, in seconds",
        "gpus: is bool, not a number; write it as a double",
    ]


def test_a_duplicate_column_is_reported(path: Path) -> None:
    columns = [*GOOD.values(), [1.0, 2.0, 3.0]]
    pq.write_table(pa.table([pa.array(c) for c in columns], [*GOOD, "gpus"]), path)
    assert problems(path) == ["gpus: 2 columns have this name; keep one"]


@pytest.mark.parametrize("name", ["user", "queue", "kind"])
def test_optional_column_with_some_values_only_is_reported(path: Path, name: str) -> None:
    assert problems_of(path, **{name: ["x", None, "y"]}) == [
        f"{name}: is null in 1 of 3 rows, first in row 1; fill in all rows, or leave out the column"
    ]


@pytest.mark.parametrize("name", ["user", "queue", "kind"])
def test_optional_column_of_another_type_is_reported(path: Path, name: str) -> None:
    assert problems_of(path, **{name: [0.5, None, 2.0]}) == [
        f"{name}: is double, not text or an integer; write it as a string"
    ]


def test_duplicate_optional_column_is_reported(path: Path) -> None:
    columns = [*GOOD.values(), ["a", "b", "c"], ["a", "b", "c"]]
    pq.write_table(pa.table([pa.array(c) for c in columns], [*GOOD, "user", "user"]), path)
    assert problems(path) == ["user: 2 columns have this name; keep one"]


@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        (
            {"vc": ["x", "y", "y"]},
            TraceOptions(queue_column="vvc"),
            "vvc: column missing, named as that of the queues; did you mean 'vc'?",
        ),
        (
            {"vc": ["x", None, "y"]},
            TraceOptions(queue_column="vc"),
            "vc: is null in 1 of 3 rows, first in row 1; fill in all rows, or leave out the column",
        ),
        (
            {"vc": pa.nulls(3, pa.string())},
            TraceOptions(queue_column="vc"),
            "vc: is null in every row; name a column with values",
        ),
        (
            {},
            TraceOptions(queue_column="gpus"),
            "gpus: is double, not text or an integer; write it as a string",
        ),
        (
            {},
            TraceOptions(vc="x"),
            "vc: column missing, needed to select 'x'; known: duration_s, gpus, job_id, submit_s",
        ),
        (
            {"vc": ["cluster01", None, "cluster02"]},
            TraceOptions(vc="clustre02"),
            "vc: no row has 'clustre02'; did you mean 'cluster02'?",
        ),
        (
            {"vc": [0.5, 1.5, 2.5]},
            TraceOptions(vc="0.5"),
            "vc: is double, not text or an integer; write it as a string",
        ),
        (
            {},
            TraceOptions(declared=True),
            "estimate_s: column missing, needed for declared estimates; use exact or learnt ones",
        ),
    ],
)
def test_column_that_an_option_needs_is_reported(
    path: Path, columns: dict[str, Any], options: TraceOptions, expected: str
) -> None:
    pq.write_table(pa.table(GOOD | columns), path)
    assert problems(path, options) == [expected]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "is null"),
        (math.nan, "is not a number (NaN)"),
        (math.inf, "is infinite"),
        (-2.0, "is negative (-2)"),
        (0.0, "is 0; an estimate is longer than that"),
    ],
)
def test_wrong_declared_estimate_is_reported(path: Path, value: float | None, words: str) -> None:
    pq.write_table(pa.table(GOOD | {"estimate_s": [1.0, value, 3.0]}), path)
    assert problems(path, TraceOptions(declared=True)) == [f"estimate_s[1]: {words}"]


def test_problems_of_all_columns_and_options_are_reported_together(path: Path) -> None:
    columns = {"user": ["a", None, "b"], "vc": [1, 2, 3], "estimate_s": [1.0, 0.0, 2.0]}
    pq.write_table(pa.table(GOOD | columns | {"gpus": [1.0, -1.0, 1.0]}), path)
    found = problems(path, TraceOptions(queue_column="part", vc="4", declared=True))
    assert [problem.split(":")[0] for problem in found] == [
        "part", "user", "vc", "gpus[1]", "estimate_s[1]",
    ]  # fmt: skip


# ---------------------------------------------------------------------------- wrong rows


def test_all_problems_are_reported_together(path: Path) -> None:
    said = problems_of(
        path,
        job_id=["a", None, "a"],
        submit_s=[None, -1.0, math.nan],
        duration_s=["long", "short", "long"],
        gpus=[math.inf, 2e6, -0.5],
    )
    assert said == [
        "duration_s: is string, not a number; write it as a double, in seconds",
        "job_id[1]: is null",
        "job_id[2]: 'a' is the id of row 0 too",
        "submit_s[0]: is null",
        "submit_s[2]: is not a number (NaN)",
        "submit_s[1]: is negative (-1)",
        "gpus[0]: is infinite",
        "gpus[2]: is negative (-0.5)",
        "gpus[1]: is 2e+06; one job may have 1000000 GPUs at most",
    ]


@pytest.mark.parametrize("name", ["submit_s", "duration_s", "gpus"])
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf, -1.0, -1e-9])
def test_a_wrong_number_is_reported(path: Path, name: str, value: float | None) -> None:
    (said,) = problems_of(path, **{name: [1.0, 1.0, value]})
    assert said.startswith(f"{name}[2]: is ")


@pytest.mark.parametrize("name", ["submit_s", "duration_s"])
def test_time_that_is_too_large_to_add_up_is_reported(path: Path, name: str) -> None:
    said = problems_of(path, **{name: [0.0, 1e15, 1e308]})
    assert said == [f"{name}[2]: is 1e+308; times are at most 1e+15 s"]


def test_integer_columns_are_checked(path: Path) -> None:
    said = problems_of(path, gpus=[1, -2, None], job_id=[7, 7, 7])
    assert said == [
        "job_id[1]: '7' is the id of row 0 too",
        "job_id[2]: '7' is the id of row 0 too",
        "gpus[2]: is null",
        "gpus[1]: is negative (-2)",
    ]


def test_many_problems_of_one_kind_are_counted(path: Path) -> None:
    columns = {name: values * 10 for name, values in GOOD.items()}
    columns |= {"job_id": list(range(30)), "gpus": [-1.0] * 30}
    pq.write_table(pa.table(columns), path)
    said = problems(path)
    assert said[:2] == ["gpus[0]: is negative (-1)", "gpus[1]: is negative (-1)"]
    assert said[10:] == ["gpus: ... and 20 more like these"]
