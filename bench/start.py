"""Start times: CPU time of verbs, and the time from a job's submission to its program's start.

A Headgate of one virtual node is started. CPU time of a verb is also given as a ratio to that of an
interpreter that does nothing. Jobs are submitted one after the other, with a pause in which spares
start again; `cold` is a Headgate without spares.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from headgate.api.client import Client

HEADGATE = str(Path(sys.executable).parent / "headgate")
JOB = "{name: start, run: 'date +%s.%N', resources: {gpus: 1}}"
VERBS = (
    "--version",
    "up --help",
    "simulate --help",
    "policies",
    "jobs",
    "get {job}",
    "why {job}",
    "logs {job}",
    "submit {file}",
    "cancel {job}",
)


def cpu_s(command: list[str], env: dict[str, str], times: int = 5) -> float:
    """Return the least CPU time of a command, in seconds."""
    took = []
    for _ in range(times):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, capture_output=True, check=False, env=env)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(took)


def print_verbs(env: dict[str, str], job: str, file: Path) -> None:
    """Print one row per verb."""
    nothing_s = cpu_s([sys.executable, "-c", "pass"], env)
    print("verb              CPU s  times python -c pass")
    for verb in VERBS:
        words = [word.format(job=job, file=file) for word in verb.split()]
        took_s = cpu_s([HEADGATE, *words], env)
        name = " ".join(words[:1] if "{" in verb else words)
        print(f"{name:<16} {took_s:>6.3f} {took_s / nothing_s:>6.1f}")


def print_starts(client: Client, what: str, jobs: int, pause_s: float) -> None:
    """Print the times of jobs from submission: run accepted, program started, end seen here."""
    rows = []
    for _ in range(jobs):
        time.sleep(pause_s)
        submitted = time.time()
        job = client.submit(JOB)
        client.wait(job)
        seen_s = time.time() - submitted
        (task,) = client.tasks(job)
        program_s = float("".join(client.logs(job))) - submitted
        rows.append((program_s, task["started_at"] - submitted, seen_s))
    rows.sort()
    print(f"{what}: median of {jobs} jobs: accepted {rows[jobs // 2][1]:.2f} s,", end=" ")
    print(
        f"program started {rows[jobs // 2][0]:.2f} s, end seen {rows[jobs // 2][2]:.2f} s,", end=" "
    )
    print(f"least {rows[0][0]:.2f} s, most {rows[-1][0]:.2f} s until the program started")


def main() -> None:
    """Measure a Headgate with spares, then one without."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=5)
    parser.add_argument("--pause", type=float, default=8.0, help="seconds between jobs")
    arguments = parser.parse_args()
    for what, spares in (("warm", 1), ("cold", 0)):
        with tempfile.TemporaryDirectory(prefix="hg-start-", dir="/tmp") as name:
            state = Path(name) / "state"
            env = {**os.environ, "HEADGATE_STATE": str(state)}
            up = [HEADGATE, "up", "--nodes=1", "--gpus=1", f"--spares={spares}"]
            subprocess.run(up, check=True, stdout=subprocess.DEVNULL, env=env)
            try:
                with Client(state=state) as client:
                    print_starts(client, what, arguments.jobs, arguments.pause)
                    if spares:
                        file = Path(name) / "job.yaml"
                        file.write_text(JOB)
                        print_verbs(env, client.submit(JOB), file)
            finally:
                down = [HEADGATE, "down", "-y"]
                subprocess.run(down, check=True, stdout=subprocess.DEVNULL, env=env)


if __name__ == "__main__":
    main()
