"""The present jobs, nodes, queues and datasets as Arrow tables, one row each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import pyarrow as pa

from headgate.base.errors import Problem, SpecError, nearest

Row = Mapping[str, Any]
_PAGE = 1000
_JOBS = {
    **{name: pa.string() for name in ("id", "name", "user", "queue", "state")},
    "priority": pa.int64(),
    "gang": pa.bool_(),
    "num_nodes": pa.int64(),
    **{f"tasks_{name}": pa.int64() for name in ("total", "waiting", "running", "finished")},
    **{f"gpus_{name}": pa.float64() for name in ("held", "peak")},
    **{f"read_bytes_{name}": pa.int64() for name in ("node", "rack", "cluster")},
    **{f"{name}_s": pa.float64() for name in ("estimated", "time_limit", "wait", "run")},
    **{f"{name}_at": pa.float64() for name in ("submitted", "started", "ended")},
    **{f"elastic_{name}": pa.int64() for name in ("min", "max", "running", "surplus", "unneeded")},
    "reason": pa.string(),
    "message": pa.string(),
    "public": pa.bool_(),
    "archived": pa.bool_(),
}
_NODES = {
    **{name: pa.string() for name in ("id", "rack", "state")},
    **{name: pa.int64() for name in ("gpus_total", "gpus_free")},
    **{name: pa.float64() for name in ("cpus", "free_cpus", "actual_cpus")},
    **{f"{name}_memory_bytes": pa.int64() for name in ("total", "granted", "actual")},
    "runs": pa.list_(pa.string()),
}
_QUEUES = {
    "name": pa.string(),
    "weight": pa.float64(),
    "max_gpus": pa.float64(),
    "max_jobs_in_flight": pa.int64(),
    "held_gpus": pa.float64(),
    **{name: pa.int64() for name in ("in_flight", "queued")},
}
_DATASETS = {
    **{name: pa.string() for name in ("name", "user")},
    **{name: pa.int64() for name in ("shards", "size_bytes", "replicas")},
    "public": pa.bool_(),
}


class TableClient(Protocol):
    """What is asked here of a `headgate.Client`."""

    def jobs(self, **query: str | int | None) -> dict[str, Any]:
        """Return a page of jobs."""

    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes."""

    def queues(self) -> list[dict[str, Any]]:
        """Return the queues."""

    def datasets(self) -> list[dict[str, Any]]:
        """Return the datasets."""


def table_of(client: TableClient, name: str) -> pa.Table:
    """Return a table by its name; SpecError `usage` for another name."""
    if name not in _TABLES:
        text = f"there is no table '{name}'"
        hint = nearest(name, _TABLES)
        raise SpecError([Problem(path="name", problem=text, hint=hint)], code="usage")
    columns, rows = _TABLES[name]
    schema = pa.schema(list(columns.items()))
    return pa.Table.from_pylist([dict(row) for row in rows(client)], schema=schema)


def _jobs(client: TableClient) -> Iterator[Row]:
    cursor: str | None = None
    while True:
        page = client.jobs(limit=_PAGE, cursor=cursor)
        yield from map(_flat, page["jobs"])
        cursor = page["next"]
        if cursor is None:
            return


def _flat(view: Row) -> Row:
    """Return a view with the values of objects as columns, such as `tasks_total`."""
    flat: dict[str, Any] = {}
    for key, value in view.items():
        if isinstance(value, dict):
            flat |= {f"{key}_{name}": inner for name, inner in value.items()}
        else:
            flat[key] = value
    for name in ("waiting", "running", "finished"):
        flat.setdefault(f"tasks_{name}", 0)
    return flat


def _nodes(client: TableClient) -> Iterator[Row]:
    for node in client.nodes():
        yield {**_flat(node), "gpus_total": len(node["gpus"]), "gpus_free": node["free_gpus"]}


_TABLES: dict[str, tuple[dict[str, pa.DataType], Callable[[TableClient], Any]]] = {
    "jobs": (_JOBS, _jobs),
    "nodes": (_NODES, _nodes),
    "queues": (_QUEUES, lambda client: client.queues()),
    "datasets": (_DATASETS, lambda client: client.datasets()),
}
