"""Results of each workload on generated inputs verify; wrong results do not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.workloads.pipeline import cut, run_in_parts, run_stage

from headgate.base.errors import SpecError
from headgate.workloads import detection, kmeans, matmul, occurrence, primes, sort, sparse
from headgate.workloads import generate as generating
from headgate.workloads.counts import Counts, read_counts, write_counts
from headgate.workloads.detection import BoundingBoxes, read_boxes, write_boxes
from headgate.workloads.generate import Inputs, generate
from headgate.workloads.verify import verify

# Each workload with the size of one record in bytes.
LEAST = {
    "detection": 16_384, "kmeans": 4, "matmul": 16, "occurrence": 8, "primes": 8, "sort": 20,
    "sparse": 16,
}  # fmt: skip
WORKLOADS = tuple(LEAST)
STAGES = {
    "detection": (detection.detect, detection.merge),
    "occurrence": (occurrence.count, occurrence.merge),
    "primes": (primes.find, primes.merge),
    "sparse": (sparse.multiply, sparse.add),
}


def finish(inputs: Inputs, shards: int, folder: Path) -> list[Path]:
    """Run the workload over `shards` shards; a matrix product or a sort with as many parts."""
    reads = [cut(path, inputs.shard_bytes(shards)) for path in inputs.files.values()]
    together = list(zip(*reads, strict=True))
    if inputs.workload == "matmul":
        products = run_in_parts(matmul.multiply, together, folder, len(together), inputs.params)
        return run_stage(matmul.add_strips, products, folder)
    if inputs.workload == "sort":
        ranges = run_in_parts(sort.sort_part, together, folder, len(together), inputs.params)
        return run_stage(sort.merge_range, ranges, folder)
    if inputs.workload == "kmeans":
        centroids: list[Path] = []
        for _ in range(inputs.params["iterations"]):
            assigned = [(*shard, *centroids) for shard in together]
            partial = run_stage(kmeans.assign, assigned, folder, inputs.params)
            centroids = run_stage(kmeans.update, [partial], folder)
        return centroids
    first, last = STAGES[inputs.workload]
    partial = run_stage(first, together, folder, inputs.params)
    return run_stage(last, [partial], folder)


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize(("size_bytes", "shards"), [(1, 1), (100_000, 1), (200_000, 7)])
def test_a_workload_verifies_from_end_to_end(
    tmp_path: Path, workload: str, size_bytes: int, shards: int
) -> None:
    inputs = generate(workload, tmp_path, max(size_bytes, LEAST[workload]), seed=1)
    assert verify(inputs, finish(inputs, shards, tmp_path)) == ""


@pytest.mark.parametrize("workload", WORKLOADS)
def test_inputs_depend_on_size_and_seed_alone(tmp_path: Path, workload: str) -> None:
    written = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        (tmp_path / name).mkdir()
        inputs = generate(workload, tmp_path / name, 50_000, seed=seed)
        written.append([path.read_bytes() for path in inputs.files.values()])
        assert 0.95 * 50_000 <= sum(map(len, written[-1])) <= 50_000
    assert written[0] == written[1]
    assert written[0] != written[2]


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("shards", [1, 3, 8, 1000])
def test_shards_hold_whole_lines(tmp_path: Path, workload: str, shards: int) -> None:
    inputs = generate(workload, tmp_path, 30_000, seed=3)
    shard_bytes = inputs.shard_bytes(shards)
    assert shard_bytes % inputs.line_bytes == 0
    for path in inputs.files.values():
        lines = path.stat().st_size // inputs.line_bytes
        assert -(-path.stat().st_size // shard_bytes) <= min(shards, lines)


def test_inputs_are_written_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generating, "_PIECE_VALUES", 10)
    inputs = generate("occurrence", tmp_path, 8 * 25, seed=1)
    integers = np.fromfile(inputs.files["ints"], "<i8")
    assert integers.size == 25
    assert len(set(integers[:10].tolist()) & set(integers[10:20].tolist())) < 10


def test_unknown_workload_or_small_size_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="did you mean 'primes'"):
        generate("prime", tmp_path, 100, seed=1)
    for workload in WORKLOADS:
        with pytest.raises(SpecError, match="too few"):
            generate(workload, tmp_path, LEAST[workload] - 1, seed=1)


@pytest.mark.parametrize("workload", ["occurrence", "primes"])
@pytest.mark.parametrize("harm", ["count", "value", "missing"])
def test_a_wrong_table_fails_verification(tmp_path: Path, workload: str, harm: str) -> None:
    inputs = generate(workload, tmp_path, 80_000, seed=1)
    (result,) = finish(inputs, 3, tmp_path)
    values, counts = read_counts(result)
    if harm == "count":
        counts[5] += 1
    elif harm == "value":
        values[5] += 1
    else:
        values, counts = values[1:], counts[1:]
    write_counts(result, Counts(values, counts))
    assert verify(inputs, [result]) != ""
    assert verify(inputs, [result, result]) == "one result is expected, here are 2"


@pytest.mark.parametrize("harm", ["element", "not a number", "order", "missing"])
def test_a_wrong_product_fails_verification(tmp_path: Path, harm: str) -> None:
    inputs = generate("matmul", tmp_path, 50_000, seed=1)
    results = finish(inputs, 4, tmp_path)
    assert verify(inputs, results) == ""
    part = np.load(results[1])
    if harm == "order":
        results[0], results[1] = results[1], results[0]
    elif harm == "missing":
        del results[1]
    else:
        part[2, 3] = part[2, 3] + 1e-9 if harm == "element" else np.nan
        with results[1].open("wb") as file:
            np.save(file, part)
    assert verify(inputs, results) != ""


def test_products_added_whole_verify(tmp_path: Path) -> None:
    inputs = generate("matmul", tmp_path, 50_000, seed=1)
    reads = [cut(path, inputs.shard_bytes(3)) for path in inputs.files.values()]
    products = run_stage(matmul.multiply, list(zip(*reads, strict=True)), tmp_path, inputs.params)
    assert verify(inputs, run_stage(matmul.add, [products] * 4, tmp_path)) == ""


def harm_order(path: Path) -> None:
    """Exchange two records of different keys."""
    records = np.fromfile(path, "V20")
    records[[3, -1]] = records[[-1, 3]]
    records.tofile(path)


def harm_stability(path: Path) -> None:
    """Exchange two records of equal keys."""
    records = np.fromfile(path, "S20")
    keys = records.astype("S4")
    place = int(np.flatnonzero(keys[1:] == keys[:-1])[0])
    records[[place, place + 1]] = records[[place + 1, place]]
    records.tofile(path)


@pytest.mark.parametrize("harm", [harm_order, harm_stability])
def test_a_wrong_order_fails_verification(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    inputs = generate("sort", tmp_path, 200_000, seed=1)
    # Few keys, so that some are equal.
    few = np.fromfile(inputs.files["records"], np.uint8).reshape(-1, 20)
    few[:, :4] = few[:, :4] // 8 * 8
    few.tofile(inputs.files["records"])
    results = finish(inputs, 3, tmp_path)
    assert verify(inputs, results) == ""
    assert "bytes" in verify(inputs, results[:-1])
    assert "belongs there" in verify(inputs, [results[1], results[0], results[2]])
    harm(results[1])
    assert "belongs there" in verify(inputs, results)


@pytest.mark.parametrize("workload", ["kmeans", "sparse"])
@pytest.mark.parametrize("harm", ["number", "not a number", "order", "missing"])
def test_wrong_numbers_fail_verification(tmp_path: Path, workload: str, harm: str) -> None:
    inputs = generate(workload, tmp_path, 60_000, seed=1)
    (result,) = finish(inputs, 3, tmp_path)
    assert verify(inputs, [result]) == ""
    found = np.load(result)
    if harm == "order":
        found = found[::-1]
    elif harm == "missing":
        found = found[1:]
    else:
        found[5] += 1e-7 if harm == "number" else np.nan
    with result.open("wb") as file:
        np.save(file, found)
    assert verify(inputs, [result]) != ""
    assert verify(inputs, [result, result]) == "one result is expected, here are 2"


def test_a_missing_iteration_fails_verification(tmp_path: Path) -> None:
    inputs = generate("kmeans", tmp_path, 60_000, seed=1)
    short = replace(inputs, params={**inputs.params, "iterations": 1})
    results = finish(short, 3, tmp_path)
    assert verify(short, results) == ""
    assert verify(inputs, results) != ""


@pytest.mark.parametrize("harm", ["moved", "missing", "invented", "image", "twice"])
def test_wrong_faces_fail_verification(tmp_path: Path, harm: str) -> None:
    inputs = generate("detection", tmp_path, 400_000, seed=1)
    (result,) = finish(inputs, 3, tmp_path)
    assert verify(inputs, [result]) == ""
    images, boxes = read_boxes(result)
    if harm == "moved":
        boxes[4, 1] += boxes[4, 3] // 2
    elif harm == "missing":
        boxes = boxes[1:]
    elif harm == "image":
        boxes[4, 0] = (boxes[4, 0] + 1) % images
    else:
        extra = [[0, 0, 0, 50, 50]] if harm == "invented" else boxes[:1].tolist()
        boxes = np.concatenate([boxes, np.array(extra, np.int32)])
    write_boxes(result, BoundingBoxes(images, boxes))
    assert "faces are missed" in verify(inputs, [result])
    write_boxes(result, BoundingBoxes(images - 1, boxes))
    assert verify(inputs, [result]) == f"{images - 1} images, {images} are right"


def test_a_copy_in_another_folder_verifies(tmp_path: Path) -> None:
    inputs = generate("primes", tmp_path, 8_000, seed=1)
    (result,) = finish(inputs, 2, tmp_path)
    assert verify(inputs, [Path(shutil.copy(result, tmp_path / "copy"))]) == ""
