"""Scaling as files write it: the shapes of nodes that can be ordered, and the limits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from headgate.base.units import MOST_SECONDS, BadQuantity, parse_duration
from headgate.model.scaling import Scaling, Shape
from headgate.spec.cluster import build_template
from headgate.spec.document import Document, Place, read_document
from headgate.spec.shape import Count, FileShape, Name, Positive, parse, shown


def _delay(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return parse_duration(value)
    except BadQuantity:
        words = {"value": shown(value), "hint": "write seconds, or one such as 40s or 10min"}
        raise PydanticCustomError("delay", "{value} is not a duration", words) from None


Delay = Annotated[float, Field(ge=0, le=MOST_SECONDS), BeforeValidator(_delay)]
Cost = Annotated[float, Field(ge=0, le=1e12)]


class ShapeEntry(FileShape):
    name: Name = "?"
    resources: Any = None
    cost_per_h: Cost = 0.0
    ready_after: Delay = 0.0
    max: Positive | None = None
    must: ClassVar = ("name", "resources")


class ScalingShape(FileShape):
    shapes: list[Any] = Field(default_factory=list)
    floor: Count = 0
    max_nodes: Positive | None = None
    max_cost_per_h: Cost | None = None
    idle_after: Delay = 300.0
    utilisation: Annotated[float, Field(gt=0, le=1)] = 0.8
    must: ClassVar = ("shapes",)


def load_scaling(source: Path | str) -> Scaling:
    """Return the scaling of a file or of text; raise SpecError with every problem of it."""
    document = read_document(source, name="scaling")
    scaling = build_scaling(document, document.data, ())
    document.raise_problems()
    if scaling is None:
        raise AssertionError("unreachable: without scaling there is a problem")
    return scaling


def build_scaling(document: Document, raw: Any, place: Place) -> Scaling | None:
    """Return the valid parts of a scaling, adding problems to the document; None without any."""
    given = parse(document, ScalingShape, raw, place)
    if given is None:
        return None
    if not given.shapes and document.is_clean((*place, "shapes")):
        document.add((*place, "shapes"), "must not be empty")
    shapes: list[Shape] = []
    for number, entry in enumerate(given.shapes):
        shape_place = (*place, "shapes", number)
        shape = _shape(document, entry, shape_place)
        if shape is None:
            continue
        if any(shape.name == other.name != "?" for other in shapes):
            document.add((*shape_place, "name"), f"the shape '{shape.name}' exists already")
        ceiling = given.max_cost_per_h
        if ceiling is not None and shape.cost_per_h > ceiling:
            problem = f"must be at most max_cost_per_h, {ceiling:g}, not {shape.cost_per_h:g}"
            document.add((*shape_place, "cost_per_h"), problem, "no node of it could be ordered")
        shapes.append(shape)
    if given.max_nodes is not None and given.floor > given.max_nodes:
        problem = f"must be at most max_nodes, {given.max_nodes}, not {given.floor}"
        document.add((*place, "floor"), problem)
    return Scaling(
        shapes=tuple(shapes),
        floor=given.floor,
        max_nodes=given.max_nodes,
        max_cost_per_h=given.max_cost_per_h,
        idle_after_s=given.idle_after,
        utilisation=given.utilisation,
    )


def _shape(document: Document, raw: Any, place: Place) -> Shape | None:
    given = parse(document, ShapeEntry, raw, place)
    if given is None or "resources" not in raw:
        return None
    node = build_template(document, given.resources, (*place, "resources"))
    if node is None:
        return None
    if not node.gpus and not node.cpus and document.is_clean((*place, "resources")):
        document.add((*place, "resources"), "has no CPU and no GPU: no task could run on it")
    return Shape(
        name=given.name,
        gpus=node.gpus,
        cpus=node.cpus,
        memory_bytes=node.memory_bytes,
        custom=node.custom,
        speed=node.speed,
        labels=node.labels,
        cost_per_h=given.cost_per_h,
        ready_after_s=given.ready_after,
        most=given.max,
    )
