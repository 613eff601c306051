"""Notes of runs that use more than they hold: executors leave them for the agent of their node."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from headgate.live.base.permissions import make_private, write_private
from headgate.live.run.run_meter import Peaks
from headgate.model import Demand, RunId
from headgate.protocol import OverUse

FRESH_S = 30.0
"""An older note is of a run whose executor has died: notes are written at each look at a run."""


def notes_directory(root: Path, node: str) -> Path:
    """Return the directory of the notes on a node; `root` is Headgate's directory there."""
    return root / node / "over"


def note_use(directory: Path, run: RunId, holds: Demand, uses: Peaks) -> None:
    """Leave a note of a run that uses more memory, also of a GPU, than it holds, or remove it.

    One that requests no memory, or holds whole GPUs, has no amount to exceed there; of one that
    requests a share of a GPU, what that is in bytes is not known here. A note that cannot
    be written is left out.
    """
    memory_bytes = uses.memory_bytes if 0 < holds.memory_bytes < uses.memory_bytes else 0
    gpu_bytes = uses.gpu_bytes if holds.in_part and uses.gpu_bytes > holds.gpu_memory_bytes else 0
    path = directory / quote(str(run), safe="")
    with suppress(OSError):
        if memory_bytes or gpu_bytes:
            make_private(directory)
            write_private(path, json.dumps([*run, memory_bytes, gpu_bytes]))
        else:
            path.unlink(missing_ok=True)


def noted(directory: Path) -> tuple[OverUse, ...]:
    """Return what the notes of a node say; old ones are removed."""
    found = []
    for path in sorted(directory.glob("*")):
        with suppress(OSError, ValueError):  # it was removed meanwhile, or is an unfinished draft
            if time.time() - path.stat().st_mtime > FRESH_S:
                path.unlink()
                continue
            *run, memory_bytes, gpu_bytes = json.loads(path.read_text())
            found.append(OverUse(RunId(*run), memory_bytes, gpu_bytes))
    return tuple(found)
