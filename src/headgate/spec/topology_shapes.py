"""The keys of topology files, and values that several of them share."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

from pydantic import Field, WithJsonSchema

from headgate.base.text import NAME, NAME_FORM
from headgate.spec.document import Document, Place, clipped
from headgate.spec.shape import FileShape, Name, Positive, Rate, parse, shown

MOST_NODES = 100_000
_NAMES = re.compile(r"([^\[\]]*)\[([0-9,-]{1,1000})\]([^\[\]]*)")
_PART = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")

_RATE_SCHEMA = {"type": ["number", "string"], "description": "bytes per second: 1.25e9, 12.5GB"}
_NODES_SCHEMA = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
    "description": "names of nodes, or patterns of them: n[1-16]",
}
Rates = Annotated[
    Any, WithJsonSchema({"anyOf": [_RATE_SCHEMA, {"type": "array", "items": _RATE_SCHEMA}]})
]
Nodes = Annotated[Any, WithJsonSchema(_NODES_SCHEMA)]
GpuIndex = Annotated[int, Field(ge=0, le=999)]


class LevelShape(FileShape):
    name: Name = "?"
    bandwidth: Rate | None = None
    must: ClassVar = ("name",)


class GroupLevelShape(FileShape):
    name: Name = "?"
    bandwidth: Rate = 1
    each: Positive | None = None
    groups: list[list[GpuIndex]] | None = None
    must: ClassVar = ("name", "bandwidth")


class GpusShape(FileShape):
    bandwidth: Rate = 1
    count: Annotated[int, Field(ge=1, le=1000)] | None = None
    levels: list[Any] = Field(default_factory=list)
    must: ClassVar = ("bandwidth",)


class SwitchShape(FileShape):
    name: Name = "?"
    members: Nodes = None
    level: str | None = None
    must: ClassVar = ("name", "members")


class MeshShape(FileShape):
    shape: list[Positive] = Field(default_factory=lambda: [1], min_length=1)
    wrap: Annotated[Any, WithJsonSchema({"type": ["boolean", "array"]})] = False
    bandwidth: Rates = 1
    nodes: Nodes = None
    must: ClassVar = ("shape", "bandwidth", "nodes")


class FatTreeShape(FileShape):
    ports: Annotated[int, Field(ge=2, le=128)] = 2
    bandwidth: Rates = 1
    nodes: Nodes = None
    must: ClassVar = ("ports", "bandwidth", "nodes")


class TopologyShape(FileShape):
    levels: list[Any] = Field(default_factory=list)
    tree: Any = None
    switches: list[Any] | None = None
    bandwidths: dict[str, Rate] = Field(default_factory=dict)
    gpus: Any = None
    nodes: dict[str, Any] = Field(default_factory=dict)
    mesh: Any = None
    fat_tree: Any = None


class _RatesShape(FileShape):
    bandwidth: list[Rate] = Field(default_factory=list)


class _RateShape(FileShape):
    bandwidth: Rate = 1


def rates(document: Document, raw: Any, count: int, what: str, place: Place) -> tuple[float, ...]:
    """Return `count` bandwidths at a place whose key is `bandwidth`: one for all, or a list."""
    if not isinstance(raw, list):
        one = parse(document, _RateShape, {"bandwidth": raw}, place[:-1])
        return (one.bandwidth if one else 1.0,) * count
    many = parse(document, _RatesShape, {"bandwidth": raw}, place[:-1])
    if len(raw) != count:
        document.add(place, f"has {len(raw)} values for {count} {what}", "write one for each")
    found = many.bandwidth if many else []
    return tuple(found) if len(found) == count else (1.0,) * count


def node_names(document: Document, raw: Any, place: Place) -> list[tuple[str, Place]]:
    """Return the names of a text or a list of texts, each with its place; `n[1-3]` is three."""
    single = not isinstance(raw, list)
    found: list[tuple[str, Place]] = []
    for number, text in enumerate([raw] if single else raw):
        text_place = place if single else (*place, number)
        if not isinstance(text, str):
            document.add(
                text_place, f"must be the name of a node, not {shown(text)}", "put it in quotes"
            )
            continue
        match = _NAMES.fullmatch(text)
        names = [text] if match is None else _expanded(match)
        if len(found) + len(names) > MOST_NODES:
            document.add(text_place, f"more than {MOST_NODES} nodes")
            break
        if names and NAME.fullmatch(names[0]):
            found += [(name, text_place) for name in names]
        else:
            hint = f"use {NAME_FORM}; n[1-16] is a pattern"
            document.add(text_place, f"'{clipped(text)}' is not a name", hint)
    return found


def _expanded(match: re.Match[str]) -> list[str]:
    """Return the names of a pattern: `n[01-03,7]` is n01, n02, n03, n7; none if it is wrong."""
    found: list[str] = []
    for part in match[2].split(","):
        ends = _PART.fullmatch(part)
        if ends is None:
            return []
        first, last = int(ends[1]), int(ends[2] or ends[1])
        if not first <= last < first + MOST_NODES:
            return []
        width = len(ends[1]) if ends[1].startswith("0") else 0
        found += [f"{match[1]}{n:0{width}d}{match[3]}" for n in range(first, last + 1)]
    return found
