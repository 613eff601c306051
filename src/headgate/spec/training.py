"""Training jobs in scenarios: work, the widths in which it may be done, and the rate of each."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

from pydantic import Field

from headgate.base.text import enumerated
from headgate.model import SpeedCurve, Training
from headgate.spec.document import Document, Place
from headgate.spec.needs import Needs
from headgate.spec.shape import FileShape, Positive, parse, shown


class TrainingShape(FileShape):
    """The key `elastic` of a job that has `work`: the numbers of GPUs with which it may run."""

    gpus: list[Positive] = Field(default_factory=list)
    unit: Annotated[Needs, Field(description="what each of its processes holds")] = Needs()
    restart_s: Annotated[float, Field(ge=0)] = 0.0
    must: ClassVar = ("gpus",)


def is_training(raw: Any) -> bool:
    """Return whether a job, as written, trains: it has work, or names numbers of GPUs."""
    elastic = raw.get("elastic")
    return "work" in raw or "throughput" in raw or (isinstance(elastic, dict) and "gpus" in elastic)


def parse_training(document: Document, raw: Any, place: Place) -> tuple[Training, Needs] | None:
    """Return how a job trains, and what each of its processes holds; None after adding problems."""
    for key in ("work", "throughput", "elastic"):
        if key not in raw:
            hint = "a job that trains has 'work', 'throughput', and 'elastic' with 'gpus'"
            document.add((*place, key), "is missing", hint)
    shape = None
    if "elastic" in raw:
        shape = parse(document, TrainingShape, raw["elastic"], (*place, "elastic"))
    if shape is not None:
        shape.unit.check(document, (*place, "elastic", "unit"))
    widths = [] if shape is None else _widths(document, shape, (*place, "elastic", "gpus"))
    rates = _rates(document, raw.get("throughput"), (*place, "throughput"), "throughput" in raw)
    work = raw.get("work")
    if "work" in raw and not _is_rate(work):
        document.add((*place, "work"), f"must be a number of more than 0, not {shown(work)}")
    lacking = [width for width in widths if width not in rates]
    if rates and lacking and document.is_clean((*place, "throughput")):
        text = enumerated([str(width) for width in lacking])
        hint = "add it, or remove the width from 'elastic.gpus'"
        document.add((*place, "throughput"), f"has no rate for {text} GPUs", hint)
    clean = all(document.is_clean((*place, key)) for key in ("work", "throughput", "elastic"))
    if shape is None or not clean or not widths or not _is_rate(work):
        return None
    each = _each(shape)
    tasks = tuple(width // each for width in widths)
    curve = SpeedCurve(tasks, tuple(float(rates[width]) for width in widths))
    training = Training(work=float(work), speeds=curve, restart_s=shape.restart_s)
    return training, shape.unit


def _widths(document: Document, shape: TrainingShape, place: Place) -> list[int]:
    """Return the numbers of GPUs, ascending."""
    if not document.is_clean(place):
        return []
    if not shape.gpus:
        document.add(place, "must not be empty", "such as [1, 2, 4]")
    for number, gpus in enumerate(shape.gpus):
        if gpus % _each(shape):
            problem = f"{gpus} GPUs are not a multiple of those of 'unit', {_each(shape)}"
            document.add((*place, number), problem)
        if gpus in shape.gpus[:number]:
            document.add((*place, number), f"{gpus} is there twice")
    return sorted(set(shape.gpus))


def _each(shape: TrainingShape) -> int:
    """Return how many GPUs each process holds; 1 of those that hold none, or a part of one."""
    gpus = shape.unit.gpus
    return gpus if isinstance(gpus, int) and gpus > 0 else 1


def _rates(document: Document, raw: Any, place: Place, given: bool) -> dict[int, float]:
    """Return the rates by number of GPUs; adds problems of each."""
    if not given:
        return {}
    if not isinstance(raw, dict) or not raw:
        problem = "must not be empty"
        if raw != {}:
            problem = f"must be a mapping of numbers of GPUs to rates, not {shown(raw)}"
        document.add(place, problem, "such as {1: 10.5, 2: 19, 4: 31}")
        return {}
    rates = {}
    for width, rate in raw.items():
        if not str(width).isdecimal() or not int(width):
            document.add((*place, width), "is no number of GPUs")
        elif not _is_rate(rate):
            problem = f"must be a number of more than 0, not {shown(rate)}"
            document.add((*place, width), problem, "units of work per second, as measured")
        else:
            rates[int(width)] = float(rate)
    return rates


def _is_rate(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and value > 0 and math.isfinite(value)
