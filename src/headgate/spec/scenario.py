"""Scenario files: a whole simulation, described and checked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from headgate.base.errors import SpecError, nearest
from headgate.model import Bandwidth, Communication, Job, Node, Queue, Shard
from headgate.model.scaling import Scaling
from headgate.model.topology import ClusterTopology
from headgate.protocol import NodeJoined, NodeLost
from headgate.spec.cluster import Links, build_cluster
from headgate.spec.communication import CommunicationShape, check_communication, communication_of
from headgate.spec.document import Document, read_document
from headgate.spec.queues import build_queues, with_default
from headgate.spec.scaling import build_scaling
from headgate.spec.scenario_jobs import JobsBuilder
from headgate.spec.shape import FileShape, Seconds, parse, shown
from headgate.spec.topology import load_topology, mismatches, topology_in

Parameter = bool | int | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The checked content of a scenario file.

    `replicas` gives the nodes that hold each shard at the start; a shard without replicas is on a
    shared path. `submissions` are in order of time, equal times in the order of the file.
    `task_names` gives, per job id, the names of its tasks by ordinal. `faults` are in order of
    time. A scenario has jobs or a trace, never both.
    """

    nodes: tuple[Node, ...]
    links: Links
    bandwidth: Bandwidth
    policy: str
    parameters: Mapping[str, Parameter]
    seed: int
    queues: tuple[Queue, ...]
    decision_latency_s: float
    faults: tuple[NodeLost | NodeJoined, ...]
    submissions: tuple[tuple[float, Job], ...]
    task_names: Mapping[str, tuple[str, ...]]
    replicas: tuple[tuple[Shard, str], ...]
    trace: Path | None
    topology: ClusterTopology | None = None
    scaling: Scaling | None = None
    communication: Communication | None = None
    """That of every job of the trace on several GPUs."""


class FaultShape(FileShape):
    at_s: Seconds = 0.0
    lose: str | None = None
    join: str | None = None
    must: ClassVar = ("at_s",)


class ScenarioShape(FileShape):
    cluster: Any = None
    jobs: list[Any] | None = None
    trace: str | None = None
    communication: CommunicationShape | None = None
    topology: Any = None
    scaling: Any = None
    policy: Any = None
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    queues: list[Any] = Field(default_factory=list)
    decision_latency_s: Seconds = 0.0
    faults: list[Any] = Field(default_factory=list)
    must: ClassVar = ("cluster", "policy")


def load_scenario(
    path: Path | str,
    known_policies: Mapping[str, Iterable[str]],
    *,
    policy: str | None = None,
    parameters: Mapping[str, Parameter] | None = None,
    seed: int | None = None,
    parts: Mapping[str, Mapping[str, str]] | None = None,
    places: Mapping[str, str] | None = None,
) -> Scenario:
    """Return the scenario of a file; raise SpecError with every problem of it.

    `known_policies` gives the parameters that every policy takes. A relative `trace` or `topology`
    is looked for beside the file. `policy` and `seed` replace the file's where given; the policy
    then has `parameters`, without any those of the file where it is the file's, else its defaults.
    `parts` gives, by name, the parts of each policy that the file may describe by its parts,
    `places` what the values of its part `place`, a parameter of the policy, too, are named now.
    """
    path = Path(path)
    document = read_document(path)
    raw = document.data
    shape = parse(document, ScenarioShape, raw, ())
    if shape is None:
        document.raise_problems()
        raise AssertionError("unreachable: every top-level key has a default")
    cluster = build_cluster(document, shape.cluster) if "cluster" in raw else None
    chosen, set_there = _policy(document, shape.policy, known_policies, parts or {}, places or {})
    if policy is not None and (parameters or policy != chosen):
        chosen, set_there = policy, dict(parameters or {})
    seed = shape.seed if seed is None else seed
    queues = with_default(build_queues(document, shape.queues, ("queues",)))
    nodes = cluster.nodes if cluster else ()
    faults = _faults(document, shape.faults, nodes)
    trace = _trace(document, shape, path)
    _check_communication(document, shape)
    topology = _topology(document, shape.topology, path, nodes)
    scaling = build_scaling(document, shape.scaling, ("scaling",)) if "scaling" in raw else None
    builder = JobsBuilder(document=document, nodes=nodes, scaling=scaling, queues=queues, seed=seed)
    builder.add_all(shape.jobs or ())
    document.raise_problems()
    if cluster is None:
        raise AssertionError("unreachable: a scenario without a cluster has a problem")
    return Scenario(
        nodes=cluster.nodes,
        links=cluster.links,
        bandwidth=cluster.bandwidth,
        policy=chosen,
        parameters=set_there,
        seed=seed,
        queues=tuple(queues.values()),
        decision_latency_s=shape.decision_latency_s,
        faults=faults,
        submissions=tuple(sorted(builder.submissions, key=lambda submission: submission[0])),
        task_names=builder.task_names,
        replicas=tuple((shard, node) for (_, node), shard in builder.replicas.items()),
        trace=trace,
        topology=topology,
        scaling=scaling,
        communication=communication_of(shape.communication, compute_s=None),
    )


