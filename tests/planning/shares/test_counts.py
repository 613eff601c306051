"""Columns that do not match are rejected before anything is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headgate.planning._native import recount, recount_idle

COLUMNS: dict[str, Any] = {
    "row": np.array([3, 4]),
    "state": np.array([0, 1], np.uint8),
    "gpus_milli": np.array([1000, 1000]),
    "job": np.array([0, 1], np.int32),
}
CHANGED = COLUMNS | {
    "before": np.array([1, 1], np.uint8),
    "multi_gpu": np.array([False, True]),
    "types": np.array([0, 0]),
    "flags": np.array([3, 0], np.uint8),
    "index": np.array([0, -1]),
}
IDLE = COLUMNS | {
    "key": np.array([7]),
    "count": np.array([2]),
    "runtime_class": np.array([1, 1], np.int32),
    "progress_s": np.zeros(2),
    "was_fresh": np.zeros(2, bool),
    "idle": np.array([True, True]),
    "classes": 10,
}
EACH, STATE, JOB = "not one value for each task", "no such state", "no such job"


def test_matching_columns_are_counted() -> None:
    table = np.zeros((1, 8), np.int64)
    waits = [column.tolist() for column in recount(**CHANGED, table=table)]
    assert (waits, table.tolist()) == ([[3], [0], [0], []], [[1, 0, 1, 0, 0, 0, 0, 0]])
    idle = [column.tolist() for column in recount_idle(**IDLE)]
    assert idle == [[1, 7, 11], [1000, 2, 1000], []]


def test_multi_gpu_tasks_are_counted_in_thousandths_of_gpus() -> None:
    table = np.zeros((1, 8), np.int64)
    multi_gpu = {"multi_gpu": np.array([True, True]), "gpus_milli": np.array([2500, 1000])}
    waits = [column.tolist() for column in recount(**CHANGED | multi_gpu, table=table)]
    assert (waits, table.tolist()) == ([[], [], [], []], [[0, 0, 0, 0, 2500, 0, 2500, 0]])


@pytest.mark.parametrize(
    ("name", "bad", "why"),
    [
        ("row", np.array([3]), EACH),
        ("before", np.array([1], np.uint8), EACH),
        ("types", np.array([0, 0, 0]), EACH),
        ("types", np.array([0, 2]), "no such type"),
        ("types", np.array([-1, 0]), "no such type"),
        ("multi_gpu", np.array([True]), EACH),
        ("state", np.array([0, 2], np.uint8), STATE),
        ("before", np.array([9, 0], np.uint8), STATE),
        ("job", np.array([0, 2], np.int32), JOB),
        ("job", np.array([-1, 0], np.int32), JOB),
        ("index", np.array([1, 0]), "a job is not in the table"),
    ],
)
def test_changed_tasks_that_do_not_match_are_rejected(name: str, bad: Any, why: str) -> None:
    table = np.zeros((1, 8), np.int64)
    with pytest.raises(ValueError, match=why):
        recount(**CHANGED | {name: bad}, table=table)
    with pytest.raises(ValueError, match="no such table"):
        recount(**CHANGED, table=np.zeros((1, 7), np.int64))
    assert not table.any()


@pytest.mark.parametrize(
    ("name", "bad", "why"),
    [
        ("runtime_class", np.array([1], np.int32), EACH),
        ("runtime_class", np.array([1, 10], np.int32), "no such runtime class"),
        ("runtime_class", np.array([-1, 1], np.int32), "no such runtime class"),
        ("was_fresh", np.zeros(3, bool), EACH),
        ("idle", np.array([True]), STATE),
        ("job", np.array([0, -1], np.int32), JOB),
        ("count", np.array([1, 2]), "not one count for each key"),
    ],
)
def test_idle_tasks_that_do_not_match_are_rejected(name: str, bad: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        recount_idle(**IDLE | {name: bad})
