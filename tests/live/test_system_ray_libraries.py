"""Ray's libraries in Ray programs, in a Python of the program with another Ray than Headgate's.

HEADGATE_TEST_RAY names the directory of the programs of a Python with them: `make test-ray`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from tests.live.system import Headgate

PROGRAMS = os.environ.get("HEADGATE_TEST_RAY")
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(PROGRAMS is None, reason="needs Ray's libraries: make test-ray"),
]

POOL = """
from ray.util.multiprocessing import Pool

def square(x):
    return x * x

with Pool(2) as pool:
    found = pool.map(square, range(5))
"""
DATA = """
ray.init()
rows = ray.data.range(100, override_num_blocks=4).filter(lambda row: row["id"] % 2 == 0)
doubled = rows.map_batches(lambda batch: {"id": batch["id"] * 2})
found = int(doubled.sum("id"))
"""
TUNE = """
from ray import tune

def score(config):
    tune.report({"score": (config["x"] - 2) ** 2})

tuner = tune.Tuner(
    score,
    param_space={"x": tune.grid_search([1, 2, 3])},
    run_config=tune.RunConfig(storage_path=os.getcwd()),
)
found = tuner.fit().get_best_result(metric="score", mode="min").config["x"]
"""
TRAIN = """
from ray import train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

def loop(config):
    context = train.get_context()
    with open(f"{config['folder']}/{context.get_world_rank()}", "w") as file:
        file.write(str(context.get_world_size()))
    train.report({"rank": context.get_world_rank()})

trainer = DataParallelTrainer(
    loop,
    train_loop_config={"folder": os.getcwd()},
    scaling_config=train.ScalingConfig(num_workers=2, use_gpu=False),
    run_config=train.RunConfig(storage_path=os.getcwd()),
)
trainer.fit()
found = [open(str(rank)).read() for rank in range(2)]
"""
WRITE = """
with open(os.environ["HEADGATE_OUTPUT"], "w") as file:
    json.dump([found, ray.__version__], file)
"""


@pytest.fixture(scope="module")
def headgate() -> Iterator[Headgate]:
    with Headgate(nodes=1, gpus=1, up=("--racks=1", "--probe-period=0")) as headgate:
        yield headgate


@pytest.mark.parametrize(
    ("program", "expected"),
    [(POOL, [0, 1, 4, 9, 16]), (DATA, 4900), (TUNE, 2), (TRAIN, ["2", "2"])],
    ids=["pool", "data", "tune", "train"],
)
def test_library_runs_on_the_cluster_of_a_program(
    headgate: Headgate, tmp_path: Path, program: str, expected: object
) -> None:
    script = tmp_path / "script.py"
    written = (
        "\nopen(os.environ['HEADGATE_OUTPUT'], 'w').write(json.dumps([found, ray.__version__]))"
    )
    script.write_text(f"import json, os, ray\n{program}{written}")
    described = {"script": str(script), "retries": 0, "resources": {"gpus": 0, "cpus": 4}}
    envs = {"PATH": f"{PROGRAMS}:/usr/bin:/bin"}
    job = headgate.submit(json.dumps({"name": "library", "ray": described, "envs": envs}))
    headgate.until(lambda: headgate.client.job(job)["ended_at"], f"{job} has ended", 300)
    headgate.ends(job)
    found, version = json.loads(headgate.result(job))
    assert found == expected
    assert version != ray.__version__
