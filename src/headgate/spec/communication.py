"""The key `communication` of jobs: how their processes communicate, or which program they run."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from headgate.base.errors import nearest
from headgate.base.units import MOST_SECONDS
from headgate.model import Communication, Pattern
from headgate.model.kernels import (
    CLASSES,
    KERNELS,
    MODELS,
    Volume,
    npb_volume,
    training_volume,
    wrong_processes,
)
from headgate.spec.document import Document, Place
from headgate.spec.shape import FileShape, Positive, Size, shown

_FORMS = ("pattern", "kernel", "model")


def _known(names: tuple[str, ...], what: str, value: Any) -> Any:
    if value not in names:
        hint = nearest(value, names) if isinstance(value, str) else f"one of {', '.join(names)}"
        words = {"value": shown(value), "what": what, "hint": hint}
        raise PydanticCustomError("known", "{value} is no {what}", words)
    return value


_PATTERNS, _CLASSES, _MODELS = tuple(Pattern), tuple(CLASSES), tuple(MODELS)
PatternName = Annotated[
    str | None,
    BeforeValidator(partial(_known, _PATTERNS, "pattern")),
    WithJsonSchema({"enum": list(_PATTERNS)}),
]
KernelName = Annotated[
    str | None,
    BeforeValidator(partial(_known, KERNELS, "kernel of NPB")),
    WithJsonSchema({"enum": list(KERNELS)}),
]
ClassName = Annotated[
    str | None,
    BeforeValidator(partial(_known, _CLASSES, "class of NPB")),
    WithJsonSchema({"enum": list(_CLASSES)}),
]
ModelName = Annotated[
    str | None,
    BeforeValidator(partial(_known, _MODELS, "known model")),
    WithJsonSchema({"enum": list(_MODELS)}),
]


class CommunicationShape(FileShape):
    """How the processes of a job communicate: a pattern, or the name of a known program."""

    pattern: Annotated[PatternName, Field(description="which processes send to which")] = None
    bytes_per_step: Annotated[Size, Field(description="with `pattern`: volume of one step")] = 0
    step_s: Annotated[
        Annotated[float, Field(gt=0, le=MOST_SECONDS)] | None,
        Field(description="seconds of computing between two communications"),
    ] = None
    processes: Annotated[
        Positive | None,
        Field(description="processes of the whole job; default: one per GPU, or per task"),
    ] = None
    kernel: Annotated[KernelName, Field(description="instead: a kernel of NPB")] = None
    class_: Annotated[
        ClassName, Field(alias="class", description="with `kernel`: its problem size")
    ] = None
    model: Annotated[
        ModelName, Field(description="instead: a model that is trained data-parallel")
    ] = None


def communication_of(
    shape: CommunicationShape | None, *, compute_s: float | None
) -> Communication | None:
    """Return what a checked shape describes; `compute_s` is the computing time of its tasks."""
    if shape is None:
        return None
    processes = shape.processes or 0
    if shape.kernel is not None and shape.class_ is not None:
        volume = npb_volume(shape.kernel, shape.class_, processes or 1)
    elif shape.model is not None:
        volume = training_volume(shape.model)
    else:
        pattern = Pattern(shape.pattern or Pattern.NONE)
        volume = Volume(pattern=pattern, bytes_per_step=shape.bytes_per_step, steps=1)
    step_s = shape.step_s or 0.0
    if shape.kernel is not None and shape.step_s is None:
        step_s = (compute_s or 0.0) / volume.steps
    return Communication(
        pattern=volume.pattern,
        bytes_per_step=volume.bytes_per_step,
        step_s=step_s,
        processes=processes,
    )


def check_communication(
    document: Document,
    raw: Any,
    place: Place,
    *,
    communicates: bool,
    compute_s: float | None,
) -> None:
    """Check the keys of a communication, given as `raw`, against each other and its job.

    `communicates` says whether there is more than one GPU or task to send to; `compute_s` is the
    computing time of its tasks, if known.
    """
    if raw is None:
        if document.is_clean(place):
            document.add(place, "must not be empty")
        return
    if not isinstance(raw, dict):
        return
    given = [key for key in _FORMS if key in raw]
    if not given:
        hint = "such as pattern: all-reduce-ring, kernel: CG or model: resnet50"
        document.add(place, "must say 'pattern', 'kernel' or 'model'", hint)
    for key in given[1:]:
        document.add((*place, key), f"a communication has '{given[0]}' or '{key}', not both")
    for key in given[:1]:
        _check_form(document, raw, key, place)
        _check_step(document, raw, key, place, compute_s)
    for key in raw:
        if raw[key] is None and document.is_clean((*place, key)):
            document.add((*place, key), "must not be empty")
    if not communicates and given and raw[given[0]] != Pattern.NONE:
        problem = "nothing communicates: the job is no gang, and its tasks have one GPU at most"
        document.add(place, problem, "write 'gang: true', or give 'num_nodes'")


def _check_form(document: Document, raw: dict[str, Any], form: str, place: Place) -> None:
    """Check which keys go with a pattern, a kernel or a model."""
    volume_place = (*place, "bytes_per_step")
    if form != "pattern" and "bytes_per_step" in raw:
        hint = "remove it, or give a pattern instead"
        document.add(volume_place, f"the volume of a {form} is known", hint)
    elif raw[form] in _PATTERNS[1:] and not raw.get("bytes_per_step"):
        document.add(volume_place, "is missing, or 0", "the volume of one step, such as 100MB")
    if form == "kernel":
        _check_kernel(document, raw, place)
    elif "class" in raw and "kernel" not in raw:
        document.add((*place, "class"), "needs 'kernel', a kernel of NPB")


def _check_kernel(document: Document, raw: dict[str, Any], place: Place) -> None:
    if "class" not in raw:
        document.add((*place, "class"), "is missing", f"one of {', '.join(CLASSES)}")
    if "processes" not in raw:
        document.add((*place, "processes"), "is missing", "the processes of the whole job")
    elif document.is_clean((*place, "kernel")) and document.is_clean((*place, "processes")):
        kernel, processes = raw["kernel"], raw["processes"] or 1
        if allowed := wrong_processes(kernel, processes):
            problem = f"{kernel} does not run on {processes} processes"
            document.add((*place, "processes"), problem, f"it runs on {allowed}")


def _check_step(
    document: Document, raw: dict[str, Any], form: str, place: Place, compute_s: float | None
) -> None:
    """Check that the computing time of a step is given, or follows from that of the tasks."""
    if "step_s" in raw or raw[form] == Pattern.NONE:
        return
    if form == "kernel" and compute_s:
        return
    hint = "seconds of computing between two communications"
    document.add((*place, "step_s"), "is missing", hint)
