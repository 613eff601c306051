"""A command hook: a program of the administrator that makes and removes nodes.

It gets one JSON object on stdin: `{"action": "create", "key": ..., "shape": {...}}` or `{"action":
"remove", "key": ...}`, and ends with status 0 when that is under way, or done. Its last line on
stderr is the text of a failure. The same key may come again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from headgate.live.cluster.providers import ProviderError
from headgate.model.scaling import Shape
from headgate.spec.document import clipped


class CommandHook:
    """Runs a program for each request, which may take `timeout_s` seconds."""

    def __init__(self, argv: Sequence[str], *, timeout_s: float) -> None:
        self._argv, self._timeout_s = tuple(argv), timeout_s

    async def create(self, key: str, shape: Shape) -> None:
        """Let the program make a node."""
        await self._request({"action": "create", "key": key, "shape": shape_json(shape)})

    async def remove(self, key: str) -> None:
        """Let the program remove a node."""
        await self._request({"action": "remove", "key": key})

    async def _request(self, request: dict[str, Any]) -> None:
        try:
            child = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise ProviderError(f"{self._argv[0]}: {error.strerror}") from error
        try:
            body = json.dumps(request).encode()
            _, errors = await asyncio.wait_for(child.communicate(body), self._timeout_s)
        except TimeoutError:
            raise ProviderError(f"{self._argv[0]} did not end in {self._timeout_s:g} s") from None
        finally:
            if child.returncode is None:
                with suppress(ProcessLookupError):
                    child.kill()
                await child.wait()
        if child.returncode:
            lines = errors.decode(errors="replace").strip().splitlines()
            said = f": {clipped(lines[-1])}" if lines else ""
            raise ProviderError(f"{self._argv[0]} ended with status {child.returncode}{said}")


def shape_json(shape: Shape) -> dict[str, Any]:
    """Return a shape as the hook reads it."""
    return {
        "name": shape.name,
        "cpus": shape.cpus,
        "gpus": len(shape.gpus),
        "gpu_model": shape.gpus[0].model if shape.gpus else "",
        "gpu_memory_bytes": min((gpu.memory_bytes for gpu in shape.gpus), default=None),
        "memory_bytes": shape.memory_bytes,
        "custom": {name: milli / 1000 for name, milli in shape.custom},
        "labels": list(shape.labels),
    }
