"""Translation of pydantic's errors into problems with place, message and hint; common types.

A `FileShape` is checked piece by piece with `parse`: a wrong field adds a problem and gets its
default, so that one mistake never hides another. `must` names required fields that have a default
for this purpose only.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic_core import PydanticCustomError

from headgate.base.errors import nearest
from headgate.base.text import NAME, NAME_FORM
from headgate.base.units import (
    MOST_BYTES,
    MOST_SECONDS,
    BadQuantity,
    need_unit,
    parse_duration,
    parse_size,
)
from headgate.spec.document import Document, Place, clipped

_LONGEST_SIZE = 100  # characters
_WRONG = {
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be a mapping of keys to values",
    "model_type": "must be a mapping of keys to values",
    "finite_number": "must be a finite number",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "greater_than": "must be more than {gt}",
    "literal_error": "must be {expected}",
}


class FileShape(BaseModel):
    """Keys and values of a file: types as written, nothing unknown."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)
    must: ClassVar[tuple[str, ...]] = ()


S = TypeVar("S", bound=FileShape)


def parse(document: Document, shape: type[S], raw: Any, place: Place) -> S | None:
    """Return a part of a document as a shape, adding its problems to the document.

    A wrong field has its default. None for a value that is no mapping, or when a field without a
    default is wrong.
    """
    if not isinstance(raw, dict):
        document.add(place, f"must be a mapping of keys to values, not {shown(raw)}")
        return None
    for name in shape.must:
        if name not in raw:
            document.add((*place, name), "is missing")
    try:
        return shape.model_validate(raw)
    except ValidationError as error:
        wrong = error.errors(include_url=False)
    for problem in wrong:
        add_error(document, shape, raw, place, problem)
    kept = _without(raw, [_inner(raw, problem["loc"]) for problem in wrong])
    try:
        return shape.model_validate(kept)
    except ValidationError as error:
        still = [problem["loc"][:1] for problem in error.errors()]
    try:
        return shape.model_validate(_without(kept, still))
    except ValidationError:
        return None


def add_error(
    document: Document, shape: type[FileShape], raw: Any, place: Place, error: Mapping[str, Any]
) -> None:
    """Add one of pydantic's errors to a document, as a problem in Headgate's words."""
    kind, value = error["type"], error["input"]
    inner = _inner(raw, error["loc"])
    if kind == "missing":
        document.add((*place, *inner, error["loc"][-1]), "is missing")
    elif kind == "extra_forbidden":
        key = str(inner[-1])
        hint = partial(_nearest_key, shape, inner)
        document.add((*place, *inner), f"unknown key '{clipped(key)}'", hint)
    elif kind in ("too_short", "string_too_short"):
        document.add((*place, *inner), "must not be empty")
    elif kind in _WRONG:
        limits = {key: _limit(limit) for key, limit in error.get("ctx", {}).items()}
        must = _WRONG[kind].format_map(limits)
        quotes = "put it in quotes" if kind == "string_type" and not _is_nested(value) else ""
        document.add((*place, *inner), f"{must}, not {shown(value)}", quotes)
    else:
        hint = error.get("ctx", {}).get("hint", "")
        document.add((*place, *inner), error["msg"].removeprefix("Value error, "), hint)


def shown(value: Any) -> str:
    """Return the short text of a value for messages."""
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case str():
            return repr(value if len(value) <= 40 else value[:37] + "...")
        case list():
            return "a list"
        case dict():
            return "keys and values"
        case int() if abs(value) >= 10**40:
            return "a number of more than 40 digits"
    return str(value)