def _policy(
    document: Document,
    raw: Any,
    known: Mapping[str, Iterable[str]],
    parts: Mapping[str, Mapping[str, str]],
    places: Mapping[str, str],
) -> tuple[str, dict[str, Parameter]]:
    """Return a policy's name and parameters.

    From `fs`, `{name: fs, alpha1: 2.0}` or `{order: fair, place: first-fit, backfill: easy}`.
    """
    place: tuple[str, ...] = ("policy",)
    given: dict[str, Any] = {}
    raw = _named(document, raw, parts, places)
    if isinstance(raw, dict):
        place, given = ("policy", "name"), {k: v for k, v in raw.items() if k != "name"}
        raw = raw.get("name")
    if not document.is_clean(("policy",)):  # it is missing, no YAML value, or of wrong parts
        return "", {}
    if not isinstance(raw, str):
        document.add(place, f"must be the name of a policy, not {shown(raw)}", nearest("", known))
        return "", {}
    if raw not in known:
        document.add(place, f"unknown policy {shown(raw)}", nearest(raw, known))
        return raw, {}
    takes = list(known[raw])
    for key, value in given.items():
        if key not in takes:
            hint = partial(_nearest_parameter, key, takes, raw)
            document.add(("policy", key), f"unknown parameter '{key}' of policy {raw}", hint)
        elif not isinstance(value, Parameter):
            document.add(("policy", key), f"must be a number, text or a truth, not {shown(value)}")
        elif isinstance(value, float) and not math.isfinite(value):
            document.add(("policy", key), f"must be a finite number, not {shown(value)}")
    return raw, given


_PARTS = {"order": "arrival", "place": "first-fit", "backfill": "none"}
"""The parts of a policy, and what each is unless the file says otherwise."""


def _named(
    document: Document,
    raw: Any,
    parts: Mapping[str, Mapping[str, str]],
    places: Mapping[str, str],
) -> Any:
    """Return the same with the name of the policy in place of its parts, if it is given by parts.

    Adds what is wrong with them.
    """
    if not isinstance(raw, dict) or "name" in raw or raw.keys().isdisjoint(_PARTS):
        return raw
    wanted = {key: raw.get(key, default) for key, default in _PARTS.items()}
    if isinstance(wanted["place"], str):
        wanted["place"] = places.get(wanted["place"], wanted["place"])
    faults = 0
    for key, value in wanted.items():
        known = dict.fromkeys(each[key] for each in parts.values())
        if key == "place":
            known |= dict.fromkeys(places.values())
        if value not in known:
            text = f"unknown {key} {shown(value)}; one of {', '.join(known)}"
            document.add(("policy", key), text, nearest(str(value), known))
            faults += 1
    default = {**wanted, "place": _PARTS["place"]}
    name = next((name for name, each in parts.items() if dict(each) == default), None)
    if name is None and not faults:
        text = f"order {wanted['order']} preempts what is in its way, and reserves nothing"
        document.add(("policy", "backfill"), text, "leave out backfill")
    kept = {key: value for key, value in raw.items() if key not in _PARTS}
    if wanted["place"] != _PARTS["place"]:
        kept["place"] = wanted["place"]
    return {"name": name, **kept}


