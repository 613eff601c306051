"""How far forecasts of starts come true: the flow jobs, and ten users of them.

    python bench/forecasts.py [--seeds 1,2] [--share 0.03] [--setups parallel,users] [--exact]

Prints a line of JSON per setup and seed: the figures of `headgate simulate --forecasts`. `--exact`:
all tasks of a job compute as long as its longest one, which it declares, so that only reading is
uncertain.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

from headgate.app import POLICIES
from headgate.experiments.flow.jobs import SimulatorConstants, by_users, in_parallel
from headgate.ports import make_policy
from headgate.sim.forecasts import ForecastCheck
from headgate.sim.run import Simulation, run

NETWORK, PARALLEL = "constrained", 6


def simulation(setup: str, seed: int) -> Simulation:
    """Return J1 to J36, six in flight, or six jobs of each of ten users."""
    if setup == "users":
        return by_users(NETWORK, seed, SimulatorConstants())
    return in_parallel(NETWORK, seed, SimulatorConstants(), parallel=PARALLEL)


def declared(of: Simulation) -> Simulation:
    """Return a simulation whose jobs declare the time that each of their tasks computes."""
    assert isinstance(of.submissions, tuple)
    jobs = []
    for at, job in of.submissions:
        longest_s = max(task.compute_s for task in job.tasks)
        tasks = tuple(replace(task, compute_s=longest_s) for task in job.tasks)
        jobs.append((at, replace(job, tasks=tasks, estimated_s=longest_s)))
    return replace(of, submissions=tuple(jobs))


def main() -> None:
    """Measure, and print a line per run."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seeds", default="1,2")
    arguments.add_argument("--share", type=float, default=0.03)
    arguments.add_argument("--setups", default="parallel,users")
    arguments.add_argument("--policy", default="headgate")
    arguments.add_argument("--exact", action="store_true")
    chosen = arguments.parse_args()
    for setup in chosen.setups.split(","):
        for seed in map(int, chosen.seeds.split(",")):
            policy = make_policy(POLICIES, chosen.policy)
            jobs = simulation(setup, seed)
            check = ForecastCheck(policy, share=chosen.share, seed=seed)
            outcome = run(declared(jobs) if chosen.exact else jobs, policy, forecasts=check)
            figures = outcome.figures["forecasts"]
            print(json.dumps({"setup": setup, "seed": seed, **figures}), flush=True)


if __name__ == "__main__":
    main()
