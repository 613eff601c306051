"""Jobs of a scenario that are given by their form, not task by task: `for_each` and `wavefront`.

The patterns themselves are in `headgate.spec.forms`; this is their syntax in a file.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BeforeValidator, Field

from headgate.model import Shard, Task
from headgate.spec.document import Document, Place
from headgate.spec.forms import excess, iterated, mapped, merged, wavefront
from headgate.spec.needs import Gpus, Needs
from headgate.spec.shape import Count, Pairs, Positive, Seconds, Size, parse


def _one_or_more(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


Sizes = Annotated[list[Size], Field(min_length=1), BeforeValidator(_one_or_more)]


class NeedShape(Needs):
    compute_s: Seconds = 0.0
    checkpoint_s: Seconds = 0.0
    output_bytes: Size = 0


class UpdateShape(NeedShape):
    gpus: Gpus = 0
    must: ClassVar = ("compute_s",)


class ReduceShape(UpdateShape):
    tasks: Positive = 1
    partitioned: bool = False


class ForEachShape(NeedShape):
    count: Positive = 1
    size_bytes: Sizes = Field(default_factory=lambda: [0])
    pairs: Pairs = "index"
    replicas: Count = 1
    iterations: Positive | None = None
    update: Any = None
    reduce: Any = None
    must: ClassVar = ("count", "compute_s", "size_bytes")


class WavefrontShape(NeedShape):
    rows: Positive = 1
    columns: Positive = 1
    size_bytes: Sizes | None = None
    replicas: Count = 1
    reduce: Any = None
    must: ClassVar = ("rows", "columns", "compute_s")


FORMS = ("for_each", "wavefront")
S = TypeVar("S", UpdateShape, ReduceShape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The form of a job, at `place`; valid where the document has no problem."""

    place: Place
    shape: ForEachShape | WavefrontShape
    update: UpdateShape | None
    reduce: ReduceShape | None


def parse_form(document: Document, key: str, raw: Any, place: Place) -> Form | None:
    """Return the value of one of FORMS, adding its problems to the document; None if unusable."""
    shape: ForEachShape | WavefrontShape | None
    if key == "for_each":
        shape = parse(document, ForEachShape, raw, place)
    else:
        shape = parse(document, WavefrontShape, raw, place)
    if shape is None:
        return None
    update = None
    if isinstance(shape, ForEachShape):
        update = _step(document, UpdateShape, raw, (*place, "update"))
        _check_each(document, shape, raw, place)
    reduce = _step(document, ReduceShape, raw, (*place, "reduce"))
    if reduce is not None and reduce.partitioned:
        _check_parts(document, shape, reduce, place)
    form = Form(place=place, shape=shape, update=update, reduce=reduce)
    if problem := _too_much(form):
        document.add(place, problem)
        return None
    return form


def shards_of(form: Form, job: str) -> list[tuple[Shard, ...]]:
    """Return the shards that the tasks of a form read: for each index, one of each size."""
    sizes = form.shape.size_bytes or []
    count = form.shape.count if isinstance(form.shape, ForEachShape) else _groups(form.shape)
    return [
        tuple(Shard(id=f"{job}/{i}/{c}", size_bytes=size) for c, size in enumerate(sizes))
        for i in range(count)
    ]


def tasks_of(
    form: Form,
    job: str,
    shards: Sequence[tuple[Shard, ...]],
    task_of: Callable[[NeedShape, Place], Task],
) -> tuple[Task, ...]:
    """Return the tasks of a form; `task_of` returns one with the needs that stand at a place."""
    shape, task = form.shape, task_of(form.shape, form.place)
    reads = [tuple(shard.id for shard in row) for row in shards]
    iterations = None
    if isinstance(shape, ForEachShape):
        iterations = shape.iterations
        if shape.pairs == "all":
            reads = list(itertools.product(*zip(*reads, strict=True)))
    if isinstance(shape, WavefrontShape):
        tasks = wavefront(job, shape.rows, shape.columns, task=task, reads=reads)
    elif iterations is not None and form.update is not None:
        update = task_of(form.update, (*form.place, "update"))
        tasks = iterated(job, reads, iterations, task=task, update=update)
    else:
        tasks = mapped(reads, task=task)
    if form.reduce is None:
        return tasks
    return merged(
        job,
        tasks,
        count=form.reduce.tasks,
        task=task_of(form.reduce, (*form.place, "reduce")),
        partitioned=form.reduce.partitioned,
        of=None if iterations is None else (len(tasks) - 1,),
    )


def _step(document: Document, shape: type[S], raw: Any, place: Place) -> S | None:
    return parse(document, shape, raw[place[-1]], place) if place[-1] in raw else None


def _groups(shape: ForEachShape | WavefrontShape) -> int:
    if isinstance(shape, WavefrontShape):
        return shape.rows * shape.columns
    return shape.count**2 if shape.pairs == "all" else shape.count


def _too_much(form: Form) -> str:
    iterations = form.shape.iterations if isinstance(form.shape, ForEachShape) else None
    merges = form.reduce.tasks if form.reduce else 0
    width = len(form.shape.size_bytes or ())
    return excess(_groups(form.shape), width=width, iterations=iterations or 0, merges=merges)


def _check_each(document: Document, shape: ForEachShape, raw: Any, place: Place) -> None:
    sizes = len(shape.size_bytes)
    if "pairs" in raw and document.is_clean((*place, "size_bytes")):
        if sizes < 2:
            problem = "there is nothing to pair: 'size_bytes' has one size"
            document.add((*place, "pairs"), problem, "give a list of them")
        elif shape.pairs == "all" and sizes > 2:
            problem = f"all pairs are of two data, and 'size_bytes' has {sizes} sizes"
            document.add((*place, "pairs"), problem)
    if "update" in raw and "iterations" not in raw:
        hint = "give their number in 'iterations'"
        document.add((*place, "update"), "ends an iteration, and there are none", hint)
    elif "iterations" in raw and "update" not in raw:
        hint = "it says what makes one result of those of an iteration"
        document.add((*place, "update"), "is missing", hint)


def _check_parts(
    document: Document, shape: ForEachShape | WavefrontShape, reduce: ReduceShape, place: Place
) -> None:
    partitioned_place = (*place, "reduce", "partitioned")
    form = ""
    if isinstance(shape, WavefrontShape):
        form = "a wavefront"
    elif shape.iterations is not None:
        form = "iterations"
    if form:
        problem = f"results in parts do not go with {form}, whose tasks read whole results"
        document.add(partitioned_place, problem)
    if reduce.tasks == 1 and document.is_clean((*place, "reduce", "tasks")):
        problem = "one reduce task reads whole results"
        document.add(partitioned_place, problem, "give the number of parts as reduce.tasks")
