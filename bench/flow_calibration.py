"""Find the GPU speed with which the flow paper's jobs, one after the other, take 825.6 s under gs.

    python bench/flow_calibration.py

The simulator's only fitted constant; see `headgate.experiments.flow.jobs`.
"""

from __future__ import annotations

from math import sqrt

from headgate.app import POLICIES
from headgate.experiments.flow.jobs import MB, SimulatorConstants, in_parallel
from headgate.ports import make_policy
from headgate.sim.run import run

PUBLISHED_S = 825.6
SEEDS = range(1, 6)


def total_s(gpu_bytes_per_s: float) -> float:
    """Return the mean makespan of the jobs in turn over the seeds."""
    speeds = SimulatorConstants(gpu_bytes_per_s=gpu_bytes_per_s)
    policy = make_policy(POLICIES, "gs")
    runs = [run(in_parallel("constrained", seed, speeds, parallel=1), policy) for seed in SEEDS]
    return sum(outcome.figures["makespan_s"] for outcome in runs) / len(runs)


def main() -> None:
    """Bisect the interval, in ratios, until its ends are within 1 MB/s."""
    slow, fast = 100.0 * MB, 10_000.0 * MB
    while fast - slow > MB:
        middle = sqrt(slow * fast)
        found_s = total_s(middle)
        print(f"{middle / MB:8.1f} MB/s: {found_s:.1f} s")
        if found_s > PUBLISHED_S:
            slow = middle
        else:
            fast = middle


if __name__ == "__main__":
    main()
