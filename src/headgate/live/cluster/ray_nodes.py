"""A Ray cluster of virtual nodes on this machine: started, joined, crashed on purpose and ended.

Every node is one `ray start --block` process in its own session, so it outlives the process that
started it. Its descendants inherit its session and a mark in their environment; a node is ended by
killing every process that has them, never by name alone nor by a process id that may be reused.
Ray binds its ports on every interface, therefore a cluster started here always requires its token,
and a packet filter keeps other users from its ports where that is possible.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import secrets
import shutil
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil

from headgate.base.errors import HeadgateError, WorldError
from headgate.live.base.permissions import private_files, secret, write_private
from headgate.live.cluster.need_ray import need_ray
from headgate.live.cluster.packet_filter import (
    Shield,
    lets_others_in,
    remove_shields_of_the_dead,
    set_shield,
)
from headgate.live.cluster.ray_command import (
    ABOVE_RACKS,
    DRIVER_SETTINGS,
    NAME_LABEL,
    RACK_LABEL,
    SETTINGS,
    head_command,
    labelled_gpus,
    node_command,
    node_labels,
)
from headgate.live.cluster.ray_ports import PortBlock, claimed_ports
from headgate.model import BASE_KINDS, WHOLE, Gpu, Node

NAMESPACE = "headgate"
HEAD = "head"
NODE_MARK = "HEADGATE_RAY_NODE"  # in the environment of all processes of a virtual node

log = logging.getLogger(__name__)

_RECORD = "ray.json"
_LOCK = "ray.json.lock"
_STARTED = "Ray runtime started"
_HEAD_PORTS = 400  # the masters of all accounts run on the head
_NODES_PORTS, _NODE_PORTS = 1600, 200  # for all nodes together, and for each at least


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """The network of a node: an address of this machine, and a command to enter its namespace."""

    address: str
    enter: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCluster:
    """The record, in the state directory, of the virtual nodes that were started for it.

    `seats` has the head first; `nodes` are all others. `sessions` are the session ids of the nodes
    that should be up: a node that was stopped on purpose has none. `head_starts` counts consecutive
    restarts of the head, the last one at `head_started_at`, in seconds since the epoch. `ordered`
    nodes were added later, by name. `ports` are those of the nodes that should be up.
    """

    address: str
    mark: str
    temp: str
    logs: str
    token: str
    seats: dict[str, Seat]
    sessions: dict[str, int]
    nodes: dict[str, Node] = field(default_factory=dict)
    head_starts: int = 0
    head_started_at: float = 0.0
    ordered: list[str] = field(default_factory=list)
    ports: dict[str, PortBlock] = field(default_factory=dict)


_RAY_RESOURCES = ("CPU", "GPU", "memory", "object_store_memory")  # and such as node:10.0.0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class RayMember:
    """A node of the Ray cluster as Ray lists it; a node that returns has another `ray_id`.

    `custom` are its custom resources in thousandths, by name.
    """

    name: str
    ray_id: str
    rack: str
    address: str
    gpus: int
    cpus: int
    gpu_memory_bytes: int | None
    gpu_models: tuple[str, ...] | None = None
    custom: tuple[tuple[str, int], ...] = ()
    labels: tuple[str, ...] = ()


@private_files()
def start_nodes(
    state: Path,
    nodes: Sequence[Node],
    *,
    seats: Sequence[Seat] = (),
    wait_s: float = 120,
) -> LocalCluster:
    """Start a head without GPUs and these virtual nodes, record them in `state`, wait for them.

    `seats` are those of the head and then of every node; by default all use loopback addresses.
    Raises WorldError when Ray is not installed, no ports are free, a cluster of this directory runs
    already, or a node does not come up within `wait_s` seconds (with the end of its log); no
    process is left running then.
    """
    need_ray()
    state.mkdir(parents=True, exist_ok=True)
    if local_cluster(state) is not None:
        raise WorldError(f"{state} already has a cluster; end it first")
    names = (HEAD, *(node.id for node in nodes))
    seats = seats or [Seat(address=_loopback(number)) for number in range(len(names))]
    cluster = LocalCluster(
        address="",  # until its head is started
        mark=secrets.token_hex(8),
        temp=_make_temp(),
        logs=str(state / "logs"),
        token=str(_write_token(state)),
        seats=dict(zip(names, seats, strict=True)),
        sessions={},
        nodes={node.id: node for node in nodes},
    )
    (state / "logs").mkdir(exist_ok=True)
    _write_record(state, cluster)
    try:
        return _spawn_all(state, cluster, nodes, time.monotonic() + wait_s)
    except BaseException:
        stop_nodes(state)
        raise


@private_files()
def restart_nodes(state: Path, *, head_starts: int, wait_s: float = 120) -> None:
    """Start a recorded cluster with a lost head again, at a new address, and wait for its nodes.

    Its remaining processes are killed first; nodes that were stopped on purpose stay down. Raises
    WorldError when a node does not come up within `wait_s` seconds (with the end of its log); no
    process is left running then.
    """
    with _locked(state):
        before = _recorded(state, HEAD)
        _kill(before, tuple(before.seats))
        for session in before.sessions.values():
            with suppress(ChildProcessError):  # collect its exit status, if it was our child
                os.waitpid(session, os.WNOHANG)
        shutil.rmtree(before.temp, ignore_errors=True)
        cluster = replace(
            before,
            temp=_make_temp(),
            head_starts=head_starts,
            head_started_at=time.time(),
        )
        _write_record(state, cluster)
        wanted = [node for name, node in cluster.nodes.items() if name in cluster.sessions]
        try:
            _spawn_all(state, cluster, wanted, time.monotonic() + wait_s)
        except BaseException:
            _kill(cluster, tuple(cluster.seats))
            raise


def _spawn_all(
    state: Path, cluster: LocalCluster, nodes: Sequence[Node], until: float
) -> LocalCluster:
    """Start the head, at a new address, then these nodes; wait for each, and return the record."""
    host, temp = cluster.seats[HEAD].address, f"{cluster.temp}/0"
    with claimed_ports(_HEAD_PORTS) as (ports, claim):
        cluster = replace(cluster, address=f"{host}:{ports.gcs}", ports={HEAD: ports})
        _spawn(state, cluster, HEAD, head_command(HEAD, host, temp, ports), claim)
    _await_started(cluster, (HEAD,), until)
    for node in nodes:
        _spawn_node(state, cluster, node)
    _await_started(cluster, [node.id for node in nodes], until)
    return cluster


def _make_temp() -> str:
    return tempfile.mkdtemp(prefix="hg-", dir="/tmp")  # socket paths must stay below 108 bytes


def start_node(state: Path, node: Node, *, wait_s: float = 60) -> None:
    """Start a recorded node again and wait for it; its remaining processes are killed first.

    Raises WorldError, with the end of its log, when it does not come up within `wait_s` seconds.
    """
    spawn_node(state, node)
    _await_started(_recorded(state, node.id), (node.id,), time.monotonic() + wait_s)


@private_files()
def spawn_node(state: Path, node: Node) -> None:
    """Start a recorded node again without waiting; its remaining processes are killed first."""
    with _locked(state):
        cluster = _recorded(state, node.id)
        _kill(cluster, (node.id,))
        with suppress(ChildProcessError, KeyError):  # collect its exit status, if it was our child
            os.waitpid(cluster.sessions[node.id], os.WNOHANG)
        _spawn_node(state, cluster, node)


def processes_by_node(cluster: LocalCluster) -> dict[str, set[int]]:
    """Return the ids of the running processes of each recorded node."""
    found: dict[str, set[int]] = {name: set() for name in cluster.seats}
    for process, name in _processes(cluster):
        with suppress(psutil.Error):
            found[name] |= {process.pid, *(c.pid for c in process.children(recursive=True))}
    return found


def age_s(cluster: LocalCluster, name: str) -> float | None:
    """Return the age in seconds of a node's top process; None if it is not running."""
    try:
        process = psutil.Process(cluster.sessions[name])
        marked = process.environ().get(NODE_MARK) == f"{cluster.mark}/{name}"
        running = marked and process.status() != psutil.STATUS_ZOMBIE
        return time.time() - process.create_time() if running else None
    except (KeyError, psutil.Error):
        return None


