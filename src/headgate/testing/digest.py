"""A checksum of a state or a snapshot, to compare two of them."""

from __future__ import annotations

import hashlib
from dataclasses import fields

from headgate.base.column import Column, FrozenColumn
from headgate.base.lists import FrozenLists, Lists
from headgate.base.vectors import FrozenVectors, Vectors
from headgate.state import State
from headgate.state.tables import TABLES
from headgate.state.view import View


def digest(view: View) -> str:
    """Return a checksum over all columns and names; equal states have equal ones, in any process.

    Without what has no effect on transitions: refusals, the log of moves, `first_waiting_job`.
    """
    found = hashlib.blake2b(digest_size=16)
    for name in TABLES:
        table = getattr(view, name)
        for field in fields(table):
            found.update(f"{name}.{field.name}".encode())
            found.update(_column(getattr(table, field.name)))
    for name, column in sorted(view.memos.items()):
        found.update(f"memo.{name}".encode())
        found.update(_column(column))
    for name, values in sorted(view.node_memos.items()):
        found.update(f"node_memo.{name}{sorted(values.items())}".encode())
    found.update(_names(view).encode())
    return found.hexdigest()


def _column(column: Column | FrozenColumn | Lists | FrozenLists | Vectors | FrozenVectors) -> bytes:
    values = column.array()
    return repr(values.tolist()).encode() if values.dtype == object else values.tobytes()


def _names(view: View) -> str:
    names = view.names
    values: list[object] = [
        view.version, view.now, view.bandwidth, view.topology, view.fleet, view.hardened,
        sorted(view.datasets.items()),
        names.jobs[: len(view.jobs.state)],
        names.shards[: len(view.shards.size_bytes)],
        sorted(names.node_rows.items())[: len(view.nodes.alive)],
        sorted(names.queue_rows.items())[: len(view.queues.spec)],
        names.demands[: int(view.tasks.demand.array().max(initial=-1)) + 1],
    ]  # fmt: skip
    if isinstance(view, State):
        values += [
            view.waiting_tasks, [[*jobs] for jobs in view.queued_jobs],
            sorted(view.dependents.items()),
            sorted(view.results.items()), sorted(view.result_of.items()), names.resources,
            names.racks, names.users,
            sorted(view.stops.items()), sorted(view.timers.items()), view.policy_failures,
            view.next_job,
        ]  # fmt: skip
    return repr(values)
