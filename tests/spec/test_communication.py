"""What the key `communication` of job files and scenarios becomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from headgate.model import Communication, Pattern
from headgate.model.kernels import KERNELS, npb_volume, training_volume, wrong_processes
from headgate.spec import expand, job_schema, load_job, load_scenario

SCENARIO = """\
cluster:
  racks: [{name: r, nodes: 4, node: {gpus: 1, gpu_memory: 10GB}}]
  bandwidths: {disk_bytes_per_s: 9e8, node_link_bytes_per_s: 1e8, rack_uplink_bytes_per_s: 1e8}
policy: fifo
jobs:
  - {name: a, num_nodes: 4, tasks: [{compute_s: 26}], communication: COMMUNICATION}
"""


def of_job(text: str) -> Communication | None:
    """Return the communication of a job of two nodes, given in its file."""
    file = f"run: ls\nnum_nodes: 2\nestimated_runtime: 60s\ncommunication: {text}\n"
    jsonschema.validate(yaml.safe_load(file), job_schema())
    job = expand(load_job(file), job_id="j", user="u", datasets={}, file_sizes={})
    return job.communication


def test_pattern_with_its_volume() -> None:
    assert of_job("{pattern: all-reduce-ring, bytes_per_step: 100MB, step_s: 0.2}") == (
        Communication(pattern=Pattern.RING, bytes_per_step=100_000_000, step_s=0.2)
    )


def test_pattern_none_needs_no_volume() -> None:
    assert of_job("{pattern: none}") == Communication()


def test_model_that_is_trained_sends_its_gradients() -> None:
    assert of_job("{model: resnet50, step_s: 0.1}") == Communication(
        pattern=Pattern.RING, bytes_per_step=4 * 25_557_032, step_s=0.1
    )


def test_kernel_computes_its_estimated_run_time_in_all_steps() -> None:
    # 10 iterations in 60 s; 2 ** 23 keys of 4 bytes on 4 processes
    assert of_job("{kernel: IS, class: A, processes: 4}") == Communication(
        pattern=Pattern.ALL_TO_ALL, bytes_per_step=2**23, step_s=6.0, processes=4
    )


def test_job_without_the_key_has_no_communication() -> None:
    job = expand(load_job("run: ls"), job_id="j", user="u", datasets={}, file_sizes={})
    assert job.communication is None


def test_kernel_in_a_scenario_computes_the_time_of_its_tasks(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(SCENARIO.replace("COMMUNICATION", "{kernel: CG, class: A, processes: 4}"))
    ((_, job),) = load_scenario(path, {"fifo": []}).submissions
    # 15 iterations of 26 products; two rows of processes, one stage and the transposition
    assert job.communication == Communication(
        pattern=Pattern.NEIGHBOURS, bytes_per_step=7000 * 2 * 2, step_s=26 / (15 * 26), processes=4
    )


def total_bytes(kernel: str, size: str, processes: int) -> float:
    """Return what all processes send in a whole run, roughly."""
    volume: Any = npb_volume(kernel, size, processes)
    fan = {Pattern.TREE: 2, Pattern.ALL_TO_ALL: 1, Pattern.NEIGHBOURS: 4}[volume.pattern]
    return float(fan * volume.bytes_per_step * volume.steps * processes)


def test_fourier_transform_sends_every_point_once_in_an_iteration() -> None:
    assert total_bytes("FT", "C", 64) == 512**3 * 16 * 20


@pytest.mark.parametrize("kernel", KERNELS)
def test_larger_problems_send_more_and_embarrassingly_parallel_ones_hardly_anything(
    kernel: str,
) -> None:
    sizes = [total_bytes(kernel, size, 16) for size in "ABCD"]
    if kernel == "EP":
        assert max(sizes) < 10_000
    else:
        assert sizes == sorted(sizes)
        assert sizes[0] > 1e7


@pytest.mark.parametrize(
    ("kernel", "runs_on", "does_not"),
    [("BT", 9, 8), ("SP", 64, 32), ("CG", 32, 36), ("EP", 7, None)],
)
def test_kernels_run_on_certain_numbers_of_processes(
    kernel: str, runs_on: int, does_not: int | None
) -> None:
    assert wrong_processes(kernel, runs_on) == ""
    if does_not is not None:
        assert wrong_processes(kernel, does_not)


def test_training_volume_is_four_bytes_a_parameter() -> None:
    assert training_volume("vgg16").bytes_per_step == 4 * 138_357_544
