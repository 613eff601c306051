"""The places of the logs of runs."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from headgate.model import RunId


def logs_directory(root: Path, node: str) -> Path:
    """Return the directory of the logs of runs on a node, with one subdirectory per job.

    `root` is Headgate's directory on the node.
    """
    return root / node / "logs"


def log_path(root: Path, node: str, run: RunId) -> Path:
    """Return the log file of a run on its node."""
    directory = logs_directory(root, node) / quote(run.job, safe="")
    return directory / f"{run.ordinal}.{run.attempt}.log"
