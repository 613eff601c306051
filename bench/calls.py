"""Small calls per second: headgate.Executor beside Ray's tasks, and commands beside HyperQueue.

A Headgate of two virtual nodes is started, with two slots of one CPU; then a Ray cluster of two
CPUs, alone. HyperQueue takes part if its program `hq` is on the path (pip install hyperqueue).
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import headgate
from headgate.cli.reproduce.spillover_live import Calls, ExecutorCalls
from headgate.experiments.spillover.live import increased
from headgate.live.calls.ray_calls import RayCalls

SYNC = 2000
COMMANDS = 2000
_HQ = shutil.which("hq")


def spawned(number: int) -> int:
    """Return the exit status of `true`."""
    del number
    return subprocess.run(["true"], check=False).returncode


def measure(what: str, count: int, work: Callable[[], Any]) -> None:
    """Print how many calls per second `work` makes, the best of three."""
    best_s = min(_seconds(work) for _ in range(3))
    sys.stdout.write(f"{what:40} {count / best_s:12,.0f} /s\n")
    sys.stdout.flush()


def _seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def measure_tiny(side: str, calls: Calls, in_flight: Sequence[int]) -> None:
    """Measure the smallest call, one after the other and many in flight."""
    measure(
        f"{side}: one call after the other", SYNC, lambda: calls.one_by_one(increased, range(SYNC))
    )
    for count in in_flight:

        def together(count: int = count) -> None:
            assert sum(calls.together(increased, range(count)))

        measure(f"{side}: {count:,} in flight", count, together)


def measure_headgate(in_flight: Sequence[int]) -> None:
    """Measure on a Headgate of its own."""
    with tempfile.TemporaryDirectory(prefix="hg-calls-", dir="/tmp") as directory:
        state = Path(directory) / "state"
        program = [str(Path(sys.executable).parent / "headgate")]
        there = ["--state-dir", str(state)]
        up = [*program, "up", "--nodes=2", "--gpus=1", "--probe-period=0", *there]
        subprocess.run(up, check=True, stdout=subprocess.DEVNULL)
        try:
            with (
                headgate.Client(state=state) as client,
                headgate.Executor(client=client, slots=2) as executor,
            ):
                executor.submit(increased, 0).result()

                measure_tiny("headgate", ExecutorCalls({1: executor}), in_flight)
                measure(
                    "headgate: calls that spawn `true`",
                    COMMANDS,
                    lambda: list(executor.map(spawned, range(COMMANDS))),
                )
        finally:
            subprocess.run([*program, "down", "-y", *there], check=True, stdout=subprocess.DEVNULL)


def measure_ray(in_flight: Sequence[int]) -> None:
    """Measure on a Ray cluster of two CPUs."""
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    calls = RayCalls()
    calls.together(increased, range(100))
    measure_tiny("ray", calls, in_flight)
    measure(
        "ray: calls that spawn `true`",
        COMMANDS,
        lambda: calls.together(spawned, range(COMMANDS)),
    )
    calls.close()


def measure_hyperqueue() -> None:
    """Measure an array of commands on a HyperQueue server with one worker of two CPUs."""
    if _HQ is None:
        sys.stdout.write("hyperqueue: no program `hq` on the path\n")
        return
    with tempfile.TemporaryDirectory(prefix="hq-", dir="/tmp") as directory:
        there = [_HQ, "--server-dir", directory]
        server = subprocess.Popen([*there, "server", "start"], stdout=subprocess.DEVNULL)
        time.sleep(2)
        worker = subprocess.Popen(
            [*there, "worker", "start", "--cpus=2"], stdout=subprocess.DEVNULL
        )
        time.sleep(2)
        array = f"--array=1-{COMMANDS}"
        submit = [*there, "submit", "--wait", "--stdout=none", "--stderr=none", array, "true"]
        try:
            measure(
                "hyperqueue: `true`",
                COMMANDS,
                lambda: subprocess.run(submit, check=True, stdout=subprocess.DEVNULL),
            )
        finally:
            worker.terminate()
            server.terminate()
            worker.wait()
            server.wait()


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1000, 10_000, 100_000])
    settings = parser.parse_args()
    measure_headgate(settings.in_flight)
    measure_ray(settings.in_flight)
    measure_hyperqueue()


if __name__ == "__main__":
    main()
