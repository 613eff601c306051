"""The scaling of a cluster: what a snapshot and the plan of its round mean for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from headgate.model import Demand, Job, Node, Task
from headgate.planning.scaling.decision import Member, Pending, Wanted, wanted
from headgate.planning.units.fit import (
    by_size,
    infeasible_demand,
    infeasible_gang,
    members_that_fit,
)
from headgate.planning.units.unit import Unit
from headgate.protocol import Plan
from headgate.state import Snapshot, TaskState
from headgate.state.queues import as_needed
from headgate.state.quotas import Quotas, amounts_of


def with_scaling(snapshot: Snapshot, plan: Plan) -> Plan:
    """Return the plan of a round with the nodes to be ordered and drained, if the cluster scales.

    O(tasks + distinct demands x (nodes + shapes)).
    """
    if snapshot.fleet.scaling is None:
        return plan
    decision = decide_nodes(snapshot, plan)
    times = [at for at in (plan.again_at, decision.again_at) if at is not None]
    drains = tuple(snapshot.names.node_rows[node] for node in decision.drains)
    return replace(plan, orders=decision.orders, drains=drains, again_at=min(times, default=None))


def decide_nodes(snapshot: Snapshot, plan: Plan) -> Wanted:
    """Return which nodes a snapshot wants after a round, whose starts count as begun."""
    fleet = snapshot.fleet
    if fleet.scaling is None:
        return Wanted()
    rows = [row for row in snapshot.live_nodes() if not snapshot.nodes.draining[row]]
    nodes = [snapshot.node(row) for row in rows]
    parked: list[Pending] = []
    waiting: list[Pending] = []
    for unit, job in pending_units(snapshot, plan):
        lacking = _lacking(unit, job, nodes)
        (waiting if lacking is None else parked).append(unit if lacking is None else lacking)
    return wanted(
        fleet.scaling,
        now=snapshot.now,
        parked=parked,
        waiting=waiting,
        nodes=_members(snapshot, plan, rows),
        ordered=[order.shape for order in fleet.orders.values()],
    )


def wanted_now(snapshot: Snapshot) -> Wanted:
    """Return what scaling would do now, if no task started in this round."""
    return decide_nodes(snapshot, Plan())


def why_unmet(snapshot: Snapshot, unit: Pending) -> str:
    """Return why no node would be ordered for a parked unit, were it alone; "" if one would."""
    fleet = snapshot.fleet
    if fleet.scaling is None:
        return "the cluster does not scale"
    rows = [row for row in snapshot.live_nodes() if not snapshot.nodes.draining[row]]
    decision = wanted(
        fleet.scaling,
        now=snapshot.now,
        parked=[unit],
        waiting=[],
        nodes=_members(snapshot, Plan(), rows),
        ordered=[order.shape for order in fleet.orders.values()],
    )
    return decision.unmet.get(0, "")


def pending_units(snapshot: Snapshot, plan: Plan) -> Iterator[tuple[Pending, Job | None]]:
    """Yield what waits and may start by the ceilings of queues: single tasks by demand, gangs.

    With the job of a gang, None for single tasks of any jobs.
    """
    tasks = snapshot.tasks
    waits = np.flatnonzero(tasks.state.array() == TaskState.WAITING)
    waits = np.setdiff1d(waits, plan.starts.task, assume_unique=True)
    jobs = tasks.job.take(waits)
    in_gang = snapshot.jobs.gang.take(jobs) > 0
    quotas = _quotas_after(snapshot, plan)
    keys = np.stack([quotas.rows.of_jobs(jobs), tasks.demand.take(waits)])[:, ~in_gang]
    pairs, counts = np.unique(keys, axis=1, return_counts=True)
    for (line, demand), count in zip(pairs.T.tolist(), counts.tolist(), strict=True):
        spec = snapshot.names.demands[demand]
        amounts = amounts_of(snapshot.names, demand)
        fits = min(count, quotas.runs(line, amounts))
        if fits > 0:
            quotas.add(line, [(kind, fits * amount) for kind, amount in amounts])
            yield Pending(demands=(spec,), count=fits), None
    for row in dict.fromkeys(jobs[in_gang].tolist()):
        job = as_needed(snapshot, row)
        demands = tuple(task.demand for task in job.tasks)
        unit = Unit(
            job=row,
            tasks=tuple(snapshot.tasks_of(row)),
            demands=tuple(snapshot.tasks.demand[task] for task in snapshot.tasks_of(row)),
        )
        amounts, line = unit.amounts(snapshot), quotas.row_of(row)
        if quotas.at_limit(line, amounts) is None:
            quotas.add(line, amounts)
            yield Pending(demands=demands, distinct_nodes=job.distinct_nodes), job


def _quotas_after(snapshot: Snapshot, plan: Plan) -> Quotas:
    """Return what queues hold after a round, and their limits."""
    quotas = Quotas(snapshot)
    for task in plan.starts.task.tolist():
        amounts = amounts_of(snapshot.names, snapshot.tasks.demand[task])
        quotas.add(quotas.row_of(snapshot.tasks.job[task]), amounts)
    return quotas


def _lacking(unit: Pending, job: Job | None, nodes: list[Node]) -> Pending | None:
    """Return the part of a unit for which nodes are missing, None if idle nodes could hold it.

    Of a gang the members, the largest ones, that find no place beside the others.
    """
    if job is None:
        return unit if infeasible_demand(unit.demands[0], nodes) else None
    tasks: tuple[Task, ...] = job.tasks
    if not infeasible_gang(tasks, nodes, distinct_nodes=job.distinct_nodes):
        placed = members_that_fit(tasks, nodes, distinct_nodes=job.distinct_nodes)
        if placed == len(tasks):
            return None
    placed = members_that_fit(tasks, nodes, distinct_nodes=job.distinct_nodes) if nodes else 0
    missing: list[Demand] = sorted(unit.demands, key=by_size)[: len(tasks) - placed]
    return Pending(demands=tuple(missing), distinct_nodes=unit.distinct_nodes)


def holds_last_copies(snapshot: Snapshot, row: int) -> bool:
    """Return whether data would be lost with a node: results, or what jobs read. O(shards)."""
    shards = snapshot.shards
    return any(
        len(snapshot.replicas(shard)) == 1 and not shards.shared[shard]
        for shard in shards.replicas.having(row).tolist()
    )


def _members(snapshot: Snapshot, plan: Plan, rows: list[int]) -> list[Member]:
    """Return the nodes that are up and not draining; those that a plan uses are not idle."""
    used = {*plan.starts.node.tolist(), *plan.moves.node.tolist()}
    if plan.reservations:
        gpus = [gpu for reserved in plan.reservations for gpu in reserved.gpus]
        used |= {*snapshot.gpus.node.take(np.array(gpus, np.int64)).tolist()}
    held: dict[int, list[Demand]] = {row: [] for row in rows}
    grants = snapshot.grants
    for grant in np.flatnonzero(grants.task.array() >= 0).tolist():
        if grants.node[grant] in held:
            held[grants.node[grant]].append(snapshot.names.demands[grants.demand[grant]])
    for task, node in zip(plan.starts.task.tolist(), plan.starts.node.tolist(), strict=True):
        held[node].append(snapshot.demand(task))
    made = snapshot.fleet.made
    members = []
    for row in rows:
        node = snapshot.node(row)
        idle = not held[row] and row not in used
        idle = idle and not (node.id in made and holds_last_copies(snapshot, row))
        members.append(
            Member(
                node=node,
                shape=made[node.id][1] if node.id in made else "",
                idle_since=float(snapshot.nodes.idle_since[row]) if idle else None,
                held=tuple(held[row]),
            )
        )
    return members
