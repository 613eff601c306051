"""Masters and executors started before jobs.

`python -m headgate.live.actors.warm STATE ACCOUNT...` starts them. For measurements on nodes that
share one machine: there the processes of several accounts, all started at the same time, would
delay each other. They end as usual.
"""

from __future__ import annotations

import sys
from pathlib import Path

from headgate.base.errors import WorldError
from headgate.live.actors.master import start_executor
from headgate.live.actors.masters import start_master
from headgate.live.base.config import load_config
from headgate.live.cluster.ray_nodes import connect, members

_START_S = 180.0


def warm(state: Path, accounts: list[str]) -> None:
    """Start a master here and an executor on every node for each account; wait for them."""
    import ray

    config = load_config(state)
    if config is None:
        raise WorldError(f"{state} has no configuration; headgate up writes it")
    connect(config.ray_address, token=config.token)
    root = state / "nodes"
    masters = [start_master(account, root) for account in accounts]
    executors = [
        start_executor(account, m.name, m.ray_id, root=str(root))
        for account in accounts
        for m in members()
    ]
    responses = [master.stop.remote([]) for master in masters]
    responses += [executor.begin.remote([]) for executor in executors]
    ray.get(responses, timeout=_START_S)
    ray.shutdown()


if __name__ == "__main__":
    warm(Path(sys.argv[1]), sys.argv[2:])
