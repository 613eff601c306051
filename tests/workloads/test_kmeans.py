"""k-means over shards, with the update as a task of its own, is Lloyd's algorithm on the whole."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.workloads.pipeline import cut, run_stage

from headgate.base.errors import SpecError
from headgate.workloads import kmeans

Array = NDArray[Any]


def lloyd(vectors: Array, centroids: Array) -> Array:
    """Return the centroids after one iteration, vector by vector, as in the textbook."""
    groups: list[list[Array]] = [[] for _ in centroids]
    for vector in vectors.astype(np.float64):
        groups[int(np.argmin([np.sum((vector - c) ** 2) for c in centroids]))].append(vector)
    return np.array(
        [np.mean(g, axis=0) if g else c for g, c in zip(groups, centroids, strict=True)]
    )


def iterate(shards: list[Path], folder: Path, params: dict[str, int], iterations: int) -> Path:
    """Run assign and update alternately, as a job does."""
    centroids: list[Path] = []
    for number in range(iterations):
        place = folder / f"iteration{number}"
        place.mkdir()
        reads = [[shard, *centroids] for shard in shards]
        partial = run_stage(kmeans.assign, reads, place, params)
        centroids = run_stage(kmeans.update, [partial], place)
    return centroids[0]


@given(
    vectors=st.integers(1, 30), dims=st.integers(1, 6), clusters=st.integers(1, 8),
    shard_vectors=st.integers(1, 30), iterations=st.integers(1, 4), seed=st.integers(0, 999),
)  # fmt: skip
def test_iterations_equal_lloyds_algorithm(
    vectors: int, dims: int, clusters: int, shard_vectors: int, iterations: int, seed: int
) -> None:
    """Also more clusters than vectors, and shards read in pieces."""
    data = np.random.default_rng(seed).normal(size=(vectors, dims)).astype("<f4")
    params = {"dims": dims, "clusters": clusters, "seed": seed}
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(kmeans, "_PIECE_VALUES", 10)
        folder = Path(name)
        data.tofile(folder / "vectors")
        shards = cut(folder / "vectors", shard_vectors * dims * 4)
        found = np.load(iterate(shards, folder, params, iterations))
    right = kmeans.first_centroids(seed, clusters, dims)
    for _ in range(iterations):
        right = lloyd(data, right)
    np.testing.assert_allclose(found, right, rtol=0, atol=1e-12)


def test_a_centroid_without_vectors_is_unchanged(tmp_path: Path) -> None:
    np.array([[1, 0], [3, 0]], "<f4").tofile(tmp_path / "vectors")
    np.save(tmp_path / "centroids.npy", np.array([[2.0, 1.0], [-50.0, 7.0]]))
    reads = [[tmp_path / "vectors", tmp_path / "centroids.npy"]]
    partial = run_stage(kmeans.assign, reads, tmp_path, {"dims": 2, "clusters": 2})
    (result,) = run_stage(kmeans.update, [partial], tmp_path)
    assert np.load(result).tolist() == [[2.0, 0.0], [-50.0, 7.0]]


def test_an_empty_shard_adds_nothing(tmp_path: Path) -> None:
    (tmp_path / "vectors").touch()
    params = {"dims": 3, "clusters": 2, "seed": 1}
    partial = run_stage(kmeans.assign, [[tmp_path / "vectors"]], tmp_path, params)
    (result,) = run_stage(kmeans.update, [partial], tmp_path)
    assert (np.load(result) == kmeans.first_centroids(1, 2, 3)).all()


def test_first_centroids_spread_data_at_any_scale() -> None:
    data = np.random.default_rng(1).normal(size=(4_000, 50))
    first = kmeans.first_centroids(7, 8, 50)
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1)
    nearest = [np.argmin(((scale * data[:, None] - first) ** 2).sum(2), axis=1)
               for scale in (1e-3, 1.0, 1e3)]  # fmt: skip
    assert (nearest[0] == nearest[1]).all()
    assert (nearest[1] == nearest[2]).all()
    assert np.bincount(nearest[0], minlength=8).min() > 4_000 / 8 / 4


def test_equal_inputs_give_equal_bytes(tmp_path: Path) -> None:
    np.random.default_rng(1).normal(size=(9, 4)).astype("<f4").tofile(tmp_path / "vectors")
    params = {"dims": 4, "clusters": 3, "seed": 1}
    one, other = run_stage(kmeans.assign, [[tmp_path / "vectors"]] * 2, tmp_path, params)
    assert one.read_bytes() == other.read_bytes()


# -------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dims": None}, "params.dims"),
        ({"clusters": 0}, "params.clusters"),
        ({"seed": -1}, "params.seed"),
        ({"seed": "x"}, "params.seed"),
        ({"dims": 3}, "multiple of 12 bytes"),
    ],
)
def test_wrong_parameters_are_reported(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    (tmp_path / "vectors").write_bytes(bytes(16))
    params = {"dims": 2, "clusters": 2, "seed": 1} | change
    with pytest.raises(SpecError, match=message):
        run_stage(kmeans.assign, [[tmp_path / "vectors"]], tmp_path, params)


def test_centroids_of_another_shape_are_reported(tmp_path: Path) -> None:
    (tmp_path / "vectors").write_bytes(bytes(16))
    np.save(tmp_path / "c.npy", np.zeros((3, 2)))
    params = {"dims": 2, "clusters": 2, "seed": 1}
    files = [tmp_path / "vectors", tmp_path / "c.npy"]
    with pytest.raises(SpecError, match=r"of shape \(3, 2\), not \(2, 2\)"):
        run_stage(kmeans.assign, [files], tmp_path, params)
    with pytest.raises(SpecError, match="here are 3"):
        run_stage(kmeans.assign, [[*files, files[1]]], tmp_path, params)


def test_partial_results_of_different_iterations_are_reported(tmp_path: Path) -> None:
    (tmp_path / "vectors").write_bytes(bytes(16))
    np.save(tmp_path / "c.npy", np.zeros((2, 2)))
    reads = [[tmp_path / "vectors"], [tmp_path / "vectors", tmp_path / "c.npy"]]
    params = {"dims": 2, "clusters": 2, "seed": 1}
    partial = run_stage(kmeans.assign, reads, tmp_path, params)
    with pytest.raises(SpecError, match="starts from other centroids"):
        run_stage(kmeans.update, [partial], tmp_path)
