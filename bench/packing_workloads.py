"""Draws the published variants of the default pods, for `headgate pack`.

    python bench/packing_workloads.py openb2023_pods_default.parquet --out DIR

As the description of Alibaba's trace of 2023 has it: pods without GPUs are 5 to 25 % of all, shares
ask for 40 to 100 % of the GPUs, pods with several GPUs for 20 to 50 %, or 10 to 33 % of the pods
with GPUs name models, as often as 270 of those published do. Seeded; one file per variant.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Pod = tuple[float, float, int, int, str | None]  # CPUs, GiB, GPUs, thousandths, models
_V100 = "V100M16|V100M32"
_MOST = f"G2|P100|T4|{_V100}"
NAMED: tuple[dict[str, int], ...] = (
    {"T4": 72, "P100": 37, _MOST: 5},
    {
        "T4": 71, "G2": 33, _V100: 25, "G3": 8, f"P100|{_V100}": 7, f"P100|T4|{_V100}": 5,
        f"A10|G2|T4|{_V100}": 2, _MOST: 2, "A10|T4": 2,
    },
    {"G3": 2, "G2": 1, f"T4|{_V100}": 1},
)  # fmt: skip
"""How often models are named: by shares, by pods with one GPU, and by those with several."""


def gpus(pods: Sequence[Pod]) -> float:
    """Return how many GPUs pods ask for."""
    return sum(pod[2] * pod[3] for pod in pods) / 1000


def drawn(rng: np.random.Generator, pods: Sequence[Pod], count: int) -> list[Pod]:
    """Return some of the pods, drawn with replacement."""
    return [pods[n] for n in rng.integers(len(pods), size=count)]


def naming(rng: np.random.Generator, pods: Sequence[Pod], percent: int) -> list[Pod]:
    """Return the pods, of which some with GPUs name models."""
    found = []
    for pod in pods:
        if pod[2] and rng.random() < percent / 100:
            often = NAMED[2 if pod[2] > 1 else int(pod[3] == 1000)]
            part = np.array([*often.values()]) / sum(often.values())
            found.append((*pod[:4], [*often][rng.choice(len(often), p=part)]))
        else:
            found.append(pod)
    return found


def variants(pods: Sequence[Pod]) -> dict[str, list[Pod]]:
    """Return the variants by name."""
    bare, several = [p for p in pods if not p[2]], [p for p in pods if p[2] > 1]
    shares = [p for p in pods if p[2] == 1 and p[3] < 1000]
    ones = [p for p in pods if p[2] == 1 and p[3] == 1000]
    count, large = len(pods) - len(bare), [*ones, *several]
    found = {}
    for percent in (5, 10, 20, 25):
        many = round(count * percent / (100 - percent))
        with_gpus = [p for p in pods if p[2]]
        found[f"cpu{10 * percent:03d}"] = [*with_gpus, *drawn(_seeded(percent), bare, many)]
    for percent in (40, 60, 80, 100):
        rng, part = _seeded(100 + percent), percent / 100
        each, other = gpus(shares) / len(shares), gpus(large) / len(large)
        many = round(count * part * other / (part * other + (1 - part) * each))
        some = [*drawn(rng, shares, many), *drawn(rng, large, count - many)]
        found[f"gpushare{percent}"] = [*bare, *some]
    for percent in (20, 30, 40, 50):
        asked = gpus([*shares, *ones]) * percent / (100 - percent)
        many = round(asked / gpus(several) * len(several))
        some = drawn(_seeded(200 + percent), several, many)
        found[f"multigpu{percent}"] = [*bare, *shares, *ones, *some]
    for percent in (10, 20, 25, 33):
        found[f"gpuspec{percent}"] = naming(_seeded(300 + percent), pods, percent)
    return found


def _seeded(number: int) -> np.random.Generator:
    return np.random.default_rng([20230711, number])


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description="variants of recorded pods")
    parser.add_argument("pods", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    names = ("cpus", "mem_gb", "num_gpu", "gpu_milli")
    columns = pq.read_table(args.pods, columns=[*names]).to_pydict()
    pods = [(*row, None) for row in zip(*(columns[name] for name in names), strict=True)]
    args.out.mkdir(parents=True, exist_ok=True)
    for name, found in variants(pods).items():
        made = dict(zip((*names, "gpu_type"), map(list, zip(*found, strict=True)), strict=True))
        made["gpu_type"] = pa.array(made["gpu_type"], pa.string())
        pq.write_table(pa.table(made), args.out / f"pods_{name}.parquet")
        print(name, len(found), round(gpus(found)))


if __name__ == "__main__":
    main()
