"""Jobs of several forms, live: results in parts, wavefronts, iterations; all results worked out."""

from __future__ import annotations

import itertools
import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.live.system import Headgate

from headgate.base.errors import SpecError
from headgate.workloads.kmeans import first_centroids

pytestmark = pytest.mark.live
EXAMPLES = Path(__file__).parents[2] / "examples"
CPU = {"gpus": 0}
SUM = "cat {shards} | awk '{s += $1} END {print s + 0}' > {output}"


SYSTEM = {"nodes": 3, "gpus": 1}


@pytest.fixture(scope="module")
def numbers(headgate: Headgate, tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    """Put a dataset of four shards of numbers, eight bytes each; return the numbers."""
    values = [(i * 17_919) % 700_000 for i in range(40)]
    file = tmp_path_factory.mktemp("numbers") / "numbers"
    file.write_text("".join(f"{value:7d}\n" for value in values))
    headgate.put("numbers", file, 4)
    return [values[i : i + 10] for i in range(0, 40, 10)]


def submit(headgate: Headgate, **job: Any) -> str:
    return headgate.submit(json.dumps({"data": {"d": {"from": "numbers"}}} | job))


def test_results_in_parts_are_read_part_by_part(
    headgate: Headgate, numbers: list[list[int]]
) -> None:
    """A sort by ranges; the last range has no numbers, and nothing is written for it."""
    ranges = [(0, 250_000), (250_000, 600_000), (600_000, 700_000), (700_000, 1_000_000)]
    cut = (
        "set -- {outputs}; for range in 0:249999 250000:599999 600000:699999; do "
        "awk -v from=${range%:*} -v to=${range#*:} '$1 >= from && $1 <= to' {shard} > $1; shift; "
        "done"
    )
    job = submit(
        headgate,
        tasks={"for_each": "d", "run": cut, "resources": CPU},
        reduce={
            "run": "sort -n {shards} > {output}",
            "tasks": len(ranges),
            "partitioned": True,
            "resources": CPU,
        },
    )
    view = headgate.ends(job)
    everything = sorted(value for shard in numbers for value in shard)
    results = [headgate.result(job, len(numbers) + i) for i in range(len(ranges))]
    assert [int(line) for result in results for line in result.split()] == everything
    for result, (start, end) in zip(results, ranges, strict=True):
        assert all(start <= int(line) < end for line in result.split())
    assert results[-1] == b""
    # the shards once, and every part once: whole results would be read four times
    assert sum(view["read_bytes"].values()) == 2 * 8 * len(everything)

    def wholes() -> list[bytes]:
        return [headgate.result(job, task) for task in range(len(numbers))]

    for whole, shard in zip(wholes(), numbers, strict=True):
        sorted_values = [int(line) for line in whole.split()]
        assert sorted_values == [v for start, end in ranges for v in shard if start <= v < end]
    kept = wholes()
    headgate.kill_controller()
    headgate.up()
    assert wholes() == kept


def test_task_that_writes_one_result_instead_of_parts_fails(
    headgate: Headgate, numbers: list[list[int]]
) -> None:
    run = 'cp {shard} $HEADGATE_OUTPUT; test $(echo "$HEADGATE_OUTPUTS" | wc -l) = 2'
    tasks = {"for_each": "d", "run": run, "resources": CPU, "retries": 0}
    job = submit(headgate, tasks=tasks, reduce={"run": "true", "tasks": 2, "partitioned": True})
    message = headgate.ends(job, "failed")["message"]
    assert "it wrote one result instead of 2 parts: write to 'outputs'" in message


def test_the_cells_of_a_wavefront_add_up(headgate: Headgate, numbers: list[list[int]]) -> None:
    job = submit(
        headgate,
        tasks={
            "wavefront": {"rows": 2, "columns": 2},
            "for_each": "d",
            "run": SUM,
            "resources": CPU,
        },
    )
    headgate.ends(job)
    grid: dict[tuple[int, int], int] = {}
    for cell, shard in enumerate(numbers):
        i, j = divmod(cell, 2)
        grid[i, j] = sum(shard) + grid.get((i - 1, j), 0) + grid.get((i, j - 1), 0)
        assert int(headgate.result(job, cell)) == grid[i, j]
    assert int(headgate.result(job)) == grid[1, 1]


def test_iterations_continue_from_the_last_update(
    headgate: Headgate, numbers: list[list[int]]
) -> None:
    job = submit(
        headgate,
        tasks={"for_each": "d", "iterations": 3, "run": SUM, "resources": CPU},
        update={"run": SUM},
        reduce={"run": "(echo end; cat {shards}) > {output}"},
    )
    headgate.ends(job)
    state = 0
    for iteration in range(3):
        state = sum(sum(shard) + state for shard in numbers)
        assert int(headgate.result(job, iteration * 5 + 4)) == state
    assert headgate.result(job) == f"end\n{state}\n".encode()


def test_parts_are_valid_again_when_their_node_returns(
    headgate: Headgate, numbers: list[list[int]]
) -> None:
    run = "set -- {outputs}; cp {shard} $1; head -n 1 {shard} > $2"
    job = submit(
        headgate,
        tasks={"for_each": "d", "run": run, "resources": CPU},
        reduce={"run": "true", "tasks": 2, "partitioned": True},
    )
    headgate.ends(job)
    node = headgate.client.tasks(job)[0]["node"]
    first = numbers[0]
    assert [int(line) for line in headgate.result(job, 0).split()] == [*first, first[0]]
    headgate.kill_node(node)
    headgate.until(lambda: node not in headgate.up_nodes(), "the loss is seen")
    with pytest.raises(SpecError, match=f"there is no result {job}/0.0"):
        headgate.result(job, 0)
    headgate.restart_node(node)
    headgate.until(lambda: node in headgate.up_nodes(), "it is back")
    assert [int(line) for line in headgate.result(job, 0).split()] == [*first, first[0]]


# The examples, as they stand.


def test_the_example_of_a_wavefront_counts_paths(headgate: Headgate) -> None:
    job = headgate.submit((EXAMPLES / "wavefront.yaml").read_text())
    headgate.ends(job)
    for i, j in itertools.product(range(4), repeat=2):
        assert int(headgate.result(job, i * 4 + j)) == math.comb(i + j, i)


def test_the_example_of_a_sort_sorts(headgate: Headgate, tmp_path: Path) -> None:
    rng = random.Random(1)
    records = [bytes(rng.randrange(32, 127) for _ in range(20)) for _ in range(3000)]
    file = tmp_path / "strings"
    file.write_bytes(b"".join(records))
    headgate.put("my-strings", file, 3)
    job = headgate.submit((EXAMPLES / "string-sort.yaml").read_text())
    view = headgate.ends(job)
    assert sum(view["read_bytes"].values()) == 2 * 20 * len(records)
    ranges = [headgate.result(job, 3 + i) for i in range(4)]
    assert all(ranges)
    assert b"".join(ranges) == b"".join(sorted(records, key=lambda record: record[:4]))


def test_the_example_of_k_means_finds_the_means(headgate: Headgate, tmp_path: Path) -> None:
    points = np.random.default_rng(1).normal(size=(60, 8)).astype("<f4")
    file = tmp_path / "points"
    file.write_bytes(points.tobytes())
    headgate.put("my-points", file, 2)
    text = (EXAMPLES / "kmeans.yaml").read_text()
    job = headgate.submit(text.replace("iterations: 10", "iterations: 3"))
    headgate.ends(job)
    means = first_centroids(1, 4, 8)
    for _ in range(3):
        nearest = [min(range(4), key=lambda c: math.dist(point, means[c])) for point in points]
        groups = [[p for p, c in zip(points, nearest, strict=True) if c == k] for k in range(4)]
        means = np.array(
            [np.mean(group, axis=0, dtype=float) if group else means[k]
             for k, group in enumerate(groups)]
        )  # fmt: skip
    found = tmp_path / "found.npy"
    found.write_bytes(headgate.result(job))
    assert np.allclose(np.load(found), means)
