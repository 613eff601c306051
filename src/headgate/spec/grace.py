"""The grace period of a job's runs, as job files give it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from headgate.base.units import BadQuantity, format_seconds, parse_duration
from headgate.spec.shape import shown

MOST_GRACE_S = 600.0
"""The longest grace period: so long may a stopped run keep GPUs that others wait for."""


def _grace(value: Any) -> Any:
    try:
        if isinstance(value, str) and 0 <= (seconds := parse_duration(value)) <= MOST_GRACE_S:
            return seconds
    except BadQuantity:
        pass
    most = format_seconds(MOST_GRACE_S)
    words = {"value": shown(value), "most": most, "hint": "write one such as 30s or 5min; 0s: none"}
    raise PydanticCustomError("grace", "must be a duration of at most {most}, not {value}", words)


Grace = Annotated[  # seconds; None where a file does not say
    float | None,
    BeforeValidator(_grace),
    WithJsonSchema(
        {"type": "string", "pattern": r"^\s*[0-9]*\.?[0-9]+([eE][0-9]+)?\s*(s|min|h|d|w)\s*$"}
    ),
]
