"""The same seed gives the same bytes in any process, under any order of sets and dicts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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

SIMULATE = "import typer; from headgate.cli.simulate.simulate import simulate; typer.run(simulate)"


def outputs(code: str, *arguments: str) -> set[str]:
    """Return what a program prints under three hash seeds, each in its own process."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
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


@pytest.mark.parametrize(
    "arguments",
    [
        ("examples/three-tasks.yaml", "-o", "json"),
        ("examples/three-tasks.yaml", "--policy", "fifo", "--decision-latency", "1", "-o", "json"),
        ("--trace", "examples/philly-500.parquet", "--gpus", "64", "--policy", "fifo",
         "--seed", "3", "-o", "json"),
    ],
    ids=["scenario", "latency", "trace"],
)  # fmt: skip
def test_simulation_prints_one_result(arguments: tuple[str, ...]) -> None:
    (answer,) = outputs(SIMULATE, *arguments)
    assert answer.startswith('{"policy": ')
