"""Division of files into shards, and choice of the nodes for their replicas."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from headgate.base.errors import Problem, SpecError, WorldError
from headgate.base.units import format_size
from headgate.live.node.store import PIECE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """A range of a file; each iteration reads it in pieces."""

    path: Path
    start: int
    size_bytes: int

    def __iter__(self) -> Iterator[bytes]:
        """Yield pieces of at most 1 MiB; WorldError if the file has shrunk meanwhile."""
        rest = self.size_bytes
        with self.path.open("rb") as file:
            file.seek(self.start)
            while rest:
                piece = file.read(min(rest, PIECE_BYTES))
                if not piece:
                    raise WorldError(f"'{self.path}' became shorter while it was read")
                rest -= len(piece)
                yield piece


SHARDS_MOST = 10_000
"""Most shards of one dataset: each is placed separately, and is a file on each of its nodes."""


class NodeSpace(NamedTuple):
    """A node that may store a replica, and the bytes free on its disk."""

    node: str
    rack: str
    free_bytes: int


def split_files(
    paths: Sequence[Path], shard_bytes: int, *, lines: bool
) -> tuple[tuple[str, FilePart], ...]:
    """Divide files into one numbered sequence of shards (name, part); no shard spans two files.

    Shards have `shard_bytes`, a file's last one the rest. With `lines` each ends after the first
    line end at or beyond that size, so it is longer by less than one line. Names are `00000`,
    `00001`, ...: they sort in the order of the data. Only the ends of shards are read here.
    SpecError with every problem: missing files, no data at all, a size below 1, or more than
    SHARDS_MOST shards.
    """
    problems = []
    if shard_bytes < 1:
        problems.append(
            Problem(path="--shard", problem=f"a shard has at least 1 byte, not {shard_bytes}")
        )
    for path in paths:
        if not path.is_file():
            what = "is not a file" if path.exists() else "there is no such file"
            problems.append(Problem(path=str(path), problem=what))
    if not problems and not any(path.stat().st_size for path in paths):
        names = ", ".join(str(path) for path in paths) or "files"
        problems.append(Problem(path=names, problem="contains no data"))
    if problems:
        raise SpecError(problems)
    parts: list[FilePart] = []
    for path in paths:
        room = SHARDS_MOST + 1 - len(parts)
        try:
            parts += itertools.islice(_parts(path, shard_bytes, lines=lines), room)
        except OSError as error:
            text = f"cannot be read: {error.strerror}"
            problems.append(Problem(path=str(path), problem=text))
    if len(parts) > SHARDS_MOST:
        problems.append(_too_many(paths))
    if problems:
        raise SpecError(problems)
    return tuple((f"{number:05d}", part) for number, part in enumerate(parts))


def _too_many(paths: Sequence[Path]) -> Problem:
    text = f"makes more than {SHARDS_MOST} shards"
    if len(paths) >= SHARDS_MOST:
        return Problem(
            path="--shard", problem=text, hint="join files, or put them as several datasets"
        )
    size_bytes = sum(path.stat().st_size for path in paths)
    enough = -(-size_bytes // (SHARDS_MOST - len(paths)))
    enough = 1 << max(20, (enough - 1).bit_length())  # a round number, 1 MiB at least
    hint = f"--shard {format_size(enough).replace(' ', '')} makes fewer"
    return Problem(path="--shard", problem=text, hint=hint)


def _parts(path: Path, shard_bytes: int, *, lines: bool) -> Iterator[FilePart]:
    size_bytes = path.stat().st_size
    start = 0
    with path.open("rb") as file:
        while start < size_bytes:
            stop = min(start + shard_bytes, size_bytes)
            if lines:
                file.seek(stop - 1)
                while piece := file.readline(PIECE_BYTES):
                    if piece.endswith(b"\n"):
                        break
                stop = file.tell()
            yield FilePart(path=path, start=start, size_bytes=stop - start)
            start = stop


def choose_nodes(
    index: int, places: Sequence[NodeSpace], replicas: int, *, size_bytes: int = 0
) -> tuple[str, ...]:
    """Return distinct nodes for the replicas of the shard with this index, the first replica first.

    Successive shards start on successive nodes, with alternating racks. The second replica is put
    in another rack, the third in the second's rack (so two racks have the shard and only one copy
    crosses between them), any further one on any node; a preference that no node meets is ignored.
    Nodes with less than `size_bytes` free are skipped. Deterministic.
    SpecError for fewer nodes than replicas, WorldError `disk_full` when too few have room.
    """
    if not 1 <= replicas <= len(places):
        raise SpecError(
            [
                Problem(
                    path="replicas",
                    problem=f"{replicas} replicas on {len(places)} nodes",
                    hint=f"choose from 1 to {len(places)}: each replica is on another node",
                )
            ]
        )
    ranked = _rack_by_rack([place for place in places if place.free_bytes >= size_bytes])
    if len(ranked) < replicas:
        raise WorldError(
            f"{len(ranked)} of {len(places)} nodes have room for a shard of {size_bytes} bytes, "
            f"{replicas} are needed",
            code="disk_full",
        )
    first = ranked[index % len(ranked)]
    neighbours = [place for place in ranked if place.rack == first.rack]
    turn = index // len(ranked) + neighbours.index(first)
    return (first.node, *choose_further(turn, ranked, [first.node], replicas - 1))


def choose_further(
    turn: int, places: Sequence[NodeSpace], held: Sequence[str], count: int, *, size_bytes: int = 0
) -> tuple[str, ...]:
    """Return nodes for `count` more replicas of a shard that the nodes `held` have.

    Spread over racks as by `choose_nodes`; different values of `turn` give different nodes. Fewer
    nodes if no more have `size_bytes` free.
    """
    ranked = _rack_by_rack(places)
    chosen = [place for name in held for place in ranked if place.node == name]
    further: list[str] = []
    while len(further) < count:
        left = [p for p in ranked if p not in chosen and p.free_bytes >= size_bytes]
        if not left:
            break
        preferred = left
        if len(chosen) == 1:
            preferred = [place for place in left if place.rack != chosen[0].rack]
        elif len(chosen) == 2:
            preferred = [place for place in left if place.rack == chosen[1].rack]
        candidates = preferred or left
        chosen.append(candidates[turn % len(candidates)])
        further.append(chosen[-1].node)
    return tuple(further)


def _rack_by_rack(places: Sequence[NodeSpace]) -> list[NodeSpace]:
    """Order nodes so that neighbours are in different racks as far as possible."""
    racks: dict[str, int] = {}
    keyed = []
    for place in sorted(places):
        rank = racks.get(place.rack, 0)
        racks[place.rack] = rank + 1
        keyed.append((rank, place.rack, place))
    return [place for _, _, place in sorted(keyed)]
