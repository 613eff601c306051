"""Headgate: fair shares of a GPU cluster, near the data, with a reason for every wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headgate.api.client import Client
    from headgate.api.executor import Executor, map  # noqa: A004  # the cluster's `map`
    from headgate.base.errors import HeadgateError, SpecError, WorldError

__all__ = ["Client", "Executor", "HeadgateError", "SpecError", "WorldError", "map"]


def __getattr__(name: str) -> Any:
    """Import the Python API at its first use: processes of the cluster do not need it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("Executor", "map"):
        from headgate.api import executor

        return getattr(executor, name)
    from headgate.api import client
    from headgate.base import errors

    return client.Client if name == "Client" else getattr(errors, name)
