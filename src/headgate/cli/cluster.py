"""A Headgate on this machine: brought up from nothing, gone on with, and taken down to nothing."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.base.errors import Problem, SpecError, WorldError
from headgate.cli import process
from headgate.cli.settings import client_of
from headgate.model import Gpu, Node, Queue

if TYPE_CHECKING:
    from headgate.live.config import ControllerConfig

DEFAULT_POLICY = "headgate"
GPU_MEMORY_BYTES = 4 << 30
_JOIN_S = 120.0
_LOOK_S = 0.3
Say = Callable[[str], None]


def bring_up(
    state: Path,
    *,
    nodes: int = 8,
    gpus: int = 2,
    racks: int | None = None,
    gpu_memory_bytes: int = GPU_MEMORY_BYTES,
    policy: str | None = None,
    seed: int | None = None,
    queues: tuple[Queue, ...] | None = None,
    group: str | None = None,
    address: str | None = None,
    probe_period_s: float | None = None,
    keep_results_s: float | None = None,
    say: Say = lambda _: None,
) -> dict[str, Any]:
    """Start what does not run yet, wait until all nodes have joined, and return the facts.

    Without `racks`, nodes stand in two where there are that many. `say` is told what is going on.
    On a failure nothing that was started stays. A configuration that is still in `state` is that
    of a Headgate that nobody took down: it is gone on with, but for what is given here.
    """
    from headgate.api.address import socket_path
    from headgate.app import POLICIES
    from headgate.decision import make_policy

    socket_path(state)
    make_policy(POLICIES, policy or DEFAULT_POLICY)
    planned = _planned(nodes, gpus, min(2, nodes) if racks is None else racks, gpu_memory_bytes)
    options = {
        "policy": policy,
        "seed": seed,
        "queues": queues,
        "group": group,
        "probe_period_s": probe_period_s,
        "keep_results_s": keep_results_s,
    }
    given = {key: value for key, value in options.items() if value is not None}
    _make_directory(state, group)
    with process.alone(state):
        return _already_up(state) or _start(state, planned, given, address, say)


def take_down(state: Path, *, say: Say = lambda _: None) -> None:
    """End the controller, all jobs and the virtual nodes; a Ray cluster that was joined stays."""
    from headgate.live.config import remove_config
    from headgate.live.ray_nodes import stop_nodes

    if not state.is_dir():
        return
    with process.alone(state):
        process.end_controllers(state)
        config = config_of(state)
        if config is not None and config.foreign:
            _leave(config, say)
        stop_nodes(state)
        remove_config(state)


def _planned(nodes: int, gpus: int, racks: int, gpu_memory_bytes: int) -> list[Node]:
    """Return virtual nodes, spread over racks in turn of their numbers."""
    if racks > nodes:
        problem = Problem(path="--racks", problem=f"{racks} racks for {nodes} nodes")
        raise SpecError([problem])
    return [
        Node(
            id=f"n{i}",
            rack=f"r{i * racks // nodes}",
            gpus=(Gpu(memory_bytes=gpu_memory_bytes),) * gpus,
        )
        for i in range(nodes)
    ]


def _make_directory(state: Path, group: str | None) -> None:
    """Make the state directory, which nobody else may look into; a group may pass through."""
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        if group is not None:
            shutil.chown(state, group=group)
            state.chmod(0o710)
    except LookupError:
        problem = Problem(path="--group", problem=f"there is no group '{group}'")
        raise SpecError([problem]) from None
    except OSError as error:
        problem = Problem(path=str(state), problem=f"cannot be used: {error.strerror}")
        raise WorldError([problem]) from error


def _already_up(state: Path) -> dict[str, Any] | None:
    """Return the facts of the Headgate that runs here, None when none does."""
    try:
        return {**_facts(state), "already_running": True}
    except WorldError as error:
        if process.controllers(state):
            hint = f"{error.problems[0].problem}; headgate down ends it"
            text = "a controller runs here and does not answer"
            raise WorldError(
                [Problem(path=str(state), problem=text, hint=hint)], code="unreachable"
            ) from error
        return None


def _facts(state: Path) -> dict[str, Any]:
    with client_of(state) as client:
        info, nodes = client.info(), client.nodes()
    return {
        "state": str(state),
        "pid": info["pid"],
        "policy": info["policy"],
        "nodes": sum(node["state"] == "up" for node in nodes),
    }


def _start(
    state: Path,
    planned: list[Node],
    given: dict[str, Any],
    address: str | None,
    say: Say,
) -> dict[str, Any]:
    from headgate.live.config import ControllerConfig, load_config, remove_config, save_config
    from headgate.live.ray_nodes import HEAD, alive, local_cluster, start_nodes, stop_nodes

    config, cluster = load_config(state), local_cluster(state)
    if cluster is not None and HEAD not in alive(cluster):
        stop_nodes(state)  # only the record is left, perhaps since before the machine's last start
        cluster = None
    if cluster is not None and address is not None:
        text, hint = "nodes of our own run here", "headgate down ends them"
        raise SpecError([Problem(path="--address", problem=text, hint=hint)])
    joins = address or (config.ray_address if config is not None and config.foreign else None)
    fresh = cluster is None and (config is None or config.ray_address != joins)
    base = config or ControllerConfig(policy=DEFAULT_POLICY, ray_address="")
    try:
        if joins is not None and cluster is None:
            at = {"ray_address": joins, "token": None, "foreign": True}
            expected: set[str] = set()
        else:
            if cluster is None:
                say(f"starting {len(planned)} virtual nodes")
                cluster = start_nodes(state, planned)
            else:
                say("the nodes run already; only the controller is started")
            at = {"ray_address": cluster.address, "token": cluster.token, "foreign": False}
            expected = set(alive(cluster)) - {HEAD}
        save_config(state, replace(base, **{**at, **given}))
        return _start_controller(state, expected, say)
    except BaseException:
        if fresh:
            stop_nodes(state)
            remove_config(state)
        raise


def _start_controller(state: Path, expected: set[str], say: Say) -> dict[str, Any]:
    """Start the controller and wait until all of these nodes (or any) have joined."""
    say("starting the controller")
    log_start = process.log_size(state)
    child = process.start_controller(state)
    until = time.monotonic() + _JOIN_S
    try:
        while not (up_now := _joined(state)) or not expected <= up_now:
            failure = None
            if process.has_ended(child):
                failure = "the controller ended while it started"
            elif time.monotonic() > until:
                failure = f"{_joining(up_now, expected)} after {_JOIN_S:g} s"
            if failure is not None:
                hint = f"the end of {process.log_file(state)}:\n{process.tail(state, log_start)}"
                raise WorldError([Problem(path=str(state), problem=failure, hint=hint)])
            say(_joining(up_now, expected))
            time.sleep(_LOOK_S)
    except BaseException:
        process.end_controllers(state)
        raise
    return {**_facts(state), "already_running": False}


def _joining(up_now: set[str], expected: set[str]) -> str:
    if not expected:
        return "no node has joined"
    return f"{len(up_now & expected)} of {len(expected)} nodes have joined"


def _joined(state: Path) -> set[str]:
    try:
        with client_of(state) as client:
            return {node["id"] for node in client.nodes() if node["state"] == "up"}
    except WorldError:
        return set()  # it does not answer yet


def config_of(state: Path) -> ControllerConfig | None:
    """Return the configuration; None when there is none, or none that can be read."""
    from headgate.live.config import load_config

    try:
        return load_config(state)
    except WorldError:
        return None  # `down` must work when things are broken


def _leave(config: ControllerConfig, say: Say) -> None:
    """End what we run on a Ray cluster that is not ours."""
    from headgate.live.leave import leave

    try:
        leave(config.ray_address, token=config.token)
    except WorldError as error:
        say(f"what ran on {config.ray_address} could not be ended: {error}")
