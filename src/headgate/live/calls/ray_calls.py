"""Small calls under Ray's own scheduling, in the cluster to which this process is connected.

For comparisons with `headgate.Executor` on the same nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any


class RayCalls:
    """Calls as Ray tasks, each of which requests CPUs; Ray places them as it does by default."""

    def one_by_one(self, fn: Callable[[Any], Any], arguments: Iterable[Any]) -> list[Any]:
        """Execute one call after the other; return their results."""
        import ray

        task: Any = ray.remote(fn)
        return [ray.get(task.remote(argument)) for argument in arguments]

    def together(self, fn: Callable[[Any], Any], arguments: Iterable[Any]) -> list[Any]:
        """Execute calls that are all in flight; return their results in order."""
        import ray

        task: Any = ray.remote(fn)
        return list(ray.get([task.remote(argument) for argument in arguments]))

    def mixed(self, fn: Callable[[Any], Any], arguments: Sequence[tuple[int, Any]]) -> list[Any]:
        """Like `together`, for pairs: the CPUs that a call requests, and its argument."""
        import ray

        task: Any = ray.remote(fn)
        by_cpus = {cpus: task.options(num_cpus=cpus) for cpus, _ in arguments}
        return list(ray.get([by_cpus[cpus].remote(argument) for cpus, argument in arguments]))

    def close(self) -> None:
        """Disconnect this process from the cluster."""
        import ray

        ray.shutdown()
