"""How many tasks of a job run together, and which jobs it comes after: `max_running`, `after`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from headgate.spec.document import Document, Place, clipped
from headgate.spec.shape import Positive, shown

AFTER_MOST = 1000
"""Jobs that a job may come after."""


def _ids(value: Any) -> Any:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        problem = "must be the id of a job or a list of them, not {value}"
        raise PydanticCustomError("job_ids", problem, {"value": shown(value)})
    if len(value) > AFTER_MOST:
        problem = f"names {len(value)} jobs, and a job comes after at most {AFTER_MOST}"
        raise PydanticCustomError("job_ids", problem)
    return value


After = Annotated[
    list[Annotated[str, Field(min_length=1)]],
    BeforeValidator(_ids),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {
                    "type": "array",
                    "items": {"type": "string", "minLength": 1},
                    "uniqueItems": True,
                    "maxItems": AFTER_MOST,
                },
            ]
        }
    ),
    Field(
        default_factory=list, description="ids of jobs: it starts when all of them have finished"
    ),
]
"""Names of earlier jobs, one or a list."""

MaxRunning = Annotated[
    Positive | None, Field(description="tasks that are in flight together at most")
]


def check_after(document: Document, after: Sequence[str], place: Place) -> None:
    """Add a problem for each job that is named twice."""
    for number, name in _repeated(after):
        document.add((*place, number), f"'{clipped(name)}' is named twice")


def _repeated(names: Sequence[str]) -> Iterator[tuple[int, str]]:
    seen = set[str]()
    for number, name in enumerate(names):
        if name in seen:
            yield number, name
        seen.add(name)


def check_max_running(document: Document, raw: Any, place: Place, *, gang: bool) -> None:
    """Check the key `max_running` of what stands at a place, of a gang or another job."""
    if "max_running" not in raw:
        return
    if gang:
        problem = "a gang starts all its tasks together: it has no 'max_running'"
        document.add((*place, "max_running"), problem, "remove one of them")
    elif raw["max_running"] is None:
        document.add((*place, "max_running"), "must not be empty")
