"""Start, restart and stop Headgate on this machine."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.base.errors import HeadgateError, Problem, SpecError, WorldError, nearest
from headgate.cli.cluster import joining, option_conflicts, process, show
from headgate.cli.cluster.option_conflicts import config_of
from headgate.cli.common.settings import client_of
from headgate.model import Gpu, Node, Queue
from headgate.model.gpu_models import words_of

if TYPE_CHECKING:
    from headgate.live.base.account import Account
    from headgate.live.base.config import ControllerConfig

DEFAULT_POLICY = "headgate"
GPU_MEMORY_BYTES = 4 << 30
_JOIN_S = 120.0
_LOOK_S = 0.3
_LONGEST_MODEL = 60  # characters: a label of a Ray node has at most 63
ShowProgress = Callable[[str], None]


def start_cluster(
    state: Path,
    *,
    nodes: int | None = None,
    gpus: int | None = None,
    racks: int | None = None,
    gpu_memory_bytes: int | None = None,
    gpu_model: Sequence[str] | None = None,
    policy: str | None = None,
    seed: int | None = None,
    queues: tuple[Queue, ...] | None = None,
    group: str | None = None,
    shared_account: bool = False,
    address: str | None = None,
    token_file: Path | None = None,
    probe_period_s: float | None = None,
    spares: int | None = None,
    scaling: str | None = None,
    show_progress: ShowProgress = lambda _: None,
    **limits: float | None,
) -> dict[str, Any]:
    """Start what does not run yet, wait until all nodes have joined, and return the facts.

    After a failure nothing stays started. A configuration still in `state` holds, except for
    options given here; `limits` are its `keep_results_s`, `retain_s`, `log_limit_bytes` and
    `max_processes`. SpecError `not_in_force` for options that differ from a running Headgate's.
    """
    from headgate.api.address import socket_path
    from headgate.app import POLICIES
    from headgate.live.base.permissions import private_files
    from headgate.live.cluster.need_ray import need_ray
    from headgate.ports import read_live_policy

    socket_path(state)
    chosen, parameters = (None, None) if policy is None else read_live_policy(POLICIES, policy)
    models = tuple(gpu_model) if gpu_model else None
    shape = _given(
        nodes=nodes, gpus=gpus, racks=racks, gpu_memory=gpu_memory_bytes, gpu_model=models
    )
    joining.check(address, token_file, shape)
    planned = _planned(**shape) if shape else []
    given = _given(
        ray_address=address, policy=chosen, parameters=parameters, seed=seed, queues=queues,
        group=group, shared_account=shared_account or None, probe_period_s=probe_period_s,
        spares=spares, scaling=scaling, **limits,
    )  # fmt: skip
    members = _members(state, given)
    need_ray()
    with private_files():
        _make_directory(state, members)
        with process.alone(state):
            if address is not None and (token := joining.token(state, token_file)) is not None:
                given["token"] = token
            facts = _already_up(state)
            if facts is None:
                _set_rights(state, members)
                facts = _start(state, planned, given, show_progress)
            option_conflicts.check(state, given, shape)
            return facts


def placed_by(policy: str | None, place: str | None) -> str | None:
    """Return the text of a policy, by default the default one, with a placer where given."""
    return policy if place is None else f"{policy or DEFAULT_POLICY},place={place}"


def _given(**options: Any) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value is not None}


def stop_cluster(state: Path, *, show_progress: ShowProgress = lambda _: None) -> None:
    """Stop the controller, all jobs and the virtual nodes; a joined Ray cluster stays up."""
    from headgate.live.base.config import remove_config
    from headgate.live.cluster.ray_nodes import stop_nodes
    from headgate.live.run.run_limits import remove_groups

    if not state.is_dir():
        return
    with process.alone(state):
        process.end_controllers(state)
        config = config_of(state)
        if config is not None and config.foreign:
            _leave(config, show_progress)
        stop_nodes(state)
        remove_groups(state / "nodes")
        remove_config(state)


def _planned(
    nodes: int = 8,
    gpus: int = 2,
    racks: int | None = None,
    gpu_memory: int = GPU_MEMORY_BYTES,
    gpu_model: tuple[str, ...] = ("",),
) -> list[Node]:
    """Return virtual nodes in consecutive racks of about equal size, at most two by default.

    They get the models of GPUs in turn.
    """
    _check_models(gpu_model, nodes)
    racks = min(2, nodes) if racks is None else racks
    if racks > nodes:
        text, hint = f"{racks} racks for {nodes} nodes", f"use at most {nodes}"
        problem = Problem(path="--racks", problem=text, hint=hint)
        raise SpecError([problem])
    return [
        Node(
            id=f"n{i}",
            rack=f"r{i * racks // nodes}",
            gpus=(Gpu(memory_bytes=gpu_memory, model=gpu_model[i % len(gpu_model)]),) * gpus,
        )
        for i in range(nodes)
    ]


def _check_models(models: Sequence[str], nodes: int) -> None:
    """Raise SpecError for models that virtual nodes cannot have."""
    text, hint = "", "write one such as H100"
    if len(models) > nodes:
        text, hint = f"{len(models)} models for {nodes} nodes", "a node has GPUs of one model"
    for model in models if models != ("",) else ():
        if not words_of(model) or len(model) > _LONGEST_MODEL:
            text = f"'{model[:_LONGEST_MODEL]}' is no model of GPUs"
    if text:
        raise SpecError([Problem(path="--gpu-model", problem=text, hint=hint)])


def _members(state: Path, given: Mapping[str, Any]) -> str | None:
    """Return the group with access, as given or as configured, if any; SpecError of `_check_group`.

    For a joined Ray cluster nothing is checked here: the controller checks each of its nodes.
    """
    kept = config_of(state)
    group: str | None = given.get("group", None if kept is None else kept.group)
    joins = "ray_address" in given or (kept is not None and kept.foreign)
    if group is not None and not joins:
        shared_account = "shared_account" in given or (kept is not None and kept.shared_account)
        _check_group(state, group, shared_account=shared_account)
    return group


def _check_group(state: Path, group: str, *, shared_account: bool) -> None:
    """Raise SpecError for a group that cannot get access, or would share an account unawares."""
    from headgate.live.base.account import any_member, unusable, why_unusable

    try:
        member = any_member(grp.getgrnam(group).gr_gid)
    except KeyError:
        hint = nearest(group, [entry.gr_name for entry in grp.getgrall()])
        problem = Problem(path="--group", problem=f"there is no group '{group}'", hint=hint)
        raise SpecError([problem]) from None
    if os.geteuid() != 0:
        if not shared_account:
            me = pwd.getpwuid(os.geteuid()).pw_name
            text = f"the jobs of all its members would run as {me}, with all rights of that account"
            hint = "start Headgate as root, or accept that with --shared-account"
            raise SpecError([Problem(path="--group", problem=text, hint=hint)])
        return
    problems = []
    if reason := why_unusable(member):
        problems.append(unusable(f"the members of {group}", reason))
    if closed := _closed(state.absolute().parents, member):
        hint = "choose another state directory (--state-dir DIR), such as one in /var/lib or /srv"
        text = f"the members of {group} cannot reach it: {closed} is closed to them"
        problems.append(Problem(path=str(state), problem=text, hint=hint))
    if problems:
        raise SpecError(problems)


def _closed(parents: Sequence[Path], member: Account) -> Path | None:
    """Return the outermost of `parents` that a member of a group cannot pass through."""
    for place in reversed(parents):
        if not place.exists():
            return None  # it is created with access for the group
        found = place.stat()
        own_group = found.st_gid == member.gid
        if not found.st_mode & (stat.S_IXGRP if own_group else stat.S_IXOTH):
            return place
    return None


def _make_directory(state: Path, group: str | None) -> None:
    """Create the state directory; an existing one stays, and only its owner may write there."""
    with _usable(state):
        if not state.is_dir():
            _set_rights(state, group)
            return
        found = state.stat()
        if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            hint = "choose a directory of your own (--state-dir DIR or HEADGATE_STATE)"
            problem = Problem(path=str(state), problem="other users may write there", hint=hint)
            raise SpecError([problem])


def _set_rights(state: Path, group: str | None) -> None:
    """Close the state directory to all other users; only a group may pass through."""
    from headgate.live.base.permissions import make_private, make_traversable

    with _usable(state):
        if group is None:
            make_private(state)
        else:
            make_traversable(state)
            shutil.chown(state, group=group)
            state.chmod(0o710)


@contextmanager
def _usable(state: Path) -> Iterator[None]:
    try:
        yield
    except LookupError as error:  # for a joined Ray cluster, the group is not checked before
        problem = Problem(path="--group", problem=str(error))
        raise SpecError([problem]) from error
    except OSError as error:
        raise process.unusable(state, error) from error


def _already_up(state: Path) -> dict[str, Any] | None:
    """Return the facts of the Headgate that runs here, None when none runs."""
    try:
        return {**_facts(state), "already_running": True}
    except WorldError as error:
        if process.controllers(state):
            log = f"{process.log_file(state)} says what it does"  # it may wait for its head
            hint = f"{error.problems[0].problem}; {log}; headgate down stops it"
            text = "a controller runs here and does not respond"
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
        "notes": [*show.stand_in_lines(info), *show.in_use_elsewhere(nodes)],
    }


def _start(
    state: Path,
    planned: list[Node],
    given: dict[str, Any],
    show_progress: ShowProgress,
) -> dict[str, Any]:
    """Start the processes that do not run; on a failure, restore the configuration."""
    from headgate.live.base.config import ControllerConfig, load_config, remove_config, save_config
    from headgate.live.cluster.ray_nodes import HEAD, alive, local_cluster, start_nodes, stop_nodes

    config, cluster = load_config(state), local_cluster(state)
    if cluster is not None and HEAD not in alive(cluster):
        planned = planned or list(cluster.nodes.values())
        stop_nodes(state)  # the processes ended, perhaps with the machine; their record remains
        cluster = None
    planned = planned or _planned()
    address = given.get("ray_address")
    if cluster is not None and address is not None:
        text, hint = "virtual nodes run here", "headgate down stops them"
        raise SpecError([Problem(path="--address", problem=text, hint=hint)])
    joins = address or (config.ray_address if config is not None and config.foreign else None)
    fresh = cluster is None and (config is None or config.ray_address != joins)
    base = config or ControllerConfig(policy=DEFAULT_POLICY, ray_address="")
    try:
        if joins is not None and cluster is None:
            token = base.token if base.ray_address == joins else None
            connection = {"ray_address": joins, "token": token, "foreign": True}
            expected: set[str] = set()
        else:
            if cluster is None:
                show_progress(f"starting {len(planned)} virtual nodes")
                cluster = start_nodes(state, planned)
            else:
                show_progress("the nodes are running; only the controller is started")
            connection = {"ray_address": cluster.address, "token": cluster.token, "foreign": False}
            expected = set(alive(cluster)) - {HEAD}
        save_config(state, replace(base, **{**connection, **given}))
        facts = _start_controller(state, expected, show_progress)
        return facts | {"notes": [*facts["notes"], *_open_ports(state)]}
    except BaseException:
        if fresh:
            stop_nodes(state)
            remove_config(state)
        elif config is not None:
            save_config(state, config)
        raise


def _open_ports(state: Path) -> list[str]:
    """Return a warning if the packet filter is not in force for the virtual nodes, if any run."""
    from headgate.live.cluster.ray_nodes import local_cluster, why_open

    cluster = local_cluster(state)
    if cluster is None or not (problem := why_open(cluster)):
        return []
    text = "Warning: any user of this machine can end these nodes with all runs"
    return [
        f"{text}, since no packet filter closes Ray's ports: {problem}; see docs/live.md, Ports"
    ]


def _start_controller(
    state: Path, expected: set[str], show_progress: ShowProgress
) -> dict[str, Any]:
    """Start the controller and wait until all of these nodes (or any) have joined."""
    show_progress("starting the controller")
    log_start = process.log_size(state)
    child = process.start_controller(state)
    until = time.monotonic() + _JOIN_S
    try:
        while not (up_now := _joined(state)) or not expected <= up_now:
            failure = None
            if process.has_ended(child):
                failure = "the controller ended during its start"
            elif time.monotonic() > until:
                failure = f"{_joining(up_now, expected)} after {_JOIN_S:g} s"
            if failure is not None:
                raise _not_started(state, failure, process.tail(state, log_start))
            show_progress(_joining(up_now, expected))
            time.sleep(_LOOK_S)
    except BaseException:
        process.end_controllers(state)
        raise
    return {**_facts(state), "already_running": False}


def _not_started(state: Path, failure: str, tail: str) -> HeadgateError:
    config = config_of(state)
    if config is not None and config.foreign and joining.REFUSED in tail:
        return joining.refused(config.ray_address, config.token)
    hint = f"the end of {process.log_file(state)}:\n{tail}"
    return WorldError([Problem(path=str(state), problem=failure, hint=hint)])


def _joining(up_now: set[str], expected: set[str]) -> str:
    if not expected:
        return "no node has joined"
    return f"{len(up_now & expected)} of {len(expected)} nodes have joined"


def _joined(state: Path) -> set[str]:
    """Return the nodes that this controller has seen; without a report, they are of the journal."""
    try:
        with client_of(state) as client:
            return {n["id"] for n in client.nodes() if n["state"] == "up" and n["report"]}
    except WorldError:
        return set()  # it does not respond yet


def _leave(config: ControllerConfig, show_progress: ShowProgress) -> None:
    """Stop Headgate's actors on a joined Ray cluster."""
    from headgate.live.actors.leave import leave

    try:
        leave(config.ray_address, token=config.token)
    except WorldError as error:
        show_progress(f"Headgate's processes on {config.ray_address} could not be stopped: {error}")
