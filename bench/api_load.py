"""Latency of the API under concurrent clients: p50 and p99 of listing and of submitting.

A Headgate of one virtual node with one GPU is started; the first job holds the GPU, all others
wait. Each client keeps one connection and sends its next request after the last response.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path

import psutil

from headgate.api.address import socket_path
from headgate.api.client import Client

MOST_S = 120.0  # limit of one measurement
JOB = json.dumps({"name": "load", "run": "sleep 600", "resources": {"gpus": 1}})
Request = Callable[[HTTPConnection], None]


class Connection(HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("headgate", timeout=MOST_S)
        self._path = str(path)

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(MOST_S)
        self.sock.connect(self._path)


def request_api(
    connection: HTTPConnection, method: str, route: str, body: str | None = None
) -> None:
    """Send a request and read its response; raise SystemExit on an error."""
    connection.request(method, f"/api/v1{route}", body)
    response = connection.getresponse()
    content = response.read()
    if response.status >= 300:
        raise SystemExit(f"{method} {route}: HTTP {response.status}\n{content.decode()}")


def list_jobs(connection: HTTPConnection) -> None:
    """List the newest 100 jobs."""
    request_api(connection, "GET", "/jobs")


def submit_job(connection: HTTPConnection) -> None:
    """Submit a job of one task."""
    request_api(connection, "POST", "/jobs", JOB)


def measured_ms(path: Path, request: Request, clients: int, each: int) -> list[float]:
    """Return the times of all requests, in milliseconds, ascending; an error of one is raised."""
    took_ms: list[float] = []
    begin = threading.Barrier(clients)

    def client() -> None:
        connection = Connection(path)
        begin.wait()
        end = time.monotonic() + MOST_S
        for _ in range(each):
            started = time.monotonic()
            if started > end:
                break
            request(connection)
            took_ms.append((time.monotonic() - started) * 1e3)
        connection.close()

    with ThreadPoolExecutor(clients) as pool:
        for future in [pool.submit(client) for _ in range(clients)]:
            future.result()
    return sorted(took_ms)


def main() -> None:
    """Start a Headgate and measure it, or measure one that is up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--each", type=int, default=10, help="requests of each client")
    parser.add_argument(
        "--state-dir", type=Path, help="measure the one that is up with this state directory"
    )
    arguments = parser.parse_args()
    if arguments.state_dir is not None:
        measure(arguments.state_dir, arguments.clients, arguments.each)
        return
    with tempfile.TemporaryDirectory(prefix="hg-load-", dir="/tmp") as name:
        state = Path(name) / "state"
        headgate(state, "up", "--nodes=1", "--gpus=1")
        try:
            measure(state, arguments.clients, arguments.each)
        finally:
            headgate(state, "down", "-y")


def measure(state: Path, clients: int, each: int) -> None:
    """Print one row per kind of request."""
    path = socket_path(state)
    with Client(path) as client:
        controller = psutil.Process(client.info()["pid"])
    print("request clients  count  p50 ms  p99 ms  per s  controller's cpu ms each")
    for what, request in (("submit", submit_job), ("list", list_jobs)):
        cpu_s, started = sum(controller.cpu_times()[:2]), time.monotonic()
        took = measured_ms(path, request, clients, each)
        rate = len(took) / (time.monotonic() - started)
        cpu_ms = (sum(controller.cpu_times()[:2]) - cpu_s) * 1e3 / len(took)
        p50, p99 = took[len(took) // 2], took[len(took) * 99 // 100]
        print(
            f"{what:<7} {clients:>7} {len(took):>6} {p50:>7.0f} {p99:>7.0f}"
            f" {rate:>6.0f} {cpu_ms:>8.1f}"
        )


def headgate(state: Path, *arguments: str) -> None:
    """Run a command line."""
    command = [str(Path(sys.executable).parent / "headgate"), *arguments]
    env = {**os.environ, "HEADGATE_STATE": str(state)}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=env)


if __name__ == "__main__":
    main()
