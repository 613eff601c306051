"""Providers of nodes: what makes a node of a shape, and removes it.

A provider knows a node by the key of its order alone. All its methods are idempotent: making a key
that exists, or is being made, makes nothing new; removing one that does not exist is no error. The
node joins the Ray cluster under the name of its key (label `headgate-node`).
"""

from __future__ import annotations

from typing import Protocol

from headgate.base.errors import WorldError
from headgate.model.scaling import Shape


class ProviderError(WorldError):
    """A provider failed; the text is for users."""


class Provider(Protocol):
    """Makes and removes nodes; methods raise ProviderError, and may be called again."""

    async def create(self, key: str, shape: Shape) -> None:
        """Make the node of an order, or let its making continue; returns when it is under way."""
        ...

    async def remove(self, key: str) -> None:
        """Remove the node of an order; returns when nothing of it is left."""
        ...
