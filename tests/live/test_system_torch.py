"""PyTorch with gloo in jobs with `num_nodes`, with `torchrun` and without it.

HEADGATE_TEST_TORCH names the directory of the programs of a Python with PyTorch: `make test-torch`.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from tests.live.system import Headgate

PROGRAMS = os.environ.get("HEADGATE_TEST_TORCH")
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(PROGRAMS is None, reason="needs PyTorch: make test-torch"),
]
TORCHRUN = (
    "torchrun --nnodes=$WORLD_SIZE --node_rank=$NODE_RANK --nproc_per_node=2 "
    "--master_addr=$MASTER_ADDR --master_port=$MASTER_PORT"
)


SYSTEM = {"nodes": 2, "gpus": 2}


@pytest.mark.parametrize(("start", "per_node"), [("python", 1), (TORCHRUN, 2)])
def test_torch_trains_on_two_nodes(
    headgate: Headgate, tmp_path: Path, start: str, per_node: int
) -> None:
    program = shutil.copy(Path(__file__).with_name("torch_training.py"), tmp_path)
    envs = {"PATH": f"{PROGRAMS}:/usr/bin:/bin", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    tasks = {"run": f"{start} {program} {{output}}", "resources": {"gpus": 2}, "retries": 0}
    job = headgate.submit(
        json.dumps({"name": "torch", "num_nodes": 2, "tasks": tasks, "envs": envs})
    )
    headgate.ends(job)
    found = json.loads(headgate.result(job, 0))
    assert found["ranks"] == [[rank, rank // per_node] for rank in range(2 * per_node)]
    assert found["weights"] == pytest.approx([0, 1, 2, 3], abs=1e-9)
