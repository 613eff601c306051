"""Nodes on this machine: each a Ray node of the asked size, as `headgate up` starts them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from headgate.base.errors import HeadgateError
from headgate.live.cluster.providers import ProviderError
from headgate.live.cluster.ray_nodes import add_node, drop_node
from headgate.model.scaling import Shape


class LocalRay:
    """Adds nodes to the local cluster of a state directory; its record outlives the controller."""

    def __init__(self, state: Path, *, rack: str = "rack-0") -> None:
        """Nodes join this rack."""
        self._state, self._rack = state, rack

    async def create(self, key: str, shape: Shape) -> None:
        """Start a node, unless it is recorded already: then it is supervised."""
        try:
            await asyncio.to_thread(add_node, self._state, shape.node(key, self._rack))
        except (HeadgateError, OSError) as error:
            raise ProviderError(str(error)) from error

    async def remove(self, key: str) -> None:
        """End the processes of a node and forget it."""
        try:
            await asyncio.to_thread(drop_node, self._state, key)
        except (HeadgateError, OSError) as error:
            raise ProviderError(str(error)) from error
