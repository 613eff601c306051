"""Blocks multiplied and strips added are the product, whatever the sizes.

Tolerance: each element is a sum of K products, whose rounding differs with the order of adding by
at most 2 K eps times the sum of the products' absolute values.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.workloads.pipeline import cut, run_in_parts, run_stage

from headgate.base.errors import SpecError
from headgate.workloads import matmul

Matrix = NDArray[Any]


def assert_product(found: Matrix, left: Matrix, right: Matrix) -> None:
    exact = left.astype(np.float64) @ right.astype(np.float64)
    size = np.abs(left).astype(np.float64) @ np.abs(right).astype(np.float64)
    assert found.shape == exact.shape
    assert found.dtype == left.dtype
    assert (np.abs(found - exact) <= 2 * left.shape[1] * np.finfo(left.dtype).eps * size).all()


def added(products: list[Path], strips: int, folder: Path) -> Matrix:
    results = run_stage(matmul.add, [products] * strips, folder)
    return np.concatenate([np.load(path) for path in results])


@given(
    rows=st.integers(1, 9), inner=st.integers(1, 12), columns=st.integers(1, 9),
    block=st.integers(1, 5), strips=st.integers(1, 11),
    dtype=st.sampled_from(["float32", "float64"]), seed=st.integers(0, 99),
)  # fmt: skip
def test_product_of_raw_blocks_equals_numpys(
    rows: int, inner: int, columns: int, block: int, strips: int, dtype: str, seed: int
) -> None:
    """Also strips without rows, uneven strips, and a last block smaller than the others."""
    rng = np.random.default_rng(seed)
    left = rng.uniform(-1, 1, (rows, inner)).astype(dtype)
    right = rng.uniform(-1, 1, (inner, columns)).astype(dtype)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "left").write_bytes(left.tobytes(order="F"))
        (folder / "right").write_bytes(right.tobytes())
        blocks = [
            cut(folder / "left", block * rows * left.itemsize),
            cut(folder / "right", block * columns * right.itemsize),
        ]
        params = {"rows": rows, "columns": columns, "dtype": dtype}
        products = run_stage(matmul.multiply, list(zip(*blocks, strict=True)), folder, params)
        assert_product(added(products, strips, folder), left, right)
        parts = run_in_parts(
            matmul.multiply, list(zip(*blocks, strict=True)), folder, strips, params
        )
        of_parts = run_stage(matmul.add_strips, parts, folder)
        assert_product(np.concatenate([np.load(path) for path in of_parts]), left, right)


@given(
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=4), strips=st.integers(1, 5),
)  # fmt: skip
def test_product_of_npy_blocks_equals_numpys(sizes: list[int], strips: int) -> None:
    """Also blocks without any column; the shapes come from the files."""
    rng = np.random.default_rng(sum(sizes))
    left, right = rng.uniform(-1, 1, (3, sum(sizes))), rng.uniform(-1, 1, (sum(sizes), 5))
    cuts = np.cumsum(sizes)[:-1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pairs = []
        parts = zip(np.split(left, cuts, axis=1), np.split(right, cuts), strict=True)
        for number, pair in enumerate(parts):
            pairs.append([folder / f"left{number}.npy", folder / f"right{number}.npy"])
            for path, part in zip(pairs[-1], pair, strict=True):
                np.save(path, part)
        products = run_stage(matmul.multiply, pairs, folder)
        assert_product(added(products, strips, folder), left, right)


def test_an_empty_raw_block_adds_nothing(tmp_path: Path) -> None:
    pair = [tmp_path / "left", tmp_path / "right"]
    for path in pair:
        path.touch()
    (product,) = run_stage(matmul.multiply, [pair], tmp_path, {"rows": 2, "columns": 3})
    assert np.load(product).tolist() == [[0.0] * 3] * 2


def test_products_in_parts_are_read_once(tmp_path: Path) -> None:
    """The parts of a result have the size of the whole, so each number is read by one task."""
    np.save(tmp_path / "block.npy", np.arange(49.0).reshape(7, 7))
    pair = [tmp_path / "block.npy"] * 2
    (whole,) = run_stage(matmul.multiply, [pair], tmp_path)
    parts = run_in_parts(matmul.multiply, [pair], tmp_path, 3)
    assert [np.load(path).shape for (path,) in parts] == [(2, 7), (2, 7), (3, 7)]
    assert (np.concatenate([np.load(path) for (path,) in parts]) == np.load(whole)).all()


def test_the_same_blocks_give_the_same_bytes(tmp_path: Path) -> None:
    pair = [tmp_path / "left.npy", tmp_path / "right.npy"]
    for path in pair:
        np.save(path, np.eye(3))
    first, second = run_stage(matmul.multiply, [pair, pair], tmp_path)
    assert first.read_bytes() == second.read_bytes()


@given(count=st.integers(1, 12), rows=st.integers(0, 30))
def test_strips_cover_every_row_once_and_evenly(count: int, rows: int) -> None:
    strips = [matmul.strip(index, count, rows) for index in range(count)]
    assert [row for part in strips for row in range(rows)[part]] == list(range(rows))
    sizes = [part.stop - part.start for part in strips]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("sizes", "params", "message"),
    [
        ([8], {"rows": 1, "columns": 1}, "one of B are needed, here are 1"),
        ([8, 8], {"columns": 1}, "params.rows"),
        ([8, 8], {"rows": 1}, "params.columns"),
        ([8, 8], {"rows": "1", "columns": 1}, "params.rows"),
        ([8, 8], {"rows": 0, "columns": 1}, "params.rows"),
        ([8, 8], {"rows": 1, "columns": 1, "dtype": "int8"}, "float32 or float64"),
        ([24, 8], {"rows": 2, "columns": 1}, "multiple of 16 bytes"),
        ([16, 8], {"rows": 1, "columns": 1}, "has 2 columns, the one of B 1 rows"),
    ],
)
def test_blocks_and_parameters_that_do_not_fit_are_reported(
    tmp_path: Path, sizes: list[int], params: dict[str, Any], message: str
) -> None:
    shards = []
    for number, size in enumerate(sizes):
        shards.append(tmp_path / f"{number}")
        shards[-1].write_bytes(bytes(size))
    with pytest.raises(SpecError, match=message):
        run_stage(matmul.multiply, [shards], tmp_path, params)


def test_an_npy_block_that_is_no_matrix_is_reported(tmp_path: Path) -> None:
    np.save(tmp_path / "block.npy", np.zeros(3))
    with pytest.raises(SpecError, match="1 dimensions"):
        run_stage(matmul.multiply, [[tmp_path / "block.npy"] * 2], tmp_path)
