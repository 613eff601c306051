"""Comparison of the options of `up` with the configuration of a running Headgate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.base.errors import Problem, SpecError, WorldError
from headgate.base.units import format_seconds, format_size
from headgate.cli.common.settings import client_of
from headgate.model.gpu_models import words_of
from headgate.ports import Value, value_text, with_current_names

if TYPE_CHECKING:
    from headgate.live.base.config import ControllerConfig

_OPTIONS = {
    "ray_address": "--address",
    "token": "--token-file",
    "log_limit_bytes": "--log-limit",
}
_HINT = "to apply it: headgate down, then headgate up with all options"


def check(state: Path, given: Mapping[str, Any], shape: Mapping[str, Any]) -> None:
    """Raise SpecError `not_in_force` with every option that differs from the running Headgate.

    `given` are fields of the configuration, `shape` options about virtual nodes.
    """
    if not given and not shape:
        return
    config = config_of(state)
    if config is None:
        text = "its configuration cannot be read, so options cannot be compared with it"
        problems = [Problem(path=str(state), problem=text, hint="headgate up without options")]
    else:
        found = [*_options(config, given), *_nodes(state, config, shape)]
        problems = [Problem(path=path, problem=text, hint=_HINT) for path, text in found]
    if problems:
        raise SpecError(problems, code="not_in_force")


def config_of(state: Path) -> ControllerConfig | None:
    """Return the configuration; None when it does not exist or cannot be read."""
    from headgate.live.base.config import load_config

    try:
        return load_config(state)
    except WorldError:
        return None


def _options(config: ControllerConfig, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "policy" in given and _policy(config.policy, config.parameters) != _policy(
        given["policy"], given["parameters"]
    ):
        parameters = "".join(
            f",{key}={value_text(value)}" for key, value in config.parameters.items()
        )
        yield "--policy", f"{config.policy}{parameters} is in force"
    for key, value in given.items():
        held = getattr(config, key)
        if key in ("policy", "parameters") or held == value:
            continue
        text = f"{_shown(key, held)} is in force"
        if key == "queues":
            text = "other queues are in force"
        elif key == "scaling":
            text = "another scaling file is in force" if held else "none is in force"
        yield _OPTIONS.get(key, f"--{key.removesuffix('_s').replace('_', '-')}"), text


def _policy(name: str, parameters: Mapping[str, Value]) -> tuple[str, dict[str, Value]]:
    """Return a policy with all its parameters."""
    from headgate.app import POLICIES

    if name not in POLICIES:
        return name, dict(parameters)
    info = POLICIES[name]
    defaults = {p.name: p.default for p in info.parameters}
    return name, defaults | with_current_names(info, parameters)


def _shown(key: str, value: Any) -> str:
    """Return the value of a field in the form of its option."""
    if value is None or value is False:
        return "none"
    if key in ("keep_results_s", "retain_s"):
        return "forever" if math.isinf(value) else format_seconds(value)
    if key == "log_limit_bytes":
        return format_size(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _nodes(
    state: Path, config: ControllerConfig, shape: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield the options about virtual nodes that differ from the running nodes, with messages."""
    from headgate.live.cluster.ray_nodes import local_cluster

    if not shape:
        return
    cluster = local_cluster(state)
    if cluster is not None:  # as started, also those that are down
        own = [n for name, n in cluster.nodes.items() if name not in cluster.ordered]
        nodes = [asdict(node) for node in own]
    else:
        with client_of(state) as client:
            nodes = [node for node in client.nodes() if node["state"] == "up"]
    held = {
        "nodes": {len(nodes)},
        "gpus": {len(node["gpus"]) for node in nodes},
        "racks": {len({node["rack"] for node in nodes})},
        "gpu_memory": {gpu["memory_bytes"] for node in nodes for gpu in node["gpus"]},
    }
    models = [gpu["model"] for node in nodes for gpu in node["gpus"][:1]]
    for key, value in shape.items():
        option = f"--{key.replace('_', '-')}"
        if config.foreign:
            yield option, f"no virtual nodes: the Ray cluster at {config.ray_address} is joined"
        elif key == "gpu_model":
            pairs = zip(models, cycle(value), strict=False)
            if any(words_of(held) != words_of(given) for held, given in pairs):
                values = " and ".join(dict.fromkeys(filter(None, models))) or "none"
                yield option, f"{values} is in force"
        elif held[key] != {value}:
            show = format_size if key == "gpu_memory" else str
            values = " and ".join(map(show, sorted(held[key]))) or "none"
            yield option, f"{values} is in force"
