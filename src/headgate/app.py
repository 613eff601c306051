"""Where the parts are put together: the policies that there are, the controller's process."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from headgate.base.errors import HeadgateError, WorldError
from headgate.foresight.outlook import choose
from headgate.policies import fifo, flow, greedy, yarn
from headgate.ports import PolicyInfo
from headgate.ports.installed import installed_policies

_OWN = (
    flow.HEADGATE,
    fifo.INFO,
    flow.FS,
    flow.FSP,
    flow.FSU,
    greedy.GS,
    greedy.GSP,
    greedy.GSD,
    yarn.CAPACITY,
    yarn.FAIR,
)
POLICIES: Mapping[str, PolicyInfo] = installed_policies({info.name: info for info in _OWN})
"""Every policy by its name, in the order in which they are listed: ours, then installed ones."""


def run_controller(state: Path) -> None:
    """Run the controller of a state directory until it is asked to end by SIGTERM or SIGINT.

    It reads what `headgate up` wrote there. What runs on the cluster goes on when it ends.
    """
    from headgate.api.address import socket_path
    from headgate.api.app import make_app
    from headgate.api.server import Server, listen
    from headgate.live.config import load_config
    from headgate.live.controller import Controller
    from headgate.live.private import PRIVATE_UMASK
    from headgate.live.ray_nodes import connect

    os.umask(PRIVATE_UMASK)  # no other user looks into what a controller writes
    config = load_config(state)
    if config is None:
        raise WorldError(f"{state} has no configuration; headgate up writes it")
    ending = threading.Event()
    policies = partial(choose, POLICIES, config.policy, config.parameters)
    policies(None)  # what is wrong with it is told before anything is begun
    listener = listen(socket_path(state), group=config.group)
    connect(config.ray_address, token=config.token)
    for number in (signal.SIGTERM, signal.SIGINT):  # after Ray, which sets handlers of its own
        signal.signal(number, lambda *_: ending.set())
    controller = Controller(
        state=state,
        policies=policies,
        seed=config.seed,
        queues=config.queues,
        facts={"state": str(state), "ray_address": config.ray_address, "seed": config.seed},
        separate_users=config.group is not None and not config.shared_account,
        check_users=not config.foreign,
        probe_period_s=config.probe_period_s,
        keep_results_s=config.keep_results_s,
    )
    controller.start()
    server = Server(make_app(controller), listener)
    server.start()
    logging.getLogger(__name__).info("up: policy %s, state %s", config.policy, state)
    ending.wait()
    server.stop()
    controller.stop()


def main() -> int:
    """Run `python -m headgate.app controller --state DIR`: what `headgate up` starts."""
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
    sys.exit(main())
