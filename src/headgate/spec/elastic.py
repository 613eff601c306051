"""The key `elastic` of job files and scenarios: how many equal units of a job run at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from headgate.spec.document import Document, Place
from headgate.spec.needs import Needs
from headgate.spec.shape import Count, FileShape, Positive, RunTime
from headgate.spec.training import check_training, is_training


class ElasticShape(FileShape):
    """A job of equal units: the first `min` start together, up to `max` run where there is room."""

    unit: Annotated[Needs, Field(description="what each unit holds")] = Needs()
    min: Annotated[Positive, Field(description="units without which it does not start")]
    max: Annotated[Positive, Field(description="units that run at a time at most")]


class ElasticUnits(FileShape):
    """The same in a job file, whose units are programs, which may fail; or a training job's."""

    unit: Annotated[Needs, Field(description="what each unit holds")] = Needs()
    min: Annotated[Positive | None, Field(description="units without which it does not start")] = (
        None
    )
    max: Annotated[Positive | None, Field(description="units that run at a time at most")] = None
    gpus: Annotated[
        list[Positive] | None, Field(description="with `work`: the numbers of GPUs it may have")
    ] = None
    restart: Annotated[
        RunTime, Field(description="with `work`: how long it takes until it works again")
    ] = None
    retries: Annotated[Count, Field(description="times a failed unit is run again")] = 0


class ElasticWork(ElasticShape):
    """The same in a simulation: its units take from a common pool of work."""

    work_s: Annotated[float, Field(gt=0, description="seconds that one unit alone would take")]


def check_elastic(
    document: Document, raw: Any, elastic: ElasticUnits | None, others: Sequence[str]
) -> None:
    """Check what stands below the key `elastic` of a job file, and that no other key conflicts."""
    if is_training(raw):
        check_training(document, raw, elastic, ())
        check_alone(document, raw, others, ())
        for key in ("min", "max") if isinstance(raw.get("elastic"), dict) else ():
            if key in raw["elastic"]:
                problem = "a job that trains has the numbers of GPUs in 'elastic.gpus'"
                document.add(("elastic", key), problem, "remove one of them")
        return
    if "elastic" not in raw:
        return
    if elastic is None:
        if document.is_clean(("elastic",)):
            document.add(("elastic",), "must not be empty")
        return
    for key in ("max", "min"):
        if key not in raw["elastic"]:
            document.add(("elastic", key), "is missing")
    if "restart" in raw["elastic"]:
        document.add(("elastic", "restart"), "is for jobs that train", "give 'work', or remove it")
    check_units(document, elastic, ("elastic",))
    check_alone(document, raw, others, ())


def check_units(document: Document, elastic: ElasticShape | ElasticUnits, place: Place) -> None:
    """Check the numbers and the needs of units."""
    elastic.unit.check(document, (*place, "unit"))
    if not (document.is_clean((*place, "min")) and document.is_clean((*place, "max"))):
        return
    if elastic.max is not None and elastic.min is not None and elastic.max < elastic.min:
        problem = f"{elastic.max} is below 'min', {elastic.min}"
        document.add((*place, "max"), problem, "units beyond 'min' run where there is room")


def check_alone(document: Document, raw: Any, others: Sequence[str], place: Place) -> None:
    """Check that a job with `elastic` has none of the keys that its units rule out."""
    for key in others:
        if key in raw:
            problem = f"an elastic job has equal units, as 'elastic' says: it has no '{key}'"
            document.add((*place, key), problem, "remove one of them")
