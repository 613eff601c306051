"""The key `elastic` of job files and scenarios: how many equal units of a job run at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from headgate.spec.document import Document, Place
from headgate.spec.needs import Needs
from headgate.spec.shape import Count, FileShape, Positive


class ElasticShape(FileShape):
    """A job of equal units: the first `min` start together, up to `max` run where there is room."""

    unit: Annotated[Needs, Field(description="what each unit holds")] = Needs()
    min: Annotated[Positive, Field(description="units without which it does not start")]
    max: Annotated[Positive, Field(description="units that run at a time at most")]


class ElasticUnits(ElasticShape):
    """The same in a job file, whose units are programs, which may fail."""

    retries: Annotated[Count, Field(description="times a failed unit is run again")] = 0


class ElasticWork(ElasticShape):
    """The same in a simulation: its units take from a common pool of work."""

    work_s: Annotated[float, Field(gt=0, description="seconds that one unit alone would take")]


def check_elastic(
    document: Document, raw: Any, elastic: ElasticShape | None, others: Sequence[str]
) -> None:
    """Check what stands below the key `elastic` of a job file, and that no other key conflicts."""
    if "elastic" not in raw:
        return
    if elastic is None:
        if document.is_clean(("elastic",)):
            document.add(("elastic",), "must not be empty")
        return
    check_units(document, elastic, ("elastic",))
    check_alone(document, raw, others, ())


def check_units(document: Document, elastic: ElasticShape, place: Place) -> None:
    """Check the numbers and the needs of units."""
    elastic.unit.check(document, (*place, "unit"))
    if not (document.is_clean((*place, "min")) and document.is_clean((*place, "max"))):
        return
    if elastic.max < elastic.min:
        problem = f"{elastic.max} is below 'min', {elastic.min}"
        document.add((*place, "max"), problem, "units beyond 'min' run where there is room")


def check_alone(document: Document, raw: Any, others: Sequence[str], place: Place) -> None:
    """Check that a job with `elastic` has none of the keys that its units rule out."""
    for key in others:
        if key in raw:
            problem = f"an elastic job has equal units, as 'elastic' says: it has no '{key}'"
            document.add((*place, key), problem, "remove one of them")
