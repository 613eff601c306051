"""The key `stdin` of a job file: text that each program of `run` or `tasks` reads on its stdin."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from headgate.base.units import format_size
from headgate.spec.document import Document

MOST_BYTES = 256 << 10
"""Bytes of `stdin`, at most: every launch of a run carries them."""


def _stdin(value: Any) -> Any:
    if not isinstance(value, str):
        raise PydanticCustomError("stdin", "must be text: quote it, or write it behind '|'")
    if len(value.encode()) > MOST_BYTES:
        words = {"most": format_size(MOST_BYTES), "hint": "let the program read a file instead"}
        raise PydanticCustomError("stdin", "has more than {most}", words)
    return value


Stdin = Annotated[
    str | None,
    BeforeValidator(_stdin),
    WithJsonSchema({"type": "string"}),
    Field(description="text that each command of `run` or `tasks` reads on its stdin"),
]


def check_stdin(document: Document, stdin: str | None, *, function: bool, ray: bool) -> None:
    """Add a problem if what the tasks run has no stdin."""
    if stdin is None:
        return
    if ray:
        document.add(("stdin",), "does not go with 'ray', whose programs have no stdin")
    elif function:
        document.add(("stdin",), "is for commands; a function gets 'params'")
