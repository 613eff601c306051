"""Starting and ending the actors of accounts: masters, with their executors."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from headgate.live.actors.master import Master
from headgate.live.cluster.names import (
    account_actors,
    account_of,
    actors_of_earlier_releases,
    all_actors,
    forget_name,
    is_executor,
    master_name,
    named_actor,
)
from headgate.live.cluster.ray_nodes import NAMESPACE


def start_master(account: str, root: Path, *, grace_s: float = 20.0) -> Any:
    """Return the handle of an account's master, started on this node if it does not run."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    with suppress(ValueError):
        return named_actor(master_name(account))
    here = ray.get_runtime_context().get_node_id()
    return (
        ray.remote(Master)
        .options(
            name=master_name(account),
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            max_restarts=-1,
            scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False),
        )
        .remote(account=account, root=str(root), grace_s=grace_s)
    )


def end_account(account: str, *, wait_s: float = 5.0) -> None:
    """End an account's master, its executors and all their processes; results and logs stay.

    Runs in progress are killed. Idempotent; blocks for up to about `wait_s` seconds.
    """
    import ray

    executors = []
    names = [name for name in account_actors() if account_of(name) == account]
    for name in names:  # the master first: it would start executors again
        for actor in all_actors(name):
            if is_executor(name):
                executors.append(actor)
            else:
                ray.kill(actor, no_restart=True)
    closed: list[Any] = [executor.close.remote() for executor in executors]
    if closed:
        ray.wait(closed, num_returns=len(closed), timeout=wait_s)
    for executor in executors:
        ray.kill(executor, no_restart=True)
    for name in names:
        forget_name(name)


def end_earlier_actors() -> None:
    """End the masters and executors of earlier releases; their runs end with them."""
    import ray

    for name in actors_of_earlier_releases():
        for actor in all_actors(name):
            ray.kill(actor, no_restart=True)
        forget_name(name)


def accounts_with_actors() -> tuple[str, ...]:
    """Return the accounts that have a master or an executor."""
    return tuple(sorted({account_of(name) for name in account_actors()}))
