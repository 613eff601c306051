"""Feasibility: demands that no idle node fits, gangs that the idle cluster does not fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from headgate.base.text import enumerated, one_of
from headgate.base.units import format_size
from headgate.model import UNLIMITED, WHOLE, Demand, Node, Task, amount_of
from headgate.state import State
from headgate.state.ledger import runs_in


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
    model = model_text(demand)
    one = f"1 {model} GPU" if model else "a GPU"
    if not demand.in_part:
        gpus = f"{demand.gpus} {model}{model and ' '}GPUs" if demand.gpus != 1 else one
        return f"{gpus} with {memory}" if memory else gpus
    if not demand.gpu_milli:
        return f"{memory} of the memory of {one}" if model else f"{memory} of a GPU's memory"
    share = f"{amount_of(demand.gpu_milli)} of {one}"
    return f"{share} with {memory} of its memory" if memory else share


def model_text(demand: Demand) -> str:
    """Return the words for the models of GPUs that a demand accepts, "" for all."""
    return one_of(demand.gpu_models) if demand.gpu_models else ""


def one_node_text(demand: Demand) -> str:
    """Return the words for the one node on which a task of a demand runs."""
    labelled = _with_labels(demand)
    if demand.nodes:
        among = [name for name in demand.nodes if name not in demand.exclude]
        return one_of(among) + labelled if among else "no node"
    other = f" other than {one_of(demand.exclude)}" if demand.exclude else ""
    return f"one node{labelled}{other}"


def on_labels(demand: Demand) -> str:
    """Return the words for the labels of nodes that a demand selects, "" without any."""
    return f" on nodes{_with_labels(demand)}" if demand.selector else ""


def _with_labels(demand: Demand) -> str:
    return f" with labels {', '.join(demand.selector)}" if demand.selector else ""


def accepted_text(demand: Demand) -> str:
    """Return the words for the nodes that a demand accepts, "" for all."""
    if demand.nodes or demand.selector:
        return f"on {one_node_text(demand)}"
    return f"not on {one_of(demand.exclude)}" if demand.exclude else ""


def by_size(demand: Demand) -> tuple[int, int]:
    """Return a key that sorts the demands of a gang: most GPUs first, then by their memory."""
    return -demand.gpus_milli, -demand.gpu_memory_bytes


def by_gpus(demand: Demand) -> tuple[int, int]:
    """Return the same by GPUs alone; where they hold no share, those with most memory first."""
    return -demand.gpus_milli, 0 if demand.gpus_milli else -demand.gpus * demand.gpu_memory_bytes


def runs_that_fit(node: Node, demand: Demand) -> int:
    """Return the number of runs of a demand that fit an idle node together, or UNLIMITED."""
    bounds = [UNLIMITED if demand.accepts_node(node) else 0]
    if demand.in_part:
        parts = [_parts(g.memory_bytes, demand) for g in node.gpus if demand.accepts_model(g.model)]
        bounds.append(_runs_in_part(parts, demand))
    elif demand.gpus:
        bounds.append(runs_in(gpus_that_fit(node, demand), demand.gpus))
    bounds.append(runs_in(WHOLE * node.cpus, demand.cpus_milli))
    if node.memory_bytes is not None:
        bounds.append(runs_in(node.memory_bytes, demand.memory_bytes))
    custom = dict(node.custom)
    bounds += [runs_in(custom.get(name, 0), milli) for name, milli in demand.custom]
    return min(bounds)


def _runs_in_part(parts: Sequence[int], demand: Demand) -> int:
    """Return the number of runs on parts of distinct GPUs, given how many parts each GPU has."""
    runs: int = runs_in(sum(parts), demand.gpus)
    while (fewer := runs_in(sum(min(count, runs) for count in parts), demand.gpus)) < runs:
        runs = fewer
    return runs


def _parts(memory_bytes: int, demand: Demand) -> int:
    """Return the number of parts of a demand that fit one GPU of this memory."""
    by_share: int = runs_in(WHOLE, demand.gpu_milli)
    by_memory: int = runs_in(memory_bytes, demand.part_bytes(memory_bytes))
    return min(by_share, by_memory)


def infeasible_demand(demand: Demand, nodes: Iterable[Node]) -> str:
    """Return why no idle node fits a run of a demand, or "" if one does."""
    if any(runs_that_fit(node, demand) for node in nodes):
        return ""
    return f"needs {demand_text(demand)} on {one_node_text(demand)}, and no node has that"


def most_on_one_node(demand: Demand, nodes: Sequence[Node]) -> str:
    """Return what nodes have at most of that of which none has enough for a demand.

    Nodes that it does not accept do not count.
    """
    limits, nodes = [], [node for node in nodes if demand.accepts_node(node)]
    if not nodes:
        return "which no node that is up has" if demand.selector else "which is not up"
    if demand.gpus and not any(gpus_that_fit(node, demand) >= demand.gpus for node in nodes):
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
    have = "these nodes have" if demand.for_nodes or demand.selector else "nodes have"
    return f"{have} {at_most}{enumerated(limits)}"


def gpus_that_fit(node: Node, demand: Demand) -> int:
    """Return how many GPUs of a node suit a demand, none of one that it does not accept."""
    if not demand.accepts_node(node):
        return 0
    gpus = [gpu for gpu in node.gpus if demand.accepts_model(gpu.model)]
    if demand.in_part:
        return sum(_parts(gpu.memory_bytes, demand) > 0 for gpu in gpus)
    return sum(gpu.memory_bytes >= demand.gpu_memory_bytes for gpu in gpus)


def _gpu_limit(demand: Demand, nodes: Sequence[Node]) -> str:
    most = max((gpus_that_fit(node, demand) for node in nodes), default=0)
    gpus = [gpu for node in nodes for gpu in node.gpus]
    if not gpus:
        return "no GPU"
    of_model = [gpu.memory_bytes for gpu in gpus if demand.accepts_model(gpu.model)]
    if not of_model:
        names = sorted({gpu.model or "GPUs of unknown model" for gpu in gpus})
        return f"no {one_of(demand.gpu_models)} GPU (but {enumerated(names)})"
    if not most:
        return f"{_gpus_of_model(demand)} with {format_size(max(of_model))}"
    return gpus_text(replace(demand, gpus=most, gpu_milli=WHOLE)).replace("a GPU", "1 GPU", 1)


def _gpus_of_model(demand: Demand) -> str:
    return f"{one_of(demand.gpu_models)} GPUs" if demand.gpu_models else "GPUs"


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
        and _is_as_narrow(demand, other)
        and demand.gpu_memory_bytes >= other.gpu_memory_bytes
        and demand.cpus_milli >= other.cpus_milli
        and demand.memory_bytes >= other.memory_bytes
        and all(custom.get(name, 0) >= milli for name, milli in other.custom)
    )


def _is_as_narrow(demand: Demand, other: Demand) -> bool:
    """Return whether a demand plainly accepts no model and no node that another one does not."""
    return (
        (not other.gpu_models or demand.gpu_models == other.gpu_models)
        and (not other.nodes or demand.nodes == other.nodes)
        and set(other.exclude) <= set(demand.exclude)
        and set(other.selector) <= set(demand.selector)
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
        place = next(((row, gpus) for row, gpus in fitting if gpus is not None), None)
        if place is None:
            return number
        first[demand] = place[0]
        state.ledger.take(number, demand, *place)
        if distinct_nodes:
            used.add(place[0])
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
