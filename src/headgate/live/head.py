"""The head of a local cluster: when it is lost, it is started again with all nodes.

With its head a Ray cluster loses every actor, and Ray ends the head's drivers within a minute. The
controller does not wait for that: it restarts in the same process (`restart_process`), starts the
cluster and continues from the journal, as after any other end of the controller.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from headgate.base.errors import Problem, WorldError
from headgate.live.node_supervisor import STARTS, node_backoff
from headgate.live.ray_nodes import HEAD, local_cluster, restart_nodes

log = logging.getLogger(__name__)

_LOOK_S = 1.0
_REFUSALS = 3  # consecutive: not a transient fault
_RESPONSE_S = 5.0


def is_down(address: str) -> bool:
    """Return whether no process listens at an address; a slow one counts as up."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_RESPONSE_S).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def watch_head(address: str, on_loss: Callable[[], None]) -> None:
    """Wait until no process listens at the head's address, then call `on_loss`."""
    refusals = 0
    while refusals < _REFUSALS:
        time.sleep(_LOOK_S)
        refusals = refusals + 1 if is_down(address) else 0
    on_loss()


def restart_process() -> None:
    """Replace this process by a new one with the same arguments; does not return.

    Its threads end and its files are closed: the controller may be killed at any moment anyway.
    """
    log.error("the head of the cluster is lost: the controller restarts, and starts all nodes")
    logging.shutdown()
    os.execv(sys.executable, sys.orig_argv)


def ensure_head(state: Path) -> str | None:
    """Start the recorded cluster again if its head is down, and return the cluster's address.

    None if no cluster started by Headgate is recorded. A head that was stopped on purpose stays
    down. Waits before each attempt, as for a node; WorldError after too many consecutive ones.
    """
    while True:
        cluster = local_cluster(state)
        if cluster is None:
            return None
        if HEAD not in cluster.sessions or not is_down(cluster.address):
            return cluster.address
        backoff = node_backoff()
        backoff.failures = cluster.head_starts
        pause_s = backoff.failed(after_s=time.time() - cluster.head_started_at)
        if backoff.failures > STARTS:
            raise _left_down(state)
        log.warning(
            "the head of the cluster is down; it is started in %.0f s with all nodes, attempt %d",
            pause_s, backoff.failures,
        )  # fmt: skip
        time.sleep(pause_s)
        try:
            restart_nodes(state, head_starts=backoff.failures)
        except WorldError as error:
            log.error("the cluster could not be started: %s", error)  # complete without a traceback


def _left_down(state: Path) -> WorldError:
    text = f"the head of the cluster did not stay up in {STARTS} starts"
    hint = f"its log is {state / 'logs' / f'{HEAD}.log'}; headgate up starts all nodes again"
    return WorldError([Problem(path=str(state), problem=text, hint=hint)])
