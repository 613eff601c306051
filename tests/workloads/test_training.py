"""The training of several processes: its solution, and its continuation from a checkpoint."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np

from headgate.workloads.training import solution

PROCESSES = 3
MEMBER = """
import json, os, sys
from pathlib import Path
from headgate.workloads.task import TaskContext
from headgate.workloads.training import train

rank, output, checkpoint, params = sys.argv[1:]
os.environ["RANK"] = rank
train(TaskContext(
    index=int(rank), count=1, shards=(), output=Path(output), params=json.loads(params),
    checkpoint=Path(checkpoint),
))
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def trained(folder: Path, attempt: int, **params: int) -> tuple[np.ndarray, int]:
    """Train with all processes; return the weights, and the step from which they continued."""
    gang = {"WORLD_SIZE": str(PROCESSES), "MASTER_ADDR": "127.0.0.1"}
    variables = {**os.environ, **gang, "MASTER_PORT": str(free_port())}
    outputs = [folder / f"{attempt}.{rank}" for rank in range(PROCESSES)]
    members = []
    for rank, output in enumerate(outputs):
        checkpoint = folder / f"saved.{rank}"
        checkpoint.mkdir(exist_ok=True)
        arguments = [str(rank), str(output), str(checkpoint), json.dumps(params)]
        command = [sys.executable, "-c", MEMBER, *arguments]
        members.append(subprocess.Popen(command, env=variables))
    assert [member.wait(60) for member in members] == [0] * PROCESSES
    assert [output.exists() for output in outputs] == [True, False, False]
    with np.load(outputs[0]) as model:
        return model["weights"], int(model["first"])


def test_processes_find_the_solution_and_continue_from_the_checkpoint(tmp_path: Path) -> None:
    weights, first = trained(tmp_path, 1, steps=25, save_every=10)
    assert first == 0
    assert not np.allclose(weights, solution(), rtol=1e-9)
    weights, first = trained(tmp_path, 2, steps=250)
    assert first == 20
    assert np.allclose(weights, solution(), rtol=1e-9)
