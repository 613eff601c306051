"""Memory and time per job of a long simulation, which should be constant: a stream of small jobs.

Jobs of one task and one GPU arrive at 64 GPUs with a load of 0.9 (Poisson arrivals, lognormal
durations), from a Parquet trace that is written first. Printed after every tenth of the jobs: CPU
time per job, resident memory, and separately the records of ended jobs that the simulator keeps for
its figures. Goals: at the end at most 1.1 times the resident memory of the first tenth, and CPU
time per job within 20 %.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from headgate.app import POLICIES
from headgate.metrics.records import RECORD_BYTES
from headgate.ports import make_policy
from headgate.protocol import Command, Event, JobSubmitted
from headgate.sim import run as sim
from headgate.traces import open_trace

GPUS, LOAD, SEED, TENTHS = 64, 0.9, 1, 10
BATCH = 10_000
MEDIAN_S, SIGMA = 600.0, 1.0
MEMORY_GOAL, TIME_GOAL = 1.1, 1.2


def write_trace(path: Path, jobs: int) -> None:
    """Write a trace of `jobs` jobs, batch by batch."""
    rng, at, number = np.random.default_rng(SEED), 0.0, 0
    every_s = MEDIAN_S * np.exp(SIGMA**2 / 2) / (GPUS * LOAD)
    schema = pa.schema(
        [("job_id", pa.string()), *((n, pa.float64()) for n in ("submit_s", "duration_s", "gpus"))]
    )
    with pq.ParquetWriter(path, schema) as file:
        while number < jobs:
            count = min(BATCH, jobs - number)
            times = at + np.cumsum(rng.exponential(every_s, count))
            columns = [
                pa.array([f"job-{n}" for n in range(number, number + count)]),
                pa.array(times),
                pa.array(rng.lognormal(np.log(MEDIAN_S), SIGMA, count)),
                pa.array(np.ones(count)),
            ]
            file.write_batch(pa.record_batch(columns, schema=schema))
            at, number = float(times[-1]), number + count


class Tenths:
    """An observer that prints a row whenever another tenth of the jobs has arrived."""

    def __init__(self, jobs: int) -> None:
        self._jobs, self._seen, self._process = jobs, 0, psutil.Process()
        self._cpu_s = time.process_time()
        self.per_job_us: list[float] = []
        self.resident_mb: list[float] = []  # less records

    def __call__(self, batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        """Count submissions."""
        del commands
        self._seen += sum(isinstance(event, JobSubmitted) for event in batch)
        if self._seen * TENTHS >= (len(self.per_job_us) + 1) * self._jobs:
            self._print_row()

    def _print_row(self) -> None:
        cpu_s, records_mb = time.process_time(), RECORD_BYTES * self._seen / 1e6
        self.per_job_us.append((cpu_s - self._cpu_s) * TENTHS / self._jobs * 1e6)
        self.resident_mb.append(self._process.memory_info().rss / 1e6 - records_mb)
        self._cpu_s = cpu_s
        us, resident_mb = self.per_job_us[-1], self.resident_mb[-1]
        print(f"{self._seen:>9} {us:>7.0f} {resident_mb:>12.1f} {records_mb:>11.1f}", flush=True)


def measure(trace: Path, policy_name: str) -> None:
    """Run a trace under a policy, and print a row per tenth and whether the goals hold."""
    started_s = time.process_time()
    history, policy = open_trace(trace), make_policy(POLICIES, policy_name)
    simulation = sim.from_trace(history, policy, gpus=GPUS, seed=SEED)
    jobs = len(simulation.submissions)
    checked_us = 1e6 * (time.process_time() - started_s) / jobs
    print(f"{policy_name}: {jobs} jobs, their trace checked in {checked_us:.0f} us/job")
    print(f"{'jobs':>9} {'us/job':>7} {'resident MB':>12} {'records MB':>11}", flush=True)
    tenths = Tenths(jobs)
    figures = sim.run(simulation, policy, observe=(tenths,)).figures
    print(f"all {figures['jobs_finished']} ended; GPUs {figures['gpu_utilisation']:.1%} busy")
    growth = tenths.resident_mb[-1] / tenths.resident_mb[0]
    spread = max(tenths.per_job_us) / min(tenths.per_job_us)
    print(f"resident, end / first tenth: {growth:.3f}, {_verdict(growth, MEMORY_GOAL)}")
    print(f"time, slowest / fastest tenth: {spread:.3f}, {_verdict(spread, TIME_GOAL)}")


def _verdict(value: float, goal: float) -> str:
    return f"{'within' if value <= goal else 'ABOVE'} {goal}"


def main() -> None:
    """Measure each policy in a separate process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--policies", nargs="+", default=["fifo", "headgate"])
    parser.add_argument("--trace", type=Path, help="measure this trace instead, in this process")
    given = parser.parse_args()
    if given.trace is not None:
        for policy in given.policies:
            measure(given.trace, policy)
        return
    with tempfile.TemporaryDirectory() as directory:
        trace = Path(directory) / "jobs.parquet"
        write_trace(trace, given.jobs)
        for policy in given.policies:
            options = ["--trace", str(trace), "--policies", policy]
            subprocess.run([sys.executable, __file__, *options], check=True)


if __name__ == "__main__":
    main()
