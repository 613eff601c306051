"""Scaling files of live clusters: those of simulations, with the provider that makes the nodes."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from headgate.base.errors import nearest
from headgate.model.scaling import Scaling
from headgate.spec.document import Document, read_document
from headgate.spec.scaling import Delay, build_scaling
from headgate.spec.shape import FileShape, Name, parse, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRayProvider:
    """Virtual nodes on this machine, in a rack."""

    rack: str = "rack-0"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandProvider:
    """A program with its arguments, and the seconds that a request may take."""

    argv: tuple[str, ...]
    timeout_s: float = 60.0


class LocalRayShape(FileShape):
    kind: str = ""
    rack: Name = "rack-0"


class CommandShape(FileShape):
    kind: str = ""
    command: Annotated[list[str], Field(min_length=1)] = Field(default_factory=list)
    timeout: Delay = 60.0
    must: ClassVar = ("command",)


_KINDS: dict[str, type[FileShape]] = {"local-ray": LocalRayShape, "command": CommandShape}


def load_live_scaling(
    source: Path | str,
) -> tuple[Scaling, LocalRayProvider | CommandProvider]:
    """Return scaling and provider of a file or of text; SpecError with every problem of it."""
    document = read_document(source, name="scaling")
    raw = document.data
    provider = None
    if "provider" in raw:
        provider = _provider(document, raw["provider"])
    else:
        document.add(("provider",), "is missing", "such as {kind: local-ray}")
    scaling = build_scaling(document, {k: v for k, v in raw.items() if k != "provider"}, ())
    document.raise_problems()
    if scaling is None or provider is None:
        raise AssertionError("unreachable: without them there is a problem")
    return scaling, provider


def _provider(document: Document, raw: Any) -> LocalRayProvider | CommandProvider | None:
    place = ("provider",)
    kind = raw.get("kind") if isinstance(raw, dict) else None
    if not isinstance(raw, dict) or "kind" not in raw:
        document.add(place, "must have a kind", f"one of {', '.join(_KINDS)}")
        return None
    if kind not in _KINDS:
        text = f"unknown kind {shown(kind)}; one of {', '.join(_KINDS)}"
        document.add((*place, "kind"), text, nearest(str(kind), _KINDS))
        return None
    given = parse(document, _KINDS[kind], raw, place)
    if isinstance(given, CommandShape):
        if given.command and shutil.which(given.command[0]) is None:
            text = f"there is no program {shown(given.command[0])}"
            document.add((*place, "command"), text, "give the path of one that can be executed")
        return CommandProvider(argv=tuple(given.command), timeout_s=given.timeout)
    return LocalRayProvider(rack=given.rack) if isinstance(given, LocalRayShape) else None