def _nearest_parameter(key: str, takes: list[str], policy: str) -> str:
    return nearest(key, takes) or f"{policy} takes none"


def _faults(
    document: Document, raw: list[Any], nodes: tuple[Node, ...]
) -> tuple[NodeLost | NodeJoined, ...]:
    """Return losses and returns in order of time, each of which changes something."""
    known = {node.id: node for node in nodes}
    found: list[tuple[float, int, bool, str]] = []
    for number, item in enumerate(raw):
        place = ("faults", number)
        shape = parse(document, FaultShape, item, place)
        if shape is None or not document.is_clean(place):
            continue
        node = shape.lose if shape.join is None else shape.join
        if node is None or (shape.lose is not None and shape.join is not None):
            document.add(place, "must say either 'lose' or 'join', with the name of a node")
            continue
        key = "lose" if shape.join is None else "join"
        if node in known:
            found.append((shape.at_s, number, key == "lose", node))
        elif document.is_clean(("cluster",)):
            hint = partial(nearest, node, known)
            document.add((*place, key), f"unknown node '{node}'", hint)
    faults: list[NodeLost | NodeJoined] = []
    down: dict[str, bool] = {}
    for at_s, number, loses, node in sorted(found):
        if down.get(node, False) == loses:
            state = "down already" if loses else "up already"
            place = ("faults", number)
            document.add((*place, "lose" if loses else "join"), f"{node} is {state} at {at_s:g} s")
        down[node] = loses
        lost = NodeLost(at=at_s, node=node)
        faults.append(lost if loses else NodeJoined(at=at_s, node=known[node]))
    return tuple(faults)


def _trace(document: Document, shape: ScenarioShape, path: Path) -> Path | None:
    given = [key for key in ("jobs", "trace") if key in document.data]
    if len(given) == 2:
        document.add(("trace",), "a scenario has jobs or a trace, not both")
    elif not given:
        document.add(("jobs",), "is missing", "a scenario has jobs, or a trace to take them from")
    elif given == ["jobs"] and not shape.jobs and document.is_clean(("jobs",)):
        document.add(("jobs",), "must not be empty")
    if shape.trace is None:
        if "trace" in given and document.is_clean(("trace",)):
            document.add(("trace",), "must be the path of a file, not nothing")
        return None
    return _file(document, "trace", shape.trace, path)


def _file(document: Document, key: str, name: str, path: Path) -> Path:
    """Return the file that a key names, relative to the scenario file."""
    file = path.parent / name
    try:
        there = file.is_file()
    except (OSError, ValueError):
        there = False
    if not there:
        document.add((key,), f"there is no file {shown(name)}")
    return file


def _topology(
    document: Document, raw: Any, path: Path, nodes: tuple[Node, ...]
) -> ClusterTopology | None:
    """Return the topology: that of a file beside the scenario, or the mapping that is given."""
    key = "topology"
    if key not in document.data or not document.is_clean((key,)):
        return None
    topology: ClusterTopology | None = None
    if isinstance(raw, dict):
        topology = topology_in(document, key)
    elif isinstance(raw, str):
        file = _file(document, key, raw, path)
        try:
            topology = load_topology(file) if document.is_clean((key,)) else None
        except SpecError as error:
            for each in error.problems:
                document.add((key,), f"{raw}: {each}")
    else:
        hint = "tree, switches, mesh or fat_tree"
        document.add((key,), f"must be the path of a file, or a topology, not {shown(raw)}", hint)
    if topology is not None and document.is_clean(("cluster",)):
        for problem, hint in mismatches(topology, nodes):
            document.add((key,), problem, hint)
    return topology


def _check_communication(document: Document, shape: ScenarioShape) -> None:
    """Check the communication of all jobs of a trace."""
    key = "communication"
    if key not in document.data:
        return
    if "trace" not in document.data:
        document.add((key,), "is for the jobs of a trace", "give each job its own")
    if shape.communication is not None and shape.communication.kernel is not None:
        problem = "runs on a fixed number of processes, the jobs of a trace on their GPUs"
        document.add((key, "kernel"), problem, "give 'pattern' or 'model'")
        return
    raw = document.data[key]
    check_communication(document, raw, (key,), communicates=True, compute_s=None)
