"""What events can say: their types, fields and words, and which of these some events say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from typing import Any, ForwardRef, get_args, get_type_hints

from headgate.model import Task
from headgate.model.job import WrittenTask
from headgate.protocol import Event, PlanReady


def journaled() -> dict[str, type[Event]]:
    """Return the types of events that are journaled: of a plan, only the outcome of admission."""
    kinds = {kind.__name__: kind for kind in Event.__subclasses__()}
    del kinds[PlanReady.__name__]
    return kinds


def shape() -> dict[str, str]:
    """Return every field of every type of event, and of all that they contain, with its type.

    Of an enumeration, every member with its value.
    """
    found: dict[str, str] = {}
    for kind in journaled().values():
        _add(kind, found)
    return dict(sorted(found.items()))


def _add(kind: Any, found: dict[str, str]) -> None:
    if isinstance(kind, type) and issubclass(kind, Enum):
        found |= {f"{kind.__name__}.{member.name}": str(member.value) for member in kind}
    elif kind is Task:  # is written in another form
        _add(WrittenTask, found)
    elif names := _fields(kind):
        if f"{_name(kind)}.{names[0]}" in found:
            return
        own = {name: hint for each in kind.__mro__[::-1] for name, hint in _written(each).items()}
        found |= {f"{_name(kind)}.{name}": own[name] for name in names}
        for name, hint in get_type_hints(kind).items():
            if name in names:
                _add(hint, found)
    else:
        for part in get_args(kind):
            _add(part, found)


def _name(kind: type) -> str:
    return Task.__name__ if kind is WrittenTask else kind.__name__


def _fields(kind: Any) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass or a named tuple; of others, none."""
    if is_dataclass(kind):
        return tuple(each.name for each in fields(kind))
    return getattr(kind, "_fields", ())


def _written(kind: type) -> dict[str, str]:
    """Return the types of a class's own fields as the source has them."""
    own = vars(kind).get("__annotations__", {})
    return {
        name: hint.__forward_arg__ if isinstance(hint, ForwardRef) else str(hint)
        for name, hint in own.items()
    }


def said(events: Iterable[Event]) -> set[str]:
    """Return what of `shape` events say: a field, where it has another value than by default."""
    found: set[str] = set()
    for event in events:
        _say(event, found)
    return found


def _say(value: Any, found: set[str]) -> None:
    if isinstance(value, Task):
        _say(WrittenTask.of(value), found)
    elif isinstance(value, Enum):
        found.add(f"{type(value).__name__}.{value.name}")
    elif names := _fields(type(value)):
        defaults = _defaults(type(value))
        for name in names:
            part = getattr(value, name)
            if name not in defaults or part != defaults[name]:
                found.add(f"{_name(type(value))}.{name}")
            _say(part, found)
    elif isinstance(value, Mapping):
        _say((*value, *value.values()), found)
    elif isinstance(value, tuple | list):
        for part in value:
            _say(part, found)


def _defaults(kind: Any) -> dict[str, Any]:
    """Return the default values of the fields that have one."""
    if not is_dataclass(kind):
        return dict(kind._field_defaults)
    found = {each.name: _default(each) for each in fields(kind)}
    return {name: value for name, value in found.items() if value is not MISSING}


def _default(each: Field[Any]) -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()
