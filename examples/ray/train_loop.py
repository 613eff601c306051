"""Ray Train: data-parallel training of a linear model in NumPy, a worker on each of two GPUs.

Usage: train_loop.py DIRECTORY (for checkpoints, on a file system that all nodes share)
"""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import ray
from ray.train import Checkpoint, RunConfig, ScalingConfig, get_context, get_dataset_shard, report
from ray.train.collective import barrier
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

TRUTH = np.arange(4.0)


@ray.remote
class Gradients:
    """Adds up the workers' gradients of each step."""

    def __init__(self) -> None:
        """Start with none."""
        self.sums: dict[int, np.ndarray] = {}

    def add(self, step: int, gradient: np.ndarray) -> None:
        """Add a worker's gradient."""
        self.sums[step] = self.sums.get(step, 0) + gradient

    def of(self, step: int) -> np.ndarray:
        """Return the sum of a step."""
        return self.sums[step]


def train(config: dict) -> None:
    """Train on this worker's part of the data; rank 0 saves the weights."""
    rank, size = get_context().get_world_rank(), get_context().get_world_size()
    print(f"rank {rank} of {size} on GPU {os.environ['CUDA_VISIBLE_DEVICES']}", flush=True)
    x = np.concatenate([batch["data"] for batch in get_dataset_shard("train").iter_batches()])
    y, weights = x @ TRUTH, np.zeros(4)
    for step in range(30):
        gradient = x.T @ (x @ weights - y) / len(x)
        ray.get(config["gradients"].add.remote(step, gradient))
        barrier()
        weights -= 0.5 * ray.get(config["gradients"].of.remote(step)) / size
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "weights.npy", weights)
        saved = Checkpoint.from_directory(folder) if rank == 0 else None
        report({"error": float(np.abs(weights - TRUTH).max())}, checkpoint=saved)


inputs = np.random.default_rng(7).normal(size=(512, 4))
result = DataParallelTrainer(
    train,
    train_loop_config={"gradients": Gradients.remote()},
    datasets={"train": ray.data.from_numpy(inputs)},
    scaling_config=ScalingConfig(num_workers=2, use_gpu=True),
    run_config=RunConfig(name="linear", storage_path=sys.argv[1]),
).fit()
with result.checkpoint.as_directory() as folder:
    print(f"weights: {np.load(Path(folder) / 'weights.npy').round(2).tolist()}")
