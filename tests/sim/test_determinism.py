"""The same seed gives the same bytes in any process, under any order of sets and dicts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

STORMS = """
import hashlib
from headgate.engine import Engine, drive
from headgate.policies.ordered.fifo import FirstInFirstOut
from headgate.planning.links.fluid_network import FluidNetwork
from headgate.sim.world import SimulatedWorld
from headgate.testing.digest import digest
from headgate.testing.storms import storm

output = hashlib.blake2b()
for seed in range(15):
    weather, engine = storm(seed), Engine()
    world = SimulatedWorld(
        weather.facts, network=FluidNetwork({}, **weather.links), policy=FirstInFirstOut(),
        seed=seed, decision_latency_s=weather.decision_latency_s,
        fails_after_s=weather.fails_after_s,
    )
    drive(engine, world, observe=[lambda b, c: output.update(repr((b, c)).encode())])
    output.update(digest(engine.state).encode())
print(output.hexdigest())
"""

SIMULATIONS = (
    ("examples/three-tasks.yaml",),
    ("examples/three-tasks.yaml", "--policy", "fifo", "--decision-latency", "1"),
    ("--trace", "examples/philly-500.parquet", "--gpus", "48", "--policy", "fs", "--seed", "3"),
)
SIMULATE = f"""
from headgate.cli import main
for arguments in {SIMULATIONS}:
    main.run(["simulate", *arguments, "-o", "json"])
"""


def outputs(code: str) -> set[str]:
    """Return what a program prints under three hash seeds, each in its own process."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("0", "1", "random")
    ]
    found = {process.communicate()[0] for process in running}
    assert [process.returncode for process in running] == [0, 0, 0]
    return found


def test_storms_have_one_journal() -> None:
    (journal,) = outputs(STORMS)
    assert len(journal.strip()) == 128


def test_simulations_print_one_result() -> None:
    (answer,) = outputs(SIMULATE)
    found = [json.loads(line) for line in answer.splitlines()]
    assert len(found) == len(SIMULATIONS)
    assert all(each["jobs_finished"] > 0 for each in found)
