"""The test bed: racks with a shaped uplink, nodes that can be disconnected."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.live.bed import HAS_NETWORK, Bed, remove_leftovers

from headgate.live.cluster.ray_nodes import local_cluster

pytestmark = [
    pytest.mark.live,
    pytest.mark.root,
    pytest.mark.skipif(not HAS_NETWORK, reason="needs root and iproute2"),
]

UNTIL_NODES = """
end = time.monotonic() + 30
while (up := [m.name for m in members()]) != sys.argv[2:] and time.monotonic() < end:
    time.sleep(0.1)
print('ANSWER', json.dumps(up))
"""
RATES = """
agents = {m.name: start_agent(m, state / "nodes", token="bed") for m in members()}
rates = {}
for reader, server in (("n0", "n2"), ("n2", "n0")):
    at = ray.get(agents[server].report.remote())
    call = agents[reader].time_transfer.remote(at.host, at.port)
    rates[f"{reader} from {server}"] = ray.get(call) * 8 / 1e6
print('ANSWER', json.dumps(rates))
"""
DRIVER = """
import json, sys, time
from pathlib import Path
from headgate.live.actors.agent import start_agent
from headgate.live.cluster.ray_nodes import connect, local_cluster, members
state = Path(sys.argv[1])
cluster = local_cluster(state)
connect(cluster.address, token=cluster.token)
import ray
"""


def _drive(bed: Bed, script: str, *arguments: str) -> Any:
    """Run a driver on the bed's head and return its answer; Ray prints notices beside it."""
    done = subprocess.run(
        [*bed.enter, sys.executable, "-c", DRIVER + script, str(bed.state), *arguments],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    (answer,) = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    return json.loads(answer.removeprefix("ANSWER "))


def test_racks_are_shaped_and_nodes_are_lost_and_found() -> None:
    with Bed({"r0": 2, "r1": 1}) as bed:
        bed.shape("r1", mbit_per_s=40)
        rates = _drive(bed, RATES)
        assert 0 < rates["n0 from n2"] < 44
        assert 0 < rates["n2 from n0"] < 44
        bed.shape("r1", mbit_per_s=16)
        assert 0 < _drive(bed, RATES)["n0 from n2"] < 18, "changed live"
        bed.partition("n1", cut=True)
        left = ["n0", "n2"]
        assert _drive(bed, UNTIL_NODES, *left) == left, "the head misses the node"
        bed.crash("n1")
        bed.partition("n1", cut=False)
        bed.restart("n1")
        every = ["n0", "n1", "n2"]
        assert _drive(bed, UNTIL_NODES, *every) == every, "the node is back"
        state = bed.state
    assert not state.exists()
    assert local_cluster(state) is None
    spaces = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    assert state.name not in spaces


def test_a_bed_of_a_dead_process_is_removed() -> None:
    script = (
        "import os, signal; from tests.live.bed import Bed; bed = Bed({}); bed.__enter__(); "
        "print(bed.state, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        check=False,
        cwd=Path(__file__).parents[2],
        text=True,
        timeout=60,
    )
    name = done.stdout.strip().rpartition("/")[2]
    assert name, done.stderr
    remove_leftovers()
    spaces = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    assert name not in spaces
