"""The composition root: the table of all policies, and the controller's process."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from headgate.base.errors import HeadgateError, WorldError
from headgate.policies.table import OWN
from headgate.ports import PolicyInfo, choose_policy
from headgate.ports.installed import installed_policies

POLICIES: Mapping[str, PolicyInfo] = installed_policies(OWN)
"""Every policy by its name, in the order of listing: built-in ones, then installed ones."""


def run_controller(state: Path) -> None:
    """Run the controller of a state directory until SIGTERM or SIGINT.

    It reads the configuration that `headgate up` wrote there. Runs continue after its end.
    Raises WorldError without a configuration, where the socket is in use, or when the Ray cluster
    cannot be reached; SpecError for an unknown policy or parameter.
    """
    from headgate.api.address import socket_path
    from headgate.api.app import make_app
    from headgate.api.archived import record_of
    from headgate.api.server import Server, listen
    from headgate.live.base.config import load_config, save_config
    from headgate.live.base.permissions import PRIVATE_UMASK
    from headgate.live.cluster.head import ensure_head, restart_process, watch_head
    from headgate.live.cluster.ray_nodes import connect, local_cluster
    from headgate.live.controller.controller import Controller

    os.umask(PRIVATE_UMASK)  # files of the controller are closed to all other users
    config = load_config(state)
    if config is None:
        raise WorldError(f"{state} has no configuration; headgate up writes it")
    ending = threading.Event()
    policies = partial(choose_policy, POLICIES, config.policy, config.parameters)
    policies(None)  # a wrong policy is reported before any process starts
    listener = listen(socket_path(state), group=config.group)
    if not config.foreign and (started := ensure_head(state)) not in (None, config.ray_address):
        config = replace(config, ray_address=started)
        save_config(state, config)
    on_loss = partial(_head_lost, config.ray_address) if config.foreign else restart_process
    cluster = None if config.foreign else local_cluster(state)
    watch = partial(watch_head, config.ray_address, on_loss, cluster=cluster)
    threading.Thread(target=watch, name="head", daemon=True).start()
    connect(config.ray_address, token=config.token)
    for number in (signal.SIGTERM, signal.SIGINT):  # after Ray, which sets handlers of its own
        signal.signal(number, lambda *_: ending.set())
    controller = Controller(state=state, config=config, policies=policies, record_of=record_of)
    controller.start()
    server = Server(make_app(controller), listener)
    server.start()
    logging.getLogger(__name__).info("up: policy %s, state %s", config.policy, state)
    ending.wait()
    server.stop()
    controller.stop()


def _head_lost(address: str) -> None:
    logging.getLogger(__name__).critical(
        "the Ray cluster at %s does not respond: nothing is started or stopped until it does; if"
        " its head has ended, so does the controller within a minute: run headgate up again then",
        address,
    )


def main() -> int:
    """Run `python -m headgate.app controller --state DIR`, which `headgate up` starts."""
    parser = argparse.ArgumentParser(prog="python -m headgate.app")
    parser.add_argument("what", choices=["controller"])
    parser.add_argument("--state", type=Path, required=True)
    arguments = parser.parse_args()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        run_controller(arguments.state)
    except HeadgateError as error:
        logging.getLogger(__name__).critical("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    status = main()
    logging.shutdown()
    os._exit(status)  # all is closed by now; Ray takes three seconds more to disconnect at exit
