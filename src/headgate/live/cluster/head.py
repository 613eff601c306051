"""The head of a local cluster: when it ends or hangs, it is started again with all nodes.

With its head a Ray cluster loses every actor, and Ray ends the head's drivers within a minute; one
that hangs blocks them. The controller waits for neither: it restarts in the same process
(`restart_process`), starts the cluster and continues from the journal, as after any other end of
the controller.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from headgate.base.errors import WorldError
from headgate.live.cluster.node_supervisor import node_backoff, not_steady
from headgate.live.cluster.ray_nodes import HEAD, LocalCluster, age_s, local_cluster, restart_nodes

log = logging.getLogger(__name__)

_LOOK_S = 1.0
_FAILURES = 3  # consecutive: not a transient fault
_RESPONSE_S = 15.0
_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # and no settings


def is_down(address: str) -> bool:
    """Return whether no process listens at an address, or it hangs: no response within 15 s.

    A gRPC server, as Ray's head is, responds to the first bytes of any connection. While its
    process hangs, the kernel still accepts connections.
    """
    host, _, port = address.rpartition(":")
    try:
        where = (host.strip("[]"), int(port))
        with socket.create_connection(where, timeout=_RESPONSE_S) as connection:
            connection.sendall(_HTTP2)
            connection.recv(1)
    except (ConnectionRefusedError, TimeoutError):
        return True
    except OSError:
        return False
    return False


def watch_head(
    address: str, on_loss: Callable[[], None], *, cluster: LocalCluster | None = None
) -> None:
    """Wait until the head is down at three consecutive looks, then call `on_loss`.

    Of a local `cluster`, its process is looked at, too.
    """
    failures = 0
    while failures < _FAILURES:
        time.sleep(_LOOK_S)
        ended = cluster is not None and not _runs(cluster)
        failures = failures + 1 if ended or is_down(address) else 0
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
    down. Waits before each attempt, as for a node, and never gives up: what ends the head may be
    out of our hands, and end later.
    """
    while True:
        cluster = local_cluster(state)
        if cluster is None:
            return None
        if HEAD not in cluster.sessions or (_runs(cluster) and not is_down(cluster.address)):
            return cluster.address
        backoff = node_backoff()
        backoff.failures = cluster.head_starts
        pause_s = backoff.failed(after_s=time.time() - cluster.head_started_at)
        log.warning(
            "the head of the cluster is down; it is started in %.0f s with all nodes, attempt %d",
            pause_s, backoff.failures,
        )  # fmt: skip
        if problem := not_steady(state, HEAD, backoff):
            log.error("%s", problem)
        time.sleep(pause_s)
        try:
            restart_nodes(state, head_starts=backoff.failures)
        except WorldError as error:
            log.error("the cluster could not be started: %s", error)  # complete without a traceback


def _runs(cluster: LocalCluster) -> bool:
    """Return whether the head's first process runs.

    When it has ended, another cluster may have taken its port, which responds then: Ray listens on
    every address of the machine.
    """
    return age_s(cluster, HEAD) is not None
