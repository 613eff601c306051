"""A controller on a test bed, and waiting for what it reports."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headgate.api.address import socket_path
from headgate.api.client import Client
from headgate.base.errors import WorldError
from headgate.cli.cluster import process

if TYPE_CHECKING:
    from headgate.experiments.bed import Bed

_TIMEOUT_S = 120.0
_LOOK_S = 0.25


@contextmanager
def controller(
    bed: Bed,
    policy: str = "headgate",
    *,
    parameters: Mapping[str, float] | None = None,
    probe_period_s: float = 0.0,
) -> Iterator[Client]:
    """Run a controller on the head of a test bed, and yield a client of it.

    WorldError when it ends, or not all nodes join within two minutes.
    """
    from headgate.live.base.config import ControllerConfig, save_config

    state, cluster = bed.state, bed.cluster
    config = ControllerConfig(
        spares=0,
        policy=policy,
        parameters=dict(parameters or {}),
        ray_address=cluster.address,
        token=cluster.token,
        probe_period_s=probe_period_s,
    )
    save_config(state, config)
    start = process.log_size(state)
    with process.log_file(state).open("ab") as log:
        child = subprocess.Popen(
            [*bed.enter, *process.controller_command(state)],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches only this process, which stops it
        )
    try:
        with Client(socket_path(state)) as client:

            def up() -> bool:
                if child.poll() is not None:
                    log = process.tail(state, start)
                    raise WorldError(f"the controller ended during its start:\n{log}")
                reports = [n["report"] for n in _nodes(client)]
                return len(reports) == len(bed.nodes) and None not in reports

            until(up, "all nodes have joined")
            yield client
    finally:
        child.terminate()
        try:
            child.wait(30)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def until(truth: Callable[[], bool], what: str, timeout_s: float = _TIMEOUT_S) -> None:
    """Wait until something is true; WorldError `not_finished` after `timeout_s` seconds."""
    end = time.monotonic() + timeout_s
    while not truth():
        if time.monotonic() > end:
            raise WorldError(f"after {timeout_s:g} s still not: {what}", code="not_finished")
        time.sleep(_LOOK_S)


def _nodes(client: Client) -> list[dict[str, Any]]:
    try:
        return client.nodes()
    except WorldError:
        return []  # it does not respond yet
