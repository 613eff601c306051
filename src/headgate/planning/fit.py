"""Feasibility: demands that no idle node fits, gangs that the idle cluster does not fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from headgate.base.text import enumerated
from headgate.base.units import format_size
from headgate.model import UNLIMITED, WHOLE, Demand, Node, Task, amount_of
from headgate.planning.shares import Ints
from headgate.protocol import Reason
from headgate.protocol.reasons import NoFittingNode, NothingFits, Shortage
from headgate.state import Scratch, State


def demand_text(demand: Demand) -> str:
    """Return the text of a demand for messages."""
    words = [gpus_text(demand)] if demand.gpus else []
    if demand.cpus_milli:
        cpus = amount_of(demand.cpus_milli)
        words.append("a CPU" if cpus == 1 else f"{cpus} CPUs")
    if demand.memory_bytes:
        words.append(f"{format_size(demand.memory_bytes)} of memory")
    words += [f"{amount_of(milli)} of '{name}'" for name, milli in demand.custom]
    return enumerated(words or ["nothing"])


def gpus_text(demand: Demand) -> str:
    """Return the text of the GPUs of a demand for messages."""
    memory = format_size(demand.gpu_memory_bytes) if demand.gpu_memory_bytes else ""
    if not demand.in_part:
        gpus = f"{demand.gpus} GPUs" if demand.gpus != 1 else "a GPU"
        return f"{gpus} with {memory}" if memory else gpus
    if not demand.gpu_milli:
        return f"{memory} of a GPU's memory"
    share = f"{amount_of(demand.gpu_milli)} of a GPU"
    return f"{share} with {memory} of its memory" if memory else share


def by_size(demand: Demand) -> tuple[int, int]:
    """Return a key that sorts the demands of a gang: most GPUs first, then by their memory."""
    return -demand.gpus_milli, -demand.gpu_memory_bytes


def runs_that_fit(node: Node, demand: Demand) -> int:
    """Return the number of runs of a demand that fit an idle node together, or UNLIMITED."""
    bounds = [UNLIMITED]
    if demand.in_part:
        bounds.append(_runs_in_part([_parts(g.memory_bytes, demand) for g in node.gpus], demand))
    elif demand.gpus:
        fitting = sum(gpu.memory_bytes >= demand.gpu_memory_bytes for gpu in node.gpus)
        bounds.append(fitting // demand.gpus)
    if demand.cpus_milli:
        bounds.append(WHOLE * node.cpus // demand.cpus_milli)
    if demand.memory_bytes and node.memory_bytes is not None:
        bounds.append(node.memory_bytes // demand.memory_bytes)
    custom = dict(node.custom)
    bounds += [custom.get(name, 0) // milli for name, milli in demand.custom if milli]
    return min(bounds)


def _runs_in_part(parts: Sequence[int], demand: Demand) -> int:
    """Return the number of runs on parts of distinct GPUs, given how many parts each GPU has."""
    runs = sum(parts) // demand.gpus
    while (fewer := sum(min(count, runs) for count in parts) // demand.gpus) < runs:
        runs = fewer
    return runs


def _parts(memory_bytes: int, demand: Demand) -> int:
    """Return the number of parts of a demand that fit one GPU of this memory."""
    part_bytes = demand.part_bytes(memory_bytes)
    bounds = [WHOLE // demand.gpu_milli] if demand.gpu_milli else []
    return min([*bounds, memory_bytes // part_bytes] if part_bytes else bounds, default=UNLIMITED)


def infeasible_demand(demand: Demand, nodes: Iterable[Node]) -> str:
    """Return why no idle node fits a run of a demand, or "" if one does."""
    if any(runs_that_fit(node, demand) for node in nodes):
        return ""
    return f"needs {demand_text(demand)} on one node, and no node has that"


def most_on_one_node(demand: Demand, nodes: Sequence[Node]) -> str:
    """Return what nodes have at most of that of which none has enough for a demand."""
    limits = []
    if demand.gpus and not any(_gpus_that_fit(node, demand) >= demand.gpus for node in nodes):
        limits.append(_gpu_limit(demand, nodes))
    slots = max((node.cpus for node in nodes), default=0)
    if demand.cpus_milli > WHOLE * slots:
        limits.append(f"{slots} CPUs" if slots else "no CPU")
    memory = max(
        (UNLIMITED if n.memory_bytes is None else n.memory_bytes for n in nodes), default=0
    )
    if demand.memory_bytes > memory:
        limits.append(f"{format_size(memory)} of memory")
    for name, milli in demand.custom:
        most = max((dict(node.custom).get(name, 0) for node in nodes), default=0)
        if milli > most:
            limits.append(f"{amount_of(most)} of '{name}'" if most else f"no '{name}'")
    if not limits:
        return "no node has all of it together"
    at_most = "" if all(limit.startswith("no ") for limit in limits) else "at most "
    return f"nodes have {at_most}{enumerated(limits)}"


def _gpus_that_fit(node: Node, demand: Demand) -> int:
    """Return how many GPUs of a node are large enough for a demand."""
    if demand.in_part:
        return sum(_parts(gpu.memory_bytes, demand) > 0 for gpu in node.gpus)
    return sum(gpu.memory_bytes >= demand.gpu_memory_bytes for gpu in node.gpus)


def _gpu_limit(demand: Demand, nodes: Sequence[Node]) -> str:
    most = max((_gpus_that_fit(node, demand) for node in nodes), default=0)
    largest = max((gpu.memory_bytes for node in nodes for gpu in node.gpus), default=None)
    if largest is None:
        return "no GPU"
    if not most:
        return f"GPUs with {format_size(largest)}"
    gpus = "1 GPU" if most == 1 else f"{most} GPUs"
    return (
        f"{gpus} with {format_size(demand.gpu_memory_bytes)}" if demand.gpu_memory_bytes else gpus
    )


def infeasible_gang(
    tasks: Sequence[Task], nodes: Sequence[Node], *, distinct_nodes: bool = False
) -> str:
    """Return why the idle cluster cannot hold all tasks together, or "" if it may.

    With `distinct_nodes` each on another node. Exact for tasks of equal demand. Otherwise each
    demand is compared with all tasks that demand at least as much: a necessary condition, so a gang
    that fits is never rejected.
    """
    demands = Counter(task.demand for task in tasks)
    for demand in demands:
        as_big = sum(times for other, times in demands.items() if _at_least(other, demand))
        fitting = [runs_that_fit(node, demand) for node in nodes]
        places = sum(map(bool, fitting)) if distinct_nodes else sum(fitting)
        if as_big > places and distinct_nodes:
            return (
                f"the gang can never start: it needs {as_big} nodes with {demand_text(demand)} "
                f"each, and the cluster has {places}"
            )
        if as_big > places:
            return (
                f"the gang can never start: {as_big} of its tasks need {demand_text(demand)} each, "
                f"and the cluster fits at most {places} such tasks"
            )
    gpus_milli = sum(demand.gpus_milli * times for demand, times in demands.items())
    total = sum(len(node.gpus) for node in nodes)
    if gpus_milli > WHOLE * total:
        gpus = amount_of(gpus_milli)
        return f"the gang can never start: it needs {gpus} GPUs, the cluster has {total}"
    return ""


def _at_least(demand: Demand, other: Demand) -> bool:
    """Return whether a demand is at least another one in every resource."""
    custom = dict(demand.custom)
    return (
        bool(demand.gpus) == bool(other.gpus)
        and demand.gpus >= other.gpus
        and demand.gpu_milli >= other.gpu_milli
        and demand.in_part == other.in_part
        and demand.gpu_memory_bytes >= other.gpu_memory_bytes
        and demand.cpus_milli >= other.cpus_milli
        and demand.memory_bytes >= other.memory_bytes
        and all(custom.get(name, 0) >= milli for name, milli in other.custom)
    )


def members_that_fit(
    tasks: Sequence[Task], nodes: Sequence[Node], *, distinct_nodes: bool = False
) -> int:
    """Return how many tasks of a gang, from the first, first fit places on idle nodes.

    With `distinct_nodes` each on another node. All, too, if first fit places them all, the largest
    first. Exact for tasks of equal demand. O(tasks x log + distinct demands x nodes).
    """
    fit = _placed_by_first_fit(tasks, nodes, distinct_nodes)
    if fit < len(tasks) and len({task.demand for task in tasks}) > 1:
        largest_first = sorted(tasks, key=lambda task: by_size(task.demand))
        if _placed_by_first_fit(largest_first, nodes, distinct_nodes) == len(tasks):
            return len(tasks)
    return fit


def _placed_by_first_fit(tasks: Sequence[Task], nodes: Sequence[Node], distinct_nodes: bool) -> int:
    """Return how many tasks first fit places on idle nodes up to the first that does not fit."""
    state = State()
    for node in nodes:
        state.add_node(node)
    first: dict[int, int] = {}  # demand -> row: the nodes before it are too full for it, or used
    used: set[int] = set()
    for number, task in enumerate(tasks):
        demand = state.names.demand(task.demand)
        options = range(first.get(demand, 0), len(nodes))
        fitting = ((r, state.ledger.best_gpus(demand, r)) for r in options if r not in used)
        found = next(((row, gpus) for row, gpus in fitting if gpus is not None), None)
        if found is None:
            return number
        first[demand] = found[0]
        state.ledger.take(number, demand, *found)
        if distinct_nodes:
            used.add(found[0])
    return len(tasks)


def beside_first_fit(node: Node, demands: Sequence[Demand], most: int) -> list[Demand]:
    """Return those of `demands` that are left when first fit has filled an idle node.

    It places them in their order, each that fits beside those before it, at most `most`.
    O(demands x GPUs).
    """
    fits = {demand: runs_that_fit(node, demand) > 0 for demand in dict.fromkeys(demands)}
    if not any(fits.values()):
        return list(demands)
    state, left, placed = State(), [], 0
    row = state.add_node(node)
    for demand in demands:
        gpus, known = None, state.names.demand(demand)
        if placed < most and fits[demand]:
            gpus = state.ledger.best_gpus(known, row)
            fits[demand] = gpus is not None  # resources are only taken
        if gpus is None:
            left.append(demand)
        else:
            state.ledger.take(placed, known, row, gpus)
            placed += 1
    return left


def no_such_gpu(memory_bytes: int) -> NothingFits:
    """Return why a task waits for a GPU that no node has; it needs `memory_bytes` of it."""
    return NothingFits(need=f"a GPU of {format_size(memory_bytes)}" if memory_bytes else "a GPU")


def no_room(scratch: Scratch, task: int) -> Reason:
    """Return why a task fits no node of a scratch, though its GPUs, if any, would fit.

    O(nodes x resources).
    """
    view, demand = scratch.snapshot, scratch.snapshot.tasks.demand[task]
    nodes = np.array(view.live_nodes(), np.int64)
    spec, free_gpus = view.names.demands[demand], scratch.ledger.nodes.free_gpus.array()[nodes]
    beside = nodes if spec.in_part else nodes[free_gpus >= spec.gpus]
    return lacking_resource(scratch, demand, beside if len(beside) else nodes, nodes)


def lacking_resource(
    scratch: Scratch, demand: int, beside: Ints, nodes: Ints
) -> Shortage | NoFittingNode:
    """Return what the nodes of `beside`, those of `nodes` with GPUs for a demand, lack for it."""
    names, free = scratch.snapshot.names, scratch.ledger.nodes.free
    spec = names.demands[demand]
    for kind, amount in names.needs[demand]:
        most = max(0, int(free.kind(kind)[beside].max(initial=0)))
        if most < amount:
            elsewhere = bool((free.kind(kind)[nodes] >= amount).any())
            with_gpus = gpus_text(spec) if elsewhere else ""
            name = names.resources[kind]
            return Shortage(resource=name, needed=amount, most_free=most, beside=with_gpus)
    return NoFittingNode(need=demand_text(spec))
