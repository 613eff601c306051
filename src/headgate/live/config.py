"""What a controller is started with: `up` writes it into the state directory, it reads it there."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from headgate.base.errors import Problem, WorldError
from headgate.live.private import write_private
from headgate.model import Queue

PROBE_PERIOD_S = 15.0
"""Seconds between rounds of probes, unless told."""

RETAIN_S = 86_400.0
"""Seconds that an ended job stays in the state before it is archived, unless told."""

_FILE = "config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """All that a controller is told; `token` is the path of the Ray cluster's token file, if any.

    `group` may use the socket beside its owner; with `shared_account` also where nodes do not run
    as root, so that all its jobs have the same rights. A `foreign` Ray cluster was there before us
    and is left alone when we end. Bandwidth is probed every `probe_period_s`; 0: only when nodes
    join. Jobs that do not say so are kept for `keep_results_s` after their end; `inf` is for ever.
    Ended jobs stay in the state for `retain_s` before they are archived.
    """

    policy: str
    ray_address: str
    parameters: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    queues: tuple[Queue, ...] = ()
    token: str | None = None
    group: str | None = None
    shared_account: bool = False
    foreign: bool = False
    probe_period_s: float = PROBE_PERIOD_S
    keep_results_s: float = math.inf
    retain_s: float = RETAIN_S


def save_config(state: Path, config: ControllerConfig) -> None:
    """Write the configuration of the state directory, whole or not at all."""
    try:
        write_private(state / _FILE, json.dumps(asdict(config), indent=1))
    except OSError as error:
        text = f"cannot be written: {error.strerror}"
        raise WorldError([Problem(path=str(state / _FILE), problem=text)]) from error


def load_config(state: Path) -> ControllerConfig | None:
    """Return the configuration of the state directory, None when it has none.

    Raise WorldError for one that cannot be read.
    """
    file = state / _FILE
    try:
        fields = json.loads(file.read_text())
        queues = tuple(Queue(**queue) for queue in fields.pop("queues"))
        return ControllerConfig(**fields, queues=queues)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        hint = "headgate down, then headgate up writes it anew"
        problem = Problem(path=str(file), problem=f"cannot be read: {error}", hint=hint)
        raise WorldError([problem]) from error


def remove_config(state: Path) -> None:
    """Forget the configuration: nobody is to go on with it."""
    (state / _FILE).unlink(missing_ok=True)
