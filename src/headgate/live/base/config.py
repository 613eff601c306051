"""Configuration of a controller, written by `headgate up` into the state directory."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from headgate.base.errors import Problem, WorldError
from headgate.live.base.log_limit import LOG_LIMIT_BYTES
from headgate.live.base.permissions import write_private
from headgate.model import Queue

PROBE_PERIOD_S = 15.0
"""Default seconds between rounds of probes."""

RETAIN_S = 86_400.0
"""Default seconds that an ended job stays in the state before it is archived."""

SPARES = 1
"""Default number of spares on each node."""

MOST_PROCESSES = 4096
"""Default of the most processes and threads of a run on a node."""

_FILE = "config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """Options of a controller; `token` is the path of the Ray cluster's token file, if any.

    Members of `group` may use the socket beside its owner; with `shared_account` also where nodes
    do not run as root, so that all jobs have the same rights. A `foreign` Ray cluster was not
    started by Headgate and is not stopped by it. Bandwidth is probed every `probe_period_s`
    seconds; 0: only when nodes join. Jobs without a retention of their own keep their results for
    `keep_results_s` seconds after their end; `inf` is forever. Ended jobs stay in the state for
    `retain_s` seconds before they are archived. `spares` executors are kept ready on each node, and
    as many masters beside the controller. Of a log over `log_limit_bytes` the middle is dropped. A
    run has at most `max_processes` processes and threads on a node. `scaling` is the text of a
    scaling file; without one, no node is ordered.
    """

    policy: str
    ray_address: str
    parameters: Mapping[str, float | str] = field(default_factory=dict)
    seed: int = 0
    queues: tuple[Queue, ...] = ()
    token: str | None = None
    group: str | None = None
    shared_account: bool = False
    foreign: bool = False
    probe_period_s: float = PROBE_PERIOD_S
    keep_results_s: float = math.inf
    retain_s: float = RETAIN_S
    log_limit_bytes: int = LOG_LIMIT_BYTES
    max_processes: int = MOST_PROCESSES
    spares: int = SPARES
    scaling: str = ""


def save_config(state: Path, config: ControllerConfig) -> None:
    """Write the configuration of the state directory atomically."""
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
        queues = TypeAdapter(tuple[Queue, ...]).validate_python(fields.pop("queues"))
        return ControllerConfig(**fields, queues=queues)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        hint = "headgate down, then headgate up writes it again"
        problem = Problem(path=str(file), problem=f"cannot be read: {error}", hint=hint)
        raise WorldError([problem]) from error


def remove_config(state: Path) -> None:
    """Remove the configuration, so that no controller continues with it."""
    (state / _FILE).unlink(missing_ok=True)
