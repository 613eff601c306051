"""Generated inputs, put through each workload, verify; a wrong result does not."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.workloads.pipeline import cut, run_stage

from headgate.base.errors import SpecError
from headgate.workloads import generate as generating
from headgate.workloads import matmul, occurrence, primes
from headgate.workloads.counts import Counts, read_counts, write_counts
from headgate.workloads.generate import Inputs, generate
from headgate.workloads.verify import verify

WORKLOADS = ("matmul", "occurrence", "primes")


def finish(inputs: Inputs, shards: int, folder: Path) -> list[Path]:
    """Run the workload over that many shards; a matrix product with as many sums."""
    reads = [cut(path, inputs.shard_bytes(shards)) for path in inputs.files.values()]
    if inputs.workload == "matmul":
        pairs = list(zip(*reads, strict=True))
        products = run_stage(matmul.multiply, pairs, folder, inputs.params)
        return run_stage(matmul.add, [products] * len(products), folder)
    first, last = {
        "occurrence": (occurrence.count, occurrence.merge),
        "primes": (primes.find, primes.merge),
    }[inputs.workload]
    partial = run_stage(first, [[shard] for shard in reads[0]], folder, inputs.params)
    return run_stage(last, [partial], folder)


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize(("size_bytes", "shards"), [(16, 1), (100_000, 1), (200_000, 7)])
def test_a_workload_from_end_to_end(
    tmp_path: Path, workload: str, size_bytes: int, shards: int
) -> None:
    inputs = generate(workload, tmp_path, size_bytes, seed=1)
    assert verify(inputs, finish(inputs, shards, tmp_path)) == ""


@pytest.mark.parametrize("workload", WORKLOADS)
def test_sizes_and_seeds(tmp_path: Path, workload: str) -> None:
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


def test_data_are_written_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generating, "_PIECE_VALUES", 10)
    inputs = generate("occurrence", tmp_path, 8 * 25, seed=1)
    integers = np.fromfile(inputs.files["ints"], "<i8")
    assert integers.size == 25
    assert len(set(integers[:10].tolist()) & set(integers[10:20].tolist())) < 10


def test_what_cannot_be_generated(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="did you mean 'primes'"):
        generate("prime", tmp_path, 100, seed=1)
    for workload in WORKLOADS:
        with pytest.raises(SpecError, match="too few"):
            generate(workload, tmp_path, 7, seed=1)


@pytest.mark.parametrize("workload", ["occurrence", "primes"])
@pytest.mark.parametrize("harm", ["count", "value", "missing"])
def test_a_wrong_table_is_seen(tmp_path: Path, workload: str, harm: str) -> None:
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
def test_a_wrong_product_is_seen(tmp_path: Path, harm: str) -> None:
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


def test_a_copy_elsewhere_verifies_too(tmp_path: Path) -> None:
    inputs = generate("primes", tmp_path, 8_000, seed=1)
    (result,) = finish(inputs, 2, tmp_path)
    assert verify(inputs, [Path(shutil.copy(result, tmp_path / "copy"))]) == ""