@private_files()
def add_node(state: Path, node: Node) -> None:
    """Record one more node and start it without waiting; nothing happens for a recorded one."""
    with _locked(state):
        cluster = _recorded(state, HEAD)
        if node.id in cluster.nodes:
            return
        used = {seat.address for seat in cluster.seats.values()}
        free = (_loopback(number) for number in range(len(used) + 1))
        cluster.seats[node.id] = Seat(address=next(each for each in free if each not in used))
        cluster.nodes[node.id] = node
        cluster.ordered.append(node.id)
        _spawn_node(state, cluster, node)


def drop_node(state: Path, name: str) -> None:
    """Kill all processes of a node, if it is recorded, and forget it."""
    with _locked(state):
        cluster = _recorded(state, HEAD)
        if name in cluster.nodes:
            _kill(cluster, (name,))
            for record in (cluster.sessions, cluster.nodes, cluster.seats, cluster.ports):
                record.pop(name, None)
            cluster.ordered.remove(name)
            _write_record(state, cluster)
            _shield(cluster)


def kill_node(state: Path, name: str) -> None:
    """Kill all processes of a node; it stays down until it is started again."""
    with _locked(state):
        cluster = _recorded(state, name)
        _kill(cluster, (name,))
        cluster.sessions.pop(name, None)
        cluster.ports.pop(name, None)
        _write_record(state, cluster)


