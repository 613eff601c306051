"""The demo's jobs of three users: their data, job files, and the checks of their results."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headgate.workloads.generate import Inputs, generate
from headgate.workloads.training import solution
from headgate.workloads.verify import verify

_MIB = 1 << 20
_MAP = "a map over data"

USERS = RAY, GANG, MAPS = ("ann", "ben", "cho")
"""Three users, of equal shares: a queue each, since all their jobs run as one account here."""

_SEARCH = """\
import os, time
import ray

@ray.remote(num_gpus=1)
def train(rate):
    x = 0.0
    for _ in range(20):
        x -= rate * 2 * (x - 3)
        time.sleep(0.1)
    return abs(x - 3), rate

ray.init()
rates = [0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.1]
error, best = min(ray.get([train.remote(rate) for rate in rates]))
with open(os.environ["HEADGATE_OUTPUT"], "w") as file:
    file.write(str(best))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoJob:
    """A job of the demo; `what` says of which kind it is.

    `job` is its job file, as text or as a path, from where files that it names are sent. `data`:
    name of a dataset -> its file and shard size in bytes, cut at line ends if `lines`. `results`:
    the number of last tasks whose results make up the job's result. `wrong` returns how that
    result is wrong, "" if it is right.
    """

    name: str
    what: str
    data: Mapping[str, tuple[Path, int]]
    job: str | Path
    results: int
    wrong: Callable[[Sequence[Path]], str]
    lines: bool = False


def make_jobs(folder: Path, seed: int) -> list[DemoJob]:
    """Write the inputs, some 270 MB, into a folder and return the jobs that read them."""
    return [
        _integers("occurrence", "count", folder, 128 * _MIB, 16, seed),
        _search(folder / "search"),
        _training(),
        _integers("primes", "find", folder, 24 * _MIB, 12, seed),
        _product(folder, 64 * _MIB, 6, seed),
        _lines(folder, 1_000_000, 8, seed),
    ]


def _integers(
    workload: str, stage: str, folder: Path, size_bytes: int, shards: int, seed: int
) -> DemoJob:
    inputs = generate(workload, folder, size_bytes, seed=seed)
    module = f"headgate.workloads.{workload}"
    text = f"""\
name: {workload}
queue: {MAPS}
data: {{ints: {{from: {workload}-ints}}}}
tasks:
  for_each: ints
  run: "{module}:{stage}"
  params: {json.dumps(dict(inputs.params))}
  resources: {{gpus: 1, gpu_memory: 1GiB}}
reduce:
  run: "{module}:merge"
"""
    data = {f"{workload}-ints": (inputs.files["ints"], inputs.shard_bytes(shards))}
    return DemoJob(name=workload, what=_MAP, data=data, job=text, results=1, wrong=_checked(inputs))


def _checked(inputs: Inputs) -> Callable[[Sequence[Path]], str]:
    return lambda results: verify(inputs, results)


def _training() -> DemoJob:
    """Return a gang: a training with a process on each of four nodes, two GPUs each."""
    what = "a gang: 2 GPUs on each of 4 nodes"
    text = f"""\
name: train
queue: {GANG}
num_nodes: 4
tasks:
  run: headgate.workloads.training:train
  params: {{steps: 300, pause_s: 0.02}}
  resources: {{gpus: 2}}
"""

    def wrong(results: Sequence[Path]) -> str:
        with np.load(results[0]) as model:
            right = np.allclose(model["weights"], solution(), rtol=1e-9)
        return "" if right else "the weights differ from the solution in closed form"

    return DemoJob(name="train", what=what, data={}, job=text, results=4, wrong=wrong)


def _search(folder: Path) -> DemoJob:
    """Return a plain Ray program: a search over learning rates, each trial on a GPU."""
    what = "a plain Ray program on 4 GPUs"
    folder.mkdir()
    (folder / "search.py").write_text(_SEARCH)
    file = folder / "search.yaml"
    file.write_text(f"""\
name: search
queue: {RAY}
ray: {{script: search.py, resources: {{gpus: 4}}}}
""")

    def wrong(results: Sequence[Path]) -> str:
        found = results[0].read_text()
        return "" if found == "0.5" else f"the best rate is {found}, not 0.5"

    return DemoJob(name="search", what=what, data={}, job=file, results=4, wrong=wrong)


def _product(folder: Path, size_bytes: int, blocks: int, seed: int) -> DemoJob:
    inputs = generate("matmul", folder, size_bytes, seed=seed)
    params = json.dumps(dict(inputs.params))
    text = f"""\
name: matmul
queue: {MAPS}
data:
  left: {{from: matmul-left}}
  right: {{from: matmul-right}}
tasks:
  for_each: [left, right]
  run: "headgate.workloads.matmul:multiply"
  params: {params}
  resources: {{gpus: 1, gpu_memory: 2GiB}}
reduce:
  run: "headgate.workloads.matmul:add"
  tasks: 2
  params: {params}
"""
    shard_bytes = inputs.shard_bytes(blocks)
    data = {f"matmul-{side}": (path, shard_bytes) for side, path in inputs.files.items()}
    return DemoJob(name="matmul", what=_MAP, data=data, job=text, results=2, wrong=_checked(inputs))


def _lines(folder: Path, lines: int, shards: int, seed: int) -> DemoJob:
    """Return a job of shell commands: count the lines of a text that contain an error."""
    path = folder / "log.txt"
    kinds = np.array(["info", "warning", "error"])
    levels = np.random.default_rng(seed).choice(3, lines, p=[0.9, 0.09, 0.01])
    with path.open("w") as file:
        for number, level in enumerate(kinds[levels].tolist()):
            file.write(f"{number:012d} {level} {number * 7919:024d}\n")
    errors = int((levels == 2).sum())
    text = f"""\
name: errors
queue: {MAPS}
data: {{log: {{from: demo-log}}}}
tasks:
  for_each: log
  run: "grep -c ' error ' {{shard}} > {{output}}"
reduce:
  run: "awk '{{sum += $1}} END {{print sum}}' {{shards}} > {{output}}"
"""

    def wrong(results: Sequence[Path]) -> str:
        found = results[0].read_text().strip()
        return "" if found == str(errors) else f"{found} errors counted, {errors} are right"

    data = {"demo-log": (path, path.stat().st_size // shards)}
    return DemoJob(
        name="errors", what=_MAP, data=data, job=text, results=1, wrong=wrong, lines=True
    )
