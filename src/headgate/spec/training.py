"""Training jobs: work, the widths in which it may be done, and the rate of each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Protocol

from pydantic import Field

from headgate.base.text import enumerated
from headgate.model import SpeedCurve, Training
from headgate.spec.document import Document, Place
from headgate.spec.needs import Needs
from headgate.spec.shape import FileShape, Positive, shown


class Widths(Protocol):
    """The numbers of GPUs with which a job may train, and what each of its processes holds."""

    @property
    def gpus(self) -> Sequence[int] | None:
        """Numbers of GPUs."""
        ...

    @property
    def unit(self) -> Needs:
        """What each process holds."""
        ...


class TrainingShape(FileShape):
    """The key `elastic` of a job of a scenario that has `work`."""

    gpus: list[Positive] = Field(default_factory=list)
    unit: Annotated[Needs, Field(description="what each of its processes holds")] = Needs()
    restart_s: Annotated[float, Field(ge=0)] = 0.0
    must: ClassVar = ("gpus",)


def is_training(raw: Any) -> bool:
    """Return whether a job, as written, trains: it has work, or names numbers of GPUs."""
    elastic = raw.get("elastic")
    return "work" in raw or "throughput" in raw or (isinstance(elastic, dict) and "gpus" in elastic)


def check_training(document: Document, raw: Any, widths: Widths | None, place: Place) -> bool:
    """Check how a job trains; return whether nothing is wrong."""
    for key in ("work", "throughput", "elastic"):
        if key not in raw:
            hint = "a job that trains has 'work', 'throughput', and 'elastic' with 'gpus'"
            document.add((*place, key), "is missing", hint)
    if widths is not None:
        widths.unit.check(document, (*place, "elastic", "unit"))
    gpus = [] if widths is None else _gpus(document, widths, (*place, "elastic", "gpus"))
    rates = _rates(document, raw.get("throughput"), (*place, "throughput"), "throughput" in raw)
    if "work" in raw and not _is_rate(raw["work"]):
        problem = f"must be a number of more than 0, not {shown(raw['work'])}"
        document.add((*place, "work"), problem)
    lacking = [width for width in gpus if width not in rates]
    if rates and lacking and document.is_clean((*place, "throughput")):
        text = enumerated([str(width) for width in lacking])
        hint = "add it, or remove the width from 'elastic.gpus'"
        document.add((*place, "throughput"), f"has no rate for {text} GPUs", hint)
    return all(document.is_clean((*place, key)) for key in ("work", "throughput", "elastic"))


def training_of(
    work: float, throughput: Mapping[Any, float], widths: Widths, restart_s: float
) -> Training:
    """Return how a job trains whose keys are checked."""
    rates = {int(gpus): float(rate) for gpus, rate in throughput.items()}
    gpus = sorted(widths.gpus or ())
    tasks = tuple(width // _each(widths) for width in gpus)
    curve = SpeedCurve(tasks, tuple(rates[width] for width in gpus))
    return Training(work=float(work), speeds=curve, restart_s=restart_s)


def _gpus(document: Document, widths: Widths, place: Place) -> list[int]:
    """Return the numbers of GPUs, ascending."""
    if not document.is_clean(place):
        return []
    gpus, each = widths.gpus or (), _each(widths)
    if not gpus:
        document.add(place, "must not be empty", "such as [1, 2, 4]")
    for number, width in enumerate(gpus):
        if width % each:
            problem = f"{width} GPUs are not a multiple of those of 'unit', {each}"
            document.add((*place, number), problem)
        if width in gpus[:number]:
            document.add((*place, number), f"{width} is there twice")
    return sorted(set(gpus))


def _each(widths: Widths) -> int:
    """Return how many GPUs each process holds; 1 of those that hold none, or a part of one."""
    gpus = widths.unit.gpus
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
