"""What runs use that is more than they hold, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.base.text import enumerated
from headgate.base.units import format_size

_NAMES = {"memory": "memory", "gpu_memory": "memory of a GPU"}


def over_text(over: Mapping[str, Any]) -> str:
    """Return what a run uses and holds: `uses 41 GiB of memory, holds 32 GiB`."""
    parts = []
    for kind, name in _NAMES.items():
        if (each := over[kind]) is not None:
            used, held = format_size(each["used_bytes"]), format_size(each["held_bytes"])
            parts.append(f"uses {used} of {name}, holds {held}")
    return enumerated(parts)
