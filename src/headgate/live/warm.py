"""Executors started ahead of their jobs, on all nodes: `python -m headgate.live.warm STATE JOB...`.

For measurements on nodes that share one machine: there the executors of several jobs, all begun at
the same moment, would wait for each other's start. They end with their jobs as ever.
"""

from __future__ import annotations

import sys
from pathlib import Path

from headgate.base.errors import WorldError
from headgate.live.config import load_config
from headgate.live.master import start_executor
from headgate.live.ray_nodes import connect, members

_START_S = 180.0


def warm(state: Path, jobs: list[str]) -> None:
    """Start an executor for each of these jobs on every node, and wait until all answer."""
    import ray

    config = load_config(state)
    if config is None:
        raise WorldError(f"{state} has no configuration; headgate up writes it")
    connect(config.ray_address, token=config.token)
    root = str(state / "nodes")
    executors = [start_executor(j, m.name, m.ray_id, root=root) for j in jobs for m in members()]
    ray.get([executor.begin.remote([]) for executor in executors], timeout=_START_S)
    ray.shutdown()


if __name__ == "__main__":
    warm(Path(sys.argv[1]), sys.argv[2:])
