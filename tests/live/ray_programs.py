"""Ray programs for tests, and what they report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.live import grpc_call
from tests.live.system import System

# Prints, as one line of JSON, what it sees of its cluster, with the GPUs of its tasks by node.
LOOK = """
import json, os, sys, time
from pathlib import Path
import ray

ray.init()

@ray.remote(num_gpus=1, num_cpus=1)
def gpus():
    time.sleep(1)
    return ray.get_runtime_context().get_node_id(), os.environ["CUDA_VISIBLE_DEVICES"]

@ray.remote(num_cpus=0)
class Left:
    def up(self):
        return True

def look():
    found = {kind: n for kind, n in ray.cluster_resources().items() if kind in ("CPU", "GPU")}
    here = {}
    for node, gpu in ray.get([gpus.remote() for _ in range(int(found.get("GPU", 0)))]):
        here.setdefault(node, []).append(gpu)
    found["here"] = sorted(sorted(gpu) for gpu in here.values())
    found["user"] = os.getuid()
    return {**found, "directory": os.environ["RAY_TMPDIR"], "address": os.environ["RAY_ADDRESS"]}

def report(**found):
    print("LOOK " + json.dumps(found), flush=True)
"""
# Meets the other one, tries to read its token and to end its cluster, and its own without a token.
PAIR = f"""{LOOK}
import subprocess
folder, mine, other = sys.argv[1:]
found = look()
Path(folder, f"{{mine}}.new").write_text(json.dumps(found))
Path(folder, f"{{mine}}.new").rename(Path(folder, mine))
while not Path(folder, other).exists():
    time.sleep(0.1)
their = json.loads(Path(folder, other).read_text())
code = "import ray, sys; ray.init(address=sys.argv[1])"
if mine == "a":
    found["reads_token"] = os.access(Path(their["directory"], "token"), os.R_OK)
    call = [sys.executable, "-I", Path(folder, "call.py"), "/ray.rpc.syncer.RaySyncer/StartSync"]
    called = subprocess.run([*call, their["address"]], capture_output=True)
    (found["call"],) = json.loads(called.stdout)
    bare = {{name: text for name, text in os.environ.items() if not name.startswith("RAY_")}}
    own = [sys.executable, "-c", code, found["address"]]
    tried = subprocess.run(own, capture_output=True, text=True, env=bare)
    found |= {{"status": tried.returncode, "error": tried.stderr}}
    Path(folder, "done").touch()
while not Path(folder, "done").exists():
    time.sleep(0.1)
report(**found)
"""


def ray_job(folder: Path, script: str, *args: object, **keys: Any) -> str:
    """Return a job file that runs a script, which is put into a folder."""
    file = folder / "script.py"
    file.write_text(script)
    ray = {"script": str(file), "args": [str(arg) for arg in args], "retries": 0}
    return json.dumps({"name": "ray", "ray": ray, **keys})


def pair(folder: Path) -> tuple[str, str]:
    """Return two jobs, of a GPU each, that run at the same time and meet in a folder."""
    (folder / "call.py").write_text(Path(grpc_call.__file__).read_text())
    gpu = {"gpus": 1}
    first = ray_job(folder, PAIR, folder, "a", "b", resources=gpu)
    return first, ray_job(folder, PAIR, folder, "b", "a", resources=gpu)


def log_of(headgate: System, job: str) -> str:
    """Return the log of a program."""
    return str(headgate.client.log(job, 0, attempt=None, offset=0)["text"])


def seen(headgate: System, job: str) -> dict[str, Any]:
    """Return what a program has reported."""
    text = log_of(headgate, job)
    (line,) = [line for line in text.splitlines() if line.startswith("LOOK ")]
    found: dict[str, Any] = json.loads(line.removeprefix("LOOK "))
    return found
