"""Sparse matrix times vector, in shards: the same as with the matrix written out."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.workloads.pipeline import cut, run_stage

from headgate.base.errors import SpecError
from headgate.workloads import sparse


@given(
    rows=st.integers(1, 9), columns=st.integers(1, 9), entries=st.integers(0, 40),
    shard_entries=st.integers(1, 40), seed=st.integers(0, 999),
)  # fmt: skip
def test_product_equals_that_of_the_dense_matrix(
    rows: int, columns: int, entries: int, shard_entries: int, seed: int
) -> None:
    """Also entries at the same place, in any order, and rows without any."""
    rng = np.random.default_rng(seed)
    data = np.empty(entries, sparse.ENTRY)
    data["row"], data["column"] = rng.integers(0, rows, entries), rng.integers(0, columns, entries)
    data["value"] = rng.normal(size=entries)
    matrix = np.zeros((rows, columns))
    for row, column, value in data.tolist():
        matrix[row, column] += value
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data.tofile(folder / "entries")
        reads = [[path] for path in cut(folder / "entries", shard_entries * 16)] or [
            [folder / "entries"]
        ]
        params = {"rows": rows, "columns": columns, "seed": seed}
        partial = run_stage(sparse.multiply, reads, folder, params)
        (result,) = run_stage(sparse.add, [partial], folder)
        found = np.load(result)
    np.testing.assert_allclose(found, matrix @ sparse.vector(seed, columns), rtol=0, atol=1e-12)


def test_vector_depends_on_seed_and_columns_alone() -> None:
    assert (sparse.vector(3, 100) == sparse.vector(3, 100)).all()
    assert (sparse.vector(3, 100) != sparse.vector(4, 100)).any()
    assert np.abs(sparse.vector(3, 10_000)).max() <= 1


@pytest.mark.parametrize(
    ("entry", "params", "message"),
    [
        ((2, 0, 1.0), {}, "there is no row 2; params.rows is 2"),
        ((-1, 0, 1.0), {}, "there is no row -1"),
        ((0, 3, 1.0), {}, "there is no column 3; params.columns is 3"),
        ((0, 0, 1.0), {"rows": None}, "params.rows"),
        ((0, 0, 1.0), {"columns": 0}, "params.columns"),
        ((0, 0, 1.0), {"seed": None}, "params.seed"),
    ],
)
def test_entries_and_parameters_that_do_not_fit_are_reported(
    tmp_path: Path, entry: tuple[int, int, float], params: dict[str, Any], message: str
) -> None:
    np.array([entry], sparse.ENTRY).tofile(tmp_path / "entries")
    params = {"rows": 2, "columns": 3, "seed": 1} | params
    with pytest.raises(SpecError, match=message):
        run_stage(sparse.multiply, [[tmp_path / "entries"]], tmp_path, params)


def test_a_shard_that_ends_inside_an_entry_is_reported(tmp_path: Path) -> None:
    (tmp_path / "entries").write_bytes(bytes(20))
    params = {"rows": 1, "columns": 1, "seed": 1}
    with pytest.raises(SpecError, match="multiple of 16 bytes"):
        run_stage(sparse.multiply, [[tmp_path / "entries"]], tmp_path, params)
