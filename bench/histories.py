"""CPU time of whole simulations of histories by policy, against `fifo` in the same run.

    python bench/histories.py [--traces DIR] [--only philly2017] [--jobs N] [--policies fifo ...]

With the published histories in DIR (`docs/traces.md`): the first 30,000 jobs of Philly on 600 GPUs
under `headgate` and `easy-backfill`, and all of ITP on 1,024 under `headgate`, run times learnt;
at most N jobs of each. Without, 3,000 jobs of the synthetic history of `bench/simulator.py`.
`fifo` is the bare loop: it starts what fits from the head of the line and does nothing else, so
its time is nearly all the simulator's. The output is one JSON object on stdout; each row
also goes to stderr when it is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from headgate.app import POLICIES
from headgate.ports import make_policy
from headgate.sim import run as sim
from headgate.traces import JobHistory, TraceJob, open_trace
from simulator import GPUS, SEED, history

BARE = "fifo"
BOTH = ("headgate", "easy-backfill")
PUBLISHED = (
    ("philly2017", "philly2017_jobs.parquet", 30_000, 600, BOTH),
    ("itp2021", "itp2021_jobs.parquet", None, 1024, ("headgate",)),
)
"""Name, file, jobs (None for all), GPUs and policies of each."""
SYNTHETIC_JOBS = 3_000


class Head:
    """The first jobs of a history."""

    def __init__(self, whole: JobHistory, jobs: int | None) -> None:
        self._whole, self._jobs = whole, len(whole) if jobs is None else min(jobs, len(whole))
        self.integer_ids = whole.integer_ids

    def __len__(self) -> int:
        return self._jobs

    def rows(self) -> Iterator[TraceJob]:
        """Yield the jobs in order of time."""
        return islice(self._whole.rows(), self._jobs)


def cases(traces: Path | None) -> Iterator[tuple[str, JobHistory, int, tuple[str, ...]]]:
    """Yield the name of each history, its jobs, the GPUs and the policies."""
    if traces is None:
        yield "synthetic", history(SYNTHETIC_JOBS), GPUS, BOTH
        return
    for name, file, jobs, gpus, policies in PUBLISHED:
        yield name, Head(open_trace(traces / file), jobs), gpus, policies


def measure(trace: JobHistory, gpus: int, name: str) -> dict[str, Any]:
    """Return the figures of one simulation."""
    policy = make_policy(POLICIES, name)
    simulation = sim.from_trace(trace, policy, gpus=gpus, seed=SEED)
    started_s = time.process_time()
    figures = sim.run(simulation, policy).figures
    cpu_s = time.process_time() - started_s
    return {
        "jobs": len(simulation.submissions),
        "decisions": figures["decisions"]["count"],
        "cpu_s": round(cpu_s, 1),
        "ms_per_decision": round(1e3 * cpu_s / figures["decisions"]["count"], 2),
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="how long simulations of histories take")
    parser.add_argument("--traces", type=Path, help="directory of the published histories")
    parser.add_argument("--only", nargs="+", help="names of histories")
    parser.add_argument("--jobs", type=int, help="at most this many of each")
    parser.add_argument("--policies", nargs="+", help="instead of those above")
    given = parser.parse_args()
    rows = []
    for trace_name, whole, gpus, policies in cases(given.traces):
        if given.only and trace_name not in given.only:
            continue
        bare_s, trace = None, Head(whole, given.jobs)
        for name in (BARE, *(given.policies or policies)):
            row = {"trace": trace_name, "gpus": gpus, "policy": name, **measure(trace, gpus, name)}
            bare_s = bare_s or row["cpu_s"]
            rows.append({**row, "over_fifo": round(row["cpu_s"] / bare_s, 1)})
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    print(json.dumps({"simulations": rows}, indent=2))


if __name__ == "__main__":
    main()
