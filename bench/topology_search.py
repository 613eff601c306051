"""Measure one search of `closed-minimum`: `python bench/topology_search.py -o json`.

On a 128 x 128 mesh and a binary tree of 16,384 leaves, filled to 70 % by closed sets of jobs of 1
to 64 leaves, of which others have ended: medians for requests of 4 to 256 leaves, misses included.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import numpy as np

from headgate.base.arrays import Bools, Ints
from headgate.base.rng import Random, stream
from headgate.model.topology import Mesh, Topology, Tree
from headgate.planning.place.choose import ClosedMinimum
from headgate.planning.topology import Layout, Request, layout_of

_FILLED = 0.7
_SEARCHES = 400
_FILLING, _SEARCHED = (0, 6), (2, 8)  # least and greatest sizes of jobs, as powers of two
_MISSES = 50
_WAIT = ClosedMinimum(otherwise="wait")


def filled_by_jobs(layout: Layout, share: float, rng: Random) -> Bools:
    """Return which leaves are used when closed sets of random jobs use a share of them.

    Jobs arrive until hardly one fits, then random ones end until the share is left: so what is idle
    is in pieces, few of them large.
    """
    used, jobs, misses = np.zeros(layout.sites, bool), list[Ints](), 0
    while misses < _MISSES:
        places = _WAIT.choose(layout, Request.on(used, _size(rng, *_FILLING)))
        misses += places is None
        if places is not None:
            used[places.taken] = True
            jobs.append(places.taken)
    rng.shuffle(jobs)
    while used.mean() > share:
        used[jobs.pop()] = False
    return used


def _size(rng: Random, least: int, most: int) -> int:
    """Return a size from 2 ** least to 2 ** most: a power of two, or one less or more."""
    size = (1 << rng.randint(least, most)) + rng.choice((-1, 0, 0, 1))
    return min(1 << most, max(1 << least, size))


def measured_us(topology: Topology, seed: int) -> dict[str, float]:
    """Return the median and the 95th percentile of a search in microseconds, and the misses."""
    layout, rng = layout_of(topology), stream(seed, "bench topology")
    used = filled_by_jobs(layout, _FILLED, rng)
    took_us, missed = [], 0
    for count in [_size(rng, *_SEARCHED) for _ in range(_SEARCHES)]:
        began = time.perf_counter_ns()
        places = _WAIT.choose(layout, Request.on(used, count))
        took_us.append((time.perf_counter_ns() - began) / 1000)
        missed += places is None
    return {
        "us": round(statistics.median(took_us), 1),
        "p95_us": round(statistics.quantiles(took_us, n=20)[-1], 1),
        "missed": missed / _SEARCHES,
        "used": round(float(used.mean()), 3),
    }


def main() -> None:
    """Print the medians."""
    parser = argparse.ArgumentParser(prog="python bench/topology_search.py")
    parser.add_argument("-o", "--output", choices=["json", "table"], default="table")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    facts: dict[str, float] = {}
    for name, topology in (("mesh", Mesh((128, 128))), ("tree", Tree.k_ary(2, 14))):
        for key, value in measured_us(topology, arguments.seed).items():
            facts[f"{name}_{key}"] = value
    if arguments.output == "json":
        print(json.dumps(facts))
    else:
        print("\n".join(f"{key:12} {value:g}" for key, value in facts.items()))


if __name__ == "__main__":
    main()