def _limit(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _is_nested(value: Any) -> bool:
    return value is None or isinstance(value, list | dict)


def _inner(raw: Any, loc: Iterable[str | int]) -> Place:
    """Return the part of pydantic's location that is in the data (it also names union branches)."""
    place: list[str | int] = []
    for part in loc:
        if isinstance(raw, dict) and part in raw:
            raw = raw[str(part)]
        elif isinstance(raw, list) and isinstance(part, int) and part < len(raw):
            raw = raw[part]
        else:
            continue
        place.append(part)
    return tuple(place)


def _without(raw: dict[str, Any], places: Iterable[Place]) -> dict[str, Any]:
    """Return a copy without the keys at some places; of a place in a list, the key of the list.

    O(its size + places): several wrong entries of one list, which is left out once, are one place.
    """
    kept = copy.deepcopy(raw)
    for path in dict.fromkeys(_key_of(place) for place in places):
        part: Any = kept
        for key in path[:-1]:  # a value around it may be removed already
            part = part[key] if isinstance(part, list) or key in part else {}
        if path:
            part.pop(path[-1], None)
    return kept


def _key_of(place: Place) -> tuple[Any, ...]:
    """Return the place of the innermost key."""
    while place and isinstance(place[-1], int):
        place = place[:-1]
    return place


def _nearest_key(shape: type[FileShape], place: Place) -> str:
    """Return the hint for an unknown key."""
    return nearest(str(place[-1]), _known(shape, place[:-1]))


def _known(shape: type[FileShape], place: Place) -> list[str]:
    """Return the keys of a shape at a place inside it."""
    shapes = [shape]
    for part in place:
        fields = [f for s in shapes for n, f in s.model_fields.items() if part in (n, f.alias)]
        if fields:
            shapes = [s for f in fields for s in _shapes_in(f.annotation)]
    return [field.alias or name for s in shapes for name, field in s.model_fields.items()]


def _shapes_in(annotation: Any) -> list[type[FileShape]]:
    if isinstance(annotation, type) and issubclass(annotation, FileShape):
        return [annotation]
    return [shape for part in get_args(annotation) for shape in _shapes_in(part)]


# Types of fields.


def _size(value: Any) -> Any:
    if isinstance(value, str):
        if len(value) > _LONGEST_SIZE:
            words = {"value": shown(value), "hint": "write bytes or a unit such as 64MiB or 2GB"}
            raise PydanticCustomError("size", "{value} is not a size", words)
        if value.strip().startswith("-"):
            raise PydanticCustomError("size", "must be at least 0, not {value}", {"value": value})
        try:
            return parse_size(value)
        except BadQuantity as error:
            words = {"problem": error.problem, "hint": error.hint}
            raise PydanticCustomError("size", "{problem}", words) from None
    if isinstance(value, float) and value.is_integer():  # 1e9 is a number of bytes, too
        return int(value)
    return value


def _memory(value: Any) -> Any:
    if isinstance(value, str | int | float):
        try:
            need_unit(value)
        except BadQuantity as error:
            words = {"problem": error.problem, "hint": error.hint}
            raise PydanticCustomError("size", "{problem}", words) from None
    return value


def _name(value: Any) -> Any:
    if isinstance(value, str) and not NAME.fullmatch(value):
        words = {"value": shown(value), "hint": f"use {NAME_FORM}"}
        raise PydanticCustomError("name", "{value} is not a name", words)
    return value


def _pairs(value: Any) -> Any:
    if value not in ("index", "all"):
        problem = "must be 'index' or 'all', not {value}"
        raise PydanticCustomError("pairs", problem, {"value": shown(value)})
    return value


def _keep(value: Any) -> Any:
    if value == "forever":
        return math.inf
    try:
        if isinstance(value, str) and 0 < parse_duration(value) <= MOST_SECONDS:
            return parse_duration(value)
    except BadQuantity:
        pass
    words = {"value": shown(value), "hint": "write one such as 12h or 7d"}
    raise PydanticCustomError("keep", "must be a duration or 'forever', not {value}", words)


def _run_time(value: Any) -> Any:
    try:
        if isinstance(value, str) and 0 < parse_duration(value) <= MOST_SECONDS:
            return parse_duration(value)
    except BadQuantity:
        pass
    words = {"value": shown(value), "hint": "write one such as 90s, 30min or 12h"}
    raise PydanticCustomError("run_time", "must be a duration above 0, not {value}", words)


Name = Annotated[
    str, BeforeValidator(_name), WithJsonSchema({"type": "string", "pattern": f"^{NAME.pattern}$"})
]
Size = Annotated[
    int,
    Field(ge=0, le=MOST_BYTES),
    BeforeValidator(_size),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": MOST_BYTES},
                {"type": "string", "pattern": r"^\s*[0-9]*\.?[0-9]+([eE][0-9]+)?\s*[A-Za-z]*\s*$"},
            ],
            "description": "bytes, or a number with a unit: 64MiB, 2GB",
        }
    ),
]
Memory = Annotated[Size, BeforeValidator(_memory)]
Pairs = Annotated[  # which shards of several data go to one task: those of equal index, or any
    str, BeforeValidator(_pairs), WithJsonSchema({"enum": ["index", "all"]})
]
Keep = Annotated[  # seconds; `inf` is forever, None where a file does not say
    Annotated[float, Field(allow_inf_nan=True)] | None,
    BeforeValidator(_keep),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^(forever|\s*[0-9]*\.?[0-9]+([eE][0-9]+)?\s*(s|min|h|d|w)\s*)$",
        }
    ),
]
RunTime = Annotated[  # seconds; None where a file does not say
    float | None,
    BeforeValidator(_run_time),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^\s*[0-9]*\.?[0-9]+([eE][0-9]+)?\s*(s|min|h|d|w)\s*$",
        }
    ),
]

Rate = Annotated[float, Field(ge=1, le=1e18), BeforeValidator(_size)]  # bytes per second
Seconds = Annotated[float, Field(ge=0, le=MOST_SECONDS)]
RunSeconds = Annotated[float, Field(gt=0, le=MOST_SECONDS)] | None  # as `RunTime`, a number
Count = Annotated[int, Field(ge=0, le=1_000_000)]
Positive = Annotated[int, Field(ge=1, le=1_000_000)]
Priority = Annotated[int, Field(ge=-1_000_000, le=1_000_000)]
