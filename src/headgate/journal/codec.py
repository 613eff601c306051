"""The encoding of the journal: an event as one line of JSON, `["NodeLost",{"at":1.5,"node":"n1"}]`.

The first element is the type of event, the second holds its fields. Floats are restored exactly,
infinities included.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from headgate.base.errors import InvariantBroken
from headgate.protocol import Event, PlanReady

_KIND = re.compile(r'\["(\w+)",')


def _kinds(base: type[Event]) -> Iterator[type[Event]]:
    """Yield the types of events that are journaled: of a plan, only the outcome of admission."""
    for kind in base.__subclasses__():
        if kind.__name__ != PlanReady.__name__:  # by name: slots make a class a second time
            yield kind
            yield from _kinds(kind)


_KINDS = {kind.__name__: kind for kind in _kinds(Event)}


@functools.cache  # made when it is first used: all of them would take a tenth of a second
def _adapter(name: str) -> TypeAdapter[Any]:
    """Return what reads and writes a kind of event; KeyError for an unknown one."""
    kind = _KINDS[name]
    tagged = tuple[str, kind]  # type: ignore[valid-type]  # a type made at run time
    return TypeAdapter(tagged, config=ConfigDict(ser_json_inf_nan="constants"))


def encode(event: Event) -> str:
    """Return the text of an event; InvariantBroken for one that could not be decoded."""
    kind = type(event).__name__
    try:
        adapter = _adapter(kind)
        text: bytes = adapter.dump_json((kind, event), warnings="error")
    except (KeyError, PydanticSerializationError) as error:
        raise InvariantBroken(f"not fit for the journal: {event!r}: {error}") from error
    return text.decode()


def decode(text: str) -> Event:
    """Return the event of a text; ValueError with the problem for any other text."""
    tag = _KIND.match(text)
    if tag is None or tag[1] not in _KINDS:
        raise ValueError(f"unknown kind of event: {text[:40]}")
    try:
        event: Event = _adapter(tag[1]).validate_json(text, strict=True)[1]
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join([tag[1], *map(str, first["loc"][1:])])
        raise ValueError(f"{where}: {first['msg']}") from error
    return event
