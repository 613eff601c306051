"""Ray Data: write readings as CSV, read them back, score them on GPUs, average by station.

Usage: data_pipeline.py DIRECTORY (for the files, on a file system that all nodes share)
"""

import sys
from pathlib import Path

import numpy as np
import ray

folder = Path(sys.argv[1])


def measure(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Make a reading of each number: a station, and a temperature there."""
    return {"station": batch["id"] % 5, "celsius": 10 + batch["id"] % 5 + batch["id"] % 2}


class Model:
    """A model that is loaded once per GPU and then scores batches."""

    def __init__(self) -> None:
        """Load the weights."""
        self.scale, self.offset = 1.8, 32.0

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Score a batch."""
        return {**batch, "fahrenheit": self.scale * batch["celsius"] + self.offset}


ray.data.range(10_000).map_batches(measure).write_csv(str(folder / "readings"))
scored = ray.data.read_csv(str(folder / "readings")).map_batches(
    Model, num_gpus=1, batch_size=1_000, concurrency=2
)
means = scored.groupby("station").mean("fahrenheit").materialize()
means.write_parquet(str(folder / "means"))
for row in sorted(means.take_all(), key=lambda row: row["station"]):
    print(f"station {row['station']}: {row['mean(fahrenheit)']:.2f} F")
