"""Options that verbs share: the state directory, the output format, sizes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from headgate.api import settings
from headgate.api.settings import Format
from headgate.base.errors import Problem, SpecError
from headgate.base.units import MOST_BYTES, BadQuantity, parse_memory, parse_size

if TYPE_CHECKING:
    from headgate.api.client import Client

__all__ = [
    "DryRunOption",
    "Format",
    "FormatOption",
    "PlaceOption",
    "ProgramSettings",
    "StateOption",
    "YesOption",
    "client_of",
    "memory_bytes",
    "parsed",
    "settle",
    "size_bytes",
]

T = TypeVar("T")
POLICY_FORM = "NAME[,PARAMETER=VALUE...]"

PlaceOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Placer of gangs: closed-minimum, best-fit-subtree ...; default: the policy's own.",
    ),
]

StateOption = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        metavar="DIR",
        readable=False,  # members of its group may only pass through it
        help="State directory of Headgate.",
    ),
]
FormatOption = Annotated[
    Format | None, typer.Option("-o", "--format", help="Output format; wide: nothing is cropped.")
]
DryRunOption = Annotated[
    bool,
    typer.Option("--dry-run", help="Check everything, change nothing."),
]
YesOption = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask for confirmation.")]


class ProgramSettings(settings.Settings):
    """The settings of this call of the program."""

    @property
    def wide(self) -> bool:
        """Whether tables have all columns and whole texts, however wide that is."""
        return self.format is Format.WIDE

    def client(self) -> Client:
        """Return a client of the Headgate in the state directory."""
        return client_of(self.state)


def settle(state: Path | None, output: Format | None, **places: Any) -> ProgramSettings:
    """Return the settings; arguments and errors are as of `headgate.api.settings.settle`."""
    found = settings.settle(state, output, **places)
    return ProgramSettings(state=found.state, format=found.format)


def parsed(option: str, parse: Callable[[str], T], text: str) -> T:
    """Return the parsed value of an option; raise SpecError `usage` for BadQuantity of `parse`."""
    try:
        return parse(text)
    except BadQuantity as error:
        problem = Problem(path=option, problem=error.problem, hint=error.hint)
        raise SpecError([problem], code="usage") from None


def size_bytes(text: str, option: str) -> int:
    """Return the bytes that an option gives; raise SpecError `usage` for an invalid size."""
    return parsed(option, _size_bytes, text)


def memory_bytes(text: str | None, option: str) -> int | None:
    """Return the bytes of memory that an option gives; as `size_bytes`, but bytes need a unit."""
    parse = partial(_size_bytes, parse=parse_memory)
    return None if text is None else parsed(option, parse, text)


def _size_bytes(text: str, parse: Callable[[str], int] = parse_size) -> int:
    found = parse(text)
    if found > MOST_BYTES:
        raise BadQuantity(f"'{text}' is too large")
    return found


def client_of(state: Path, *, timeout_s: float | None = None) -> Client:
    """Return a client of the Headgate of a state directory; `timeout_s` is as of `Client`."""
    from headgate.api.client import Client

    return Client(state=state) if timeout_s is None else Client(state=state, timeout_s=timeout_s)
