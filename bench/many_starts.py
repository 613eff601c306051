"""Many small jobs and tasks: how long they take from submission to the last end.

A Headgate of virtual nodes on this machine runs, one after the other: jobs of the command `true`,
all submitted together; the same one after the other, with the time from submission to the start of
the program; one job of many shell tasks; one of as many tasks of a Python function. CPU time is
that of all processes of the machine meanwhile, so nothing else should run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from headgate.api.client import Client

HEADGATE = str(Path(sys.executable).parent / "headgate")
FUNCTION = "def work(task):\n    task.output.write_text(str(task.index))\n"
ENDED = ("finished", "failed", "cancelled")


def busy_s() -> float:
    """Return the CPU seconds that this machine has spent."""
    times = psutil.cpu_times()
    return float(times.user + times.system + times.nice + times.irq + times.softirq)


def measured(what: str, work: Callable[[], Any]) -> None:
    """Do some work, and print how long it took."""
    before, started = busy_s(), time.monotonic()
    text = work()
    took_s = time.monotonic() - started
    print(f"{what}: {took_s:.1f} s, {busy_s() - before:.1f} s of CPU time{text or ''}", flush=True)


def wait(client: Client, jobs: list[str]) -> None:
    """Wait until jobs have finished."""
    for job in jobs:
        while (view := client.job(job))["state"] not in ENDED:
            client.wait(job)
        assert view["state"] == "finished", view


def together(client: Client, count: int) -> None:
    """Submit jobs, and wait for all."""
    wait(client, [client.submit("{run: 'true', resources: {gpus: 1}}") for _ in range(count)])


def in_turn(client: Client, count: int) -> str:
    """Submit a job when the one before has ended; return when their programs started."""
    starts_s = []
    for _ in range(count):
        submitted = time.time()
        job = client.submit("{run: 'date +%s.%N', resources: {gpus: 1}}")
        wait(client, [job])
        starts_s.append(float("".join(client.logs(job))) - submitted)
    starts_s.sort()
    last = starts_s[min(count - 1, round(0.99 * count))]
    return f"; program started after {statistics.median(starts_s):.2f} s, p99 {last:.2f} s"


def main() -> None:
    """Measure on one Headgate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=4, help="of two GPUs each")
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--tasks", type=int, default=2000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hg-starts-", dir="/tmp") as name:
        state = Path(name) / "state"
        (Path(name) / "small.py").write_text(FUNCTION)
        env = {**os.environ, "HEADGATE_STATE": str(state)}
        up = [HEADGATE, "up", f"--nodes={arguments.nodes}", "--gpus=2"]
        subprocess.run(up, check=True, stdout=subprocess.DEVNULL, env=env)
        tasks = {"count": arguments.tasks, "resources": {"gpus": 1}}
        try:
            with Client(state=state) as client:
                jobs, number = arguments.jobs, arguments.tasks
                time.sleep(10)  # spares start
                measured(f"{jobs} jobs of `true`", lambda: together(client, jobs))
                measured(f"{jobs} jobs one after the other", lambda: in_turn(client, jobs))
                command = json.dumps({"tasks": {**tasks, "run": "true"}})
                measured(f"{number} shell tasks", lambda: wait(client, [client.submit(command)]))
                function = {"tasks": {**tasks, "run": "small:work"}, "envs": {"PYTHONPATH": name}}
                text = json.dumps(function)
                measured(f"{number} function tasks", lambda: wait(client, [client.submit(text)]))
        finally:
            down = [HEADGATE, "down", "-y"]
            subprocess.run(down, check=True, stdout=subprocess.DEVNULL, env=env)


if __name__ == "__main__":
    main()
