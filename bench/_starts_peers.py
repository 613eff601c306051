"""Many small jobs and tasks on HyperQueue and on Ray, for `many_starts.py`.

`_starts_peers.py hyperqueue|ray JOBS TASKS`, in an environment that has the Python package of
HyperQueue, or Ray: with `ray[default]` also its job server, else only tasks are measured. Both get
what Headgate has in its bench: four workers or Ray nodes on this machine, with room for two tasks
each. HyperQueue's Python API gives workers no GPUs, so there a core stands for a GPU.
"""

from __future__ import annotations

import importlib.util
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

NODES, ROOM = 4, 2


def work(index: int) -> str:
    """Return the text of a number, as the function of Headgate's bench writes it."""
    return str(index)


def spawn() -> int:
    """Return the exit status of `true`."""
    return subprocess.run(["true"], check=False).returncode


def measured(what: str, run: Callable[[], str]) -> None:
    """Do some work, and print how long it took, with the CPU seconds of the machine meanwhile."""
    before, started = psutil.cpu_times(), time.monotonic()
    text = run()
    took_s, after = time.monotonic() - started, psutil.cpu_times()
    busy = after.user + after.system - before.user - before.system
    print(f"{what}: {took_s:.1f} s, {busy:.1f} s of CPU time{text}", flush=True)


def started_after(starts_s: list[float]) -> str:
    """Return the median and p99 of times in words."""
    starts_s.sort()
    last = starts_s[min(len(starts_s) - 1, round(0.99 * len(starts_s)))]
    return f"; program started after {statistics.median(starts_s):.2f} s, p99 {last:.2f} s"


def hyperqueue_rows(directory: str, jobs: int, tasks: int) -> None:
    """Measure HyperQueue."""
    import hyperqueue
    from hyperqueue.cluster import WorkerConfig
    from hyperqueue.task.function import PythonEnv

    os.chdir(directory)
    with hyperqueue.LocalCluster() as cluster:
        for _ in range(NODES):
            cluster.start_worker(WorkerConfig(cores=ROOM))
        client = cluster.client(python_env=PythonEnv(python_bin=sys.executable))

        def submitted(command: list[str], count: int = 1) -> Any:
            job = hyperqueue.Job()
            for _ in range(count):
                job.program(command)
            return client.submit(job)

        def together() -> str:
            client.wait_for_jobs([submitted(["true"]) for _ in range(jobs)])
            return ""

        def in_turn() -> str:
            starts_s = []
            for number in range(jobs):
                at = time.time()
                job = hyperqueue.Job()
                job.program(["date", "+%s.%N"], stdout=f"{directory}/started-{number}")
                client.wait_for_jobs([client.submit(job)])
                started = Path(directory, f"started-{number}")
                starts_s.append(float(started.read_text()) - at)
            return started_after(starts_s)

        def shells() -> str:
            client.wait_for_jobs([submitted(["true"], tasks)])
            return ""

        def functions() -> str:
            job = hyperqueue.Job()
            for index in range(tasks):
                job.function(work, args=(index,))
            client.wait_for_jobs([client.submit(job)])
            return ""

        measured(f"HyperQueue: {jobs} jobs of `true`", together)
        measured(f"HyperQueue: {jobs} jobs one after the other", in_turn)
        measured(f"HyperQueue: {tasks} programs in one job", shells)
        measured(f"HyperQueue: {tasks} function tasks", functions)


def ray_rows(directory: str, jobs: int, tasks: int) -> None:
    """Measure Ray: tasks of one driver, then jobs of its job server, if there is one."""
    import ray
    from ray.cluster_utils import Cluster

    served = importlib.util.find_spec("aiohttp_cors") is not None  # of ray[default]
    head = {"num_gpus": ROOM, "num_cpus": ROOM, "include_dashboard": served}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(NODES - 1):
        cluster.add_node(num_gpus=ROOM, num_cpus=ROOM)
    context = ray.init(address=cluster.address, logging_level="ERROR")
    shell = ray.remote(num_gpus=1, num_cpus=0)(spawn)
    function = ray.remote(num_gpus=1, num_cpus=0)(work)

    def shells() -> str:
        ray.get([shell.remote() for _ in range(tasks)])
        return ""

    def functions() -> str:
        ray.get([function.remote(index) for index in range(tasks)])
        return ""

    measured(f"Ray: {tasks} tasks that spawn `true`", shells)
    measured(f"Ray: {tasks} tasks of a function", functions)
    if served:
        ray_job_rows(f"http://{context.dashboard_url}", directory, jobs)
    ray.shutdown()
    cluster.shutdown()


def ray_job_rows(server: str, directory: str, jobs: int) -> None:
    """Measure jobs of Ray's job server."""
    from ray.job_submission import JobSubmissionClient

    client = JobSubmissionClient(server)

    def wait(job: str) -> None:
        while not client.get_job_status(job).is_terminal():
            time.sleep(0.05)

    def together() -> str:
        submitted = [client.submit_job(entrypoint="true") for _ in range(jobs)]
        for job in submitted:
            wait(job)
        failed = sum(client.get_job_status(job) != "SUCCEEDED" for job in submitted)
        return f", {failed} failed" if failed else ""

    def in_turn() -> str:
        starts_s = []
        for number in range(jobs):
            started, at = f"{directory}/started-{number}", time.time()
            wait(client.submit_job(entrypoint=f"date +%s.%N > {started}"))
            starts_s.append(float(Path(started).read_text()) - at)
        return started_after(starts_s)

    measured(f"Ray: {jobs} jobs one after the other", in_turn)
    measured(f"Ray: {jobs} jobs of `true`", together)


def main() -> None:
    """Measure one of them."""
    rows = {"hyperqueue": hyperqueue_rows, "ray": ray_rows}[sys.argv[1]]
    with tempfile.TemporaryDirectory(prefix="hg-peers-") as directory:
        rows(directory, int(sys.argv[2]), int(sys.argv[3]))


if __name__ == "__main__":
    main()
