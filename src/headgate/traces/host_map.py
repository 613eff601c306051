"""Recorded maps of hosts to switches, as trees."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.base.errors import Problem, SpecError
from headgate.model.topology import ClusterTree

HOST_BYTES_PER_S = 25e9
"""Bandwidth of a host's links where a map has none: two of 100 Gbit/s."""

_SWITCHES = ("core_switch", "agg_switch", "tor_switch")


def read_host_map(
    path: Path,
    *,
    host: str = "host",
    switches: Sequence[str] = _SWITCHES,
    host_bytes_per_s: float = HOST_BYTES_PER_S,
    oversubscription: float = 1.0,
) -> ClusterTree:
    """Return the tree of a Parquet table with a row per host and its switches, from the top.

    Names of switches are unique below the one above only: their paths identify them. A
    switch's link upwards has the bandwidth of all hosts below it, divided by `oversubscription`.
    Raises SpecError for a file or columns that cannot be used, and for a host with two places.
    """
    try:
        table = pq.read_table(path, columns=[*switches, host])
        rows = list(zip(*(table[name].to_pylist() for name in (*switches, host)), strict=True))
    except (OSError, pa.ArrowException, KeyError) as error:
        text = f"is no map with the columns {', '.join([*switches, host])}: {error}"
        raise SpecError([Problem(path=str(path), problem=text)]) from None
    _check(path, rows)
    depth = len(switches)
    below = Counter(row[:length] for row in rows for length in range(1, depth + 1))
    single = len({row[0] for row in rows}) == 1
    top = switches[0] if single else "network"
    numbers: dict[tuple[str, ...], int] = {rows[0][:1] if single else (): 0}
    parents, levels, rates = [-1], [0], [math.inf]
    for row in rows:
        for length in range(1 + single, depth + 2):
            key = row[:length]
            if key in numbers:
                continue
            numbers[key] = len(parents)
            parents.append(numbers[row[: length - 1]])
            levels.append(length - single)
            hosts = below[key] / oversubscription if length <= depth else 1
            rates.append(hosts * host_bytes_per_s)
    names = [top if not key else "/".join(key[single:] or key) for key in numbers]
    return ClusterTree(
        level_names=(*([] if single else ["network"]), *_level_names(switches), "node"),
        names=tuple(
            key[-1] if len(key) > depth else name for key, name in zip(numbers, names, strict=True)
        ),
        parents=tuple(parents),
        levels=tuple(levels),
        bytes_per_s=tuple(rates),
    )


def _level_names(switches: Sequence[str]) -> list[str]:
    return [name.removesuffix("_switch") for name in switches]


def _check(path: Path, rows: Sequence[tuple[str | None, ...]]) -> None:
    """Raise SpecError for an empty map, missing names, and hosts named twice."""
    twice = [host for host, count in Counter(row[-1] for row in rows).items() if count > 1]
    problems = [f"the host {host} has two places" for host in twice]
    if any(name is None for row in rows for name in row):
        problems.append("a host or one of its switches has no name")
    if not rows:
        problems.append("has no hosts")
    if problems:
        raise SpecError(Problem(path=str(path), problem=problem) for problem in problems)
