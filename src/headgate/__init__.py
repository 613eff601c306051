"""Headgate: fair shares of a GPU cluster, near the data, with a reason for every wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headgate.api.client import Client
    from headgate.base.errors import HeadgateError, SpecError, WorldError

__all__ = ["Client", "HeadgateError", "SpecError", "WorldError"]


def __getattr__(name: str) -> Any:
    """Import the Python API at its first use: processes of the cluster do not need it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from headgate.api import client
    from headgate.base import errors

    return client.Client if name == "Client" else getattr(errors, name)