def stop_nodes(state: Path) -> None:
    """Kill every process of the cluster recorded in `state` and remove its files."""
    cluster = local_cluster(state)
    if cluster is None:
        return
    _kill(cluster, tuple(cluster.seats))
    remove_shields_of_the_dead()
    shutil.rmtree(cluster.temp, ignore_errors=True)
    for name in (_RECORD, _LOCK):
        (state / name).unlink(missing_ok=True)


def local_cluster(state: Path) -> LocalCluster | None:
    """Return the cluster recorded in `state`, or None; its nodes may be down (see `alive`)."""
    try:
        fields = json.loads((state / _RECORD).read_text())
    except FileNotFoundError:
        return None
    seats = {
        name: Seat(address=seat["address"], enter=tuple(seat["enter"]))
        for name, seat in fields["seats"].items()
    }
    nodes = {
        name: Node(
            **{
                **node,
                "gpus": tuple(Gpu(**gpu) for gpu in node["gpus"]),
                "custom": tuple((kind, amount) for kind, amount in node["custom"]),
                "labels": tuple(node.get("labels", ())),
            }
        )
        for name, node in fields.get("nodes", {}).items()
    }
    ports = {name: PortBlock(**block) for name, block in fields.get("ports", {}).items()}
    return LocalCluster(**{**fields, "seats": seats, "nodes": nodes, "ports": ports})


def alive(cluster: LocalCluster) -> tuple[str, ...]:
    """Return the names of the recorded nodes that have any process running, in recorded order."""
    running = {name for _, name in _processes(cluster)}
    return tuple(name for name in cluster.seats if name in running)


def connect(address: str, *, token: str | None = None) -> None:
    """Make this process a driver of the Ray cluster at `address`.

    The driver uses the namespace `headgate`: detached actors outlive it and are found by the next
    one. `token` is the path of the cluster's token file, for a cluster that requires one. Raises
    WorldError when no cluster responds there: immediately if no process listens.
    """
    need_ray()
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except (OSError, ValueError) as error:
        raise WorldError(f"no Ray cluster responds at '{address}': {error}") from error
    os.environ.update(DRIVER_SETTINGS)
    if token is not None:
        os.environ.update(_token_settings(token))
        os.environ.pop("RAY_AUTH_TOKEN", None)  # Ray would prefer it
    import ray

    # If Ray was imported before, it must read the environment again; there is no public API for it.
    private: Any = import_module("ray._raylet")
    private.Config.initialize("")
    private.AuthenticationTokenLoader.instance().reset_cache()

    try:
        ray.init(
            address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR
        )
    except Exception as error:  # Ray raises many types here, even bare RuntimeError
        raise WorldError(
            f"no Ray cluster responds at '{address}': {_first_line(error)}; is it one of this "
            f"version, and {'does it ask for no token' if token is None else 'is the token its'}?"
        ) from error


