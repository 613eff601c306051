"""A move that a user requests: where the runs of a job start again, by first fit."""

from __future__ import annotations

from headgate.base.errors import Problem, SpecError, nearest
from headgate.protocol import Admitted, Moved
from headgate.state import Snapshot
from headgate.state.ledger import Ledger
from headgate.state.life import EXECUTING
from headgate.state.lookup import job_row
from headgate.state.moves import is_moving, unit_of


def requested_move(
    snapshot: Snapshot, job: str, user: str, *, leave: str | None = None, to: str | None = None
) -> Moved:
    """Return the move of a job's runs that are on a node, or of all, to other nodes or one.

    Each task goes to the first node where it fits, in order of arrival; members of a gang that are
    elsewhere stay there. O(tasks of the job x nodes). SpecError `not_found` for an unknown job or
    node, `not_movable` where nothing is to be moved or there is no room.
    """
    row = job_row(snapshot, job)
    leaves, only = (None if name is None else _node(snapshot, name) for name in (leave, to))
    chosen = _chosen(snapshot, row, leaves, only)
    if not chosen:
        where = "" if leave is None else f" on {leave}"
        elsewhere = "" if to is None else f" that is not on {to}"
        raise _not_movable(job, f"job {job} has no run{where}{elsewhere}")
    units = dict.fromkeys(unit_of(snapshot, task) for task in chosen)
    for unit in units:
        if any(snapshot.tasks.state[task] not in EXECUTING for task in unit):
            raise _not_movable(job, f"not all members of gang {job} run")
    nodes = snapshot.live_nodes() if only is None else [only]
    places = _places(snapshot, chosen, units, [node for node in nodes if node != leaves])
    runs = tuple(
        Admitted(snapshot.run_id(task), snapshot.node(node).id, gpus)
        for task, (node, gpus) in sorted(places.items())
    )
    return Moved(runs, f"requested by {user}")


def was_admitted(snapshot: Snapshot, move: Moved) -> bool:
    """Return whether a requested move has begun."""
    rows = [snapshot.run_row(admitted.run) for admitted in move.runs]
    return all(row is None or is_moving(snapshot, row) for row in rows)


def not_admitted(job: str) -> SpecError:
    """Return the error that a place was taken before a move began."""
    return _not_movable(job, "the state has changed meanwhile; nothing was moved", "try it again")


def _node(snapshot: Snapshot, name: str) -> int:
    row = snapshot.names.node_rows.get(name)
    if row is None or row >= len(snapshot.nodes.alive):
        hint = nearest(name, snapshot.names.node_rows.copy())
        problem = Problem(path=name, problem=f"there is no node '{name}'", hint=hint)
        raise SpecError([problem], code="not_found")
    return row


def _not_movable(job: str, text: str, hint: str = "") -> SpecError:
    return SpecError([Problem(path=job, problem=text, hint=hint)], code="not_movable")


def _chosen(snapshot: Snapshot, job: int, leave: int | None, to: int | None) -> list[int]:
    """Return the running tasks of a job on a node, or on any, that are not on the target."""
    tasks = snapshot.tasks
    return [
        task
        for task in snapshot.tasks_of(job)
        if tasks.state[task] in EXECUTING and tasks.node[task] != to
        if leave is None or tasks.node[task] == leave
    ]


def _places(
    snapshot: Snapshot, chosen: list[int], units: dict[range, None], nodes: list[int]
) -> dict[int, tuple[int, tuple[int, ...]]]:
    """Return node and GPUs of the next run of each task of some units."""
    ledger, places = Ledger.tentative(snapshot), dict[int, tuple[int, tuple[int, ...]]]()
    tasks, moving = snapshot.tasks, set(chosen)
    for unit in units:
        job = snapshot.job(tasks.job[unit.start])
        stay = [task for task in unit if task not in moving]
        places |= {task: (tasks.node[task], snapshot.held_gpus(task)) for task in stay}
        used = {tasks.node[task] for task in stay} if job.distinct_nodes else set[int]()
        for task in (task for task in unit if task in moving):
            allowed = [node for node in nodes if node not in (*used, tasks.node[task])]
            place = _first_fit(ledger, tasks.demand[task], allowed)
            if place is None:
                text = f"task {snapshot.ordinal(task)} of {job.id} fits no other node now"
                raise _not_movable(job.id, text, "headgate nodes shows what is free")
            places[task] = place
            ledger.take(task, tasks.demand[task], *place)
            used |= {place[0]} if job.distinct_nodes else set()
    return places


def _first_fit(ledger: Ledger, demand: int, nodes: list[int]) -> tuple[int, tuple[int, ...]] | None:
    for node in nodes:
        gpus = ledger.best_gpus(demand, node) if ledger.nodes.alive[node] else None
        if gpus is not None:
            return node, gpus
    return None
