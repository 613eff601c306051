"""The generated histories have the run times, the sizes and the load that they promise."""

from __future__ import annotations

import numpy as np
import pytest

from headgate.testing.heavy_tails import LONGEST_S, MEDIAN_S, SIZES, heavy_tailed

JOBS = 20_000


def test_run_times_sizes_and_load_are_as_described() -> None:
    history = heavy_tailed(3, JOBS, 0.8, nodes=8, node_gpus=8)
    run_s = np.array([job.tasks[0].compute_s for _, job in history])
    gpus = np.array([sum(task.demand.gpus for task in job.tasks) for _, job in history])
    at = np.array([at for at, _ in history])
    assert np.quantile(run_s, 0.5) == pytest.approx(MEDIAN_S, rel=0.1)
    assert np.quantile(run_s, 0.9) == pytest.approx(42 * 60, rel=0.1)
    assert run_s.max() == LONGEST_S
    for size in set(SIZES):
        assert np.mean(gpus == size) == pytest.approx(SIZES.count(size) / len(SIZES), abs=0.01)
    assert (np.diff(at) >= 0).all()
    assert float(gpus @ run_s) / (64 * at[-1]) == pytest.approx(0.8, rel=0.01)
    assert all(job.gang == (sum(t.demand.gpus for t in job.tasks) > 8) for _, job in history)
    assert all(job.estimated_s is None and job.time_limit_s is None for _, job in history)


def test_a_history_depends_on_its_arguments_alone() -> None:
    assert heavy_tailed(1, 50, 0.8, nodes=8, node_gpus=8) == heavy_tailed(
        1, 50, 0.8, nodes=8, node_gpus=8
    )
    assert heavy_tailed(1, 50, 0.8, nodes=8, node_gpus=8) != heavy_tailed(
        2, 50, 0.8, nodes=8, node_gpus=8
    )