def own_address() -> str:
    """Return the address of this machine at which other nodes of the connected cluster reach it."""
    from ray.util import get_node_ip_address

    return str(get_node_ip_address())  # type: ignore[no-untyped-call]  # Ray ships few types


def members() -> tuple[RayMember, ...]:
    """Return the nodes alive in the connected Ray cluster that have a GPU or a CPU, by name.

    A node without our labels is named by its address, with a part of its id if several share it;
    its rack is `rack-0`, and its agent reports the memory of its GPUs.
    """
    import ray

    entries: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    found = [_member(entry) for entry in entries if entry["Alive"]]
    named = Counter(member.name for member in found)
    found = [
        m if named[m.name] == 1 else replace(m, name=f"{m.name}-{m.ray_id[:8]}") for m in found
    ]
    return tuple(sorted((m for m in found if m.gpus or m.cpus), key=lambda m: m.name))


def short_error(error: Exception) -> str:
    """Return one line for a RayError, whose own text contains another process's traceback."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, HeadgateError):
        return str(cause)
    if isinstance(error, TimeoutError):
        return "it did not respond in time"
    return f"{type(cause or error).__name__}; see the controller's log"


def _member(entry: Mapping[str, Any]) -> RayMember:
    labels, resources = entry["Labels"], entry["Resources"]
    memory_bytes, models = labelled_gpus(labels, int(resources.get("GPU", 0)))
    return RayMember(
        name=labels.get(NAME_LABEL, entry["NodeManagerAddress"]),
        ray_id=entry["NodeID"],
        rack=_rack(labels),
        address=entry["NodeManagerAddress"],
        gpus=int(resources.get("GPU", 0)),
        cpus=int(resources.get("CPU", 0)),
        gpu_memory_bytes=memory_bytes,
        gpu_models=models,
        custom=_custom(resources),
        labels=node_labels(labels),
    )


def _rack(labels: Mapping[str, str]) -> str:
    """Return the path of a rack: `rack-1`, or `a1/rack-1` below the aggregation switch a1."""
    above = [labels[label] for label in ABOVE_RACKS if label in labels]
    return "/".join([*above, labels.get(RACK_LABEL, "rack-0")])


def _custom(resources: Mapping[str, float]) -> tuple[tuple[str, int], ...]:
    """Return the custom resources in thousandths by name, without those of every Ray node."""
    own = {
        name: round(WHOLE * amount)
        for name, amount in resources.items()
        if name not in (*_RAY_RESOURCES, *BASE_KINDS) and ":" not in name
    }
    return tuple(sorted(own.items()))


def _loopback(number: int) -> str:
    """Return the loopback address of a node; Ray replaces 127.0.0.1 by an external address."""
    return f"127.77.{number // 250}.{number % 250 + 1}"


def _token_settings(token: str) -> dict[str, str]:
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": token}


def _write_token(state: Path) -> Path:
    path = state.absolute() / "ray-token"
    secret(path)
    return path


def _write_record(state: Path, cluster: LocalCluster) -> None:
    write_private(state / _RECORD, json.dumps(asdict(cluster), indent=1))


@contextmanager
def _locked(state: Path) -> Iterator[None]:
    """Lock the record, from reading to writing, against other processes that start or end nodes."""
    descriptor = os.open(state / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _recorded(state: Path, name: str) -> LocalCluster:
    cluster = local_cluster(state)
    if cluster is None or name not in cluster.seats:
        raise WorldError(f"{state} has no cluster with a node '{name}'")
    return cluster


def _log_of(cluster: LocalCluster, name: str) -> Path:
    return Path(cluster.logs) / f"{name}.log"


def _spawn_node(state: Path, cluster: LocalCluster, node: Node) -> None:
    number = list(cluster.seats).index(node.id)  # short: it is part of socket paths
    host, temp = cluster.seats[node.id].address, f"{cluster.temp}/{number}"
    count = max(_NODE_PORTS, _NODES_PORTS // len(cluster.nodes))
    with claimed_ports(count) as (ports, claim):
        cluster.ports[node.id] = ports
        command = node_command(cluster.address, node, host, temp, ports)
        _spawn(state, cluster, node.id, command, claim)


def _spawn(
    state: Path, cluster: LocalCluster, name: str, command: list[str], claim: Sequence[int]
) -> None:
    """Start a node's process, which keeps the claim of its ports, and record its session."""
    command = [*cluster.seats[name].enter, *command]
    environment = {key: v for key, v in os.environ.items() if not key.startswith("RAY_")}
    environment |= {**SETTINGS, **_token_settings(cluster.token)}
    environment[NODE_MARK] = f"{cluster.mark}/{name}"
    for descriptor in claim:
        os.set_inheritable(descriptor, True)
    log_file = str(_log_of(cluster, name))
    with suppress(FileNotFoundError):  # keep the previous log: it has the reason of the last end
        Path(log_file).replace(f"{log_file}.old")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    cluster.sessions[name] = os.posix_spawnp(
        command[0],
        command,
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log_file, flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    _write_record(state, cluster)
    _shield(cluster)  # its process takes longer to listen


def _shield(cluster: LocalCluster) -> str:
    """Close the ports of all nodes to other users; return why that is impossible, or ''."""
    if HEAD not in cluster.ports or any(seat.enter for seat in cluster.seats.values()):
        return ""  # it has ended, or the networks of its nodes are their own
    shield = Shield(ports=tuple(cluster.ports.values()), owner=cluster.sessions[HEAD])
    problem = set_shield(shield)
    if problem:
        log.info("no packet filter keeps other users from the ports of Ray: %s", problem)
    return problem


def why_open(cluster: LocalCluster) -> str:
    """Return why other users of this machine can connect to the ports of Ray; '' if they cannot.

    The packet filter is set again, and tried.
    """
    if HEAD not in cluster.ports:
        return "an earlier release has started them; headgate down, then headgate up, closes them"
    host, _, port = cluster.address.rpartition(":")
    problem = _shield(cluster)
    if not problem and lets_others_in(host, int(port)):
        return "the packet filter is set, but lets them pass"
    return problem


def _await_started(cluster: LocalCluster, names: Iterable[str], until: float) -> None:
    """Wait until every node, a child of this process, logs that it is up; WorldError at `until`."""
    waiting = list(names)
    while waiting:
        for name in list(waiting):
            text = _read(_log_of(cluster, name))
            ended = os.waitpid(cluster.sessions[name], os.WNOHANG)[0] != 0
            if ended or time.monotonic() > until:
                what = "ended while starting" if ended else "did not come up in time"
                tail = "\n".join(text.strip().splitlines()[-15:])
                raise WorldError(f"node '{name}' {what}; the end of its log:\n{tail}")
            if _STARTED in text:
                waiting.remove(name)
        time.sleep(0.1)


def _read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _processes(cluster: LocalCluster) -> list[tuple[psutil.Process, str]]:
    """Return the living processes of the cluster, each with its node's name.

    Ray's own workers rename themselves (`ray::...`), which may overwrite their environment and the
    mark; those are recognized by their session.
    """
    mark = f"{NODE_MARK}={cluster.mark}/".encode()
    names = {session: name for name, session in cluster.sessions.items() if session}
    found = []
    for process in psutil.process_iter(["status"]):
        with suppress(OSError):  # it has ended meanwhile, or belongs to another user
            session = os.getsid(process.pid)
            entries = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            marks = [entry for entry in entries if entry.startswith(mark)]
            command = Path(f"/proc/{process.pid}/cmdline").read_bytes()
            if process.info["status"] == psutil.STATUS_ZOMBIE:
                continue
            if marks:
                found.append((process, marks[0][len(mark) :].decode()))
            elif session in names and command.startswith(b"ray::"):
                found.append((process, names[session]))
    return found


def _kill(cluster: LocalCluster, names: Collection[str]) -> None:
    """Kill until two scans find no process: one in `exec` has no mark for a moment."""
    unseen = 0
    while unseen < 2:
        processes = [process for process, name in _processes(cluster) if name in names]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=5)
        unseen = 0 if processes else unseen + 1
        time.sleep(0.02)
