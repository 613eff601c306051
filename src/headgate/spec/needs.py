"""What one task needs of its node, as job files and scenarios write it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from headgate.model import BASE_KINDS, WHOLE, Demand
from headgate.spec.document import Document, Place
from headgate.spec.shape import FileShape, Memory, Name, shown
from headgate.spec.where import GpuModels

_MOST = 1_000_000
_SHARED = "shared"
_RESERVED = (*BASE_KINDS, "gpus", "gpu_memory", "gpu_model")


def _gpus(value: Any) -> Any:
    if value == _SHARED:
        return value
    if not _is_number(value) or not 0 <= value <= _MOST or (value > 1 and value != int(value)):
        problem = "must be whole GPUs, a share of one such as 0.25, or 'shared', not {value}"
        raise PydanticCustomError("gpus", problem, {"value": shown(value)})
    if not _in_milli(value):
        problem = "a share of a GPU has at most three digits after the point, not {value}"
        raise PydanticCustomError("gpus", problem, {"value": shown(value)})
    return int(value) if value == int(value) else value


def _amount(value: Any) -> Any:
    if not _is_number(value) or not 0 < value <= _MOST or not _in_milli(value):
        problem = "must be a number above 0, with at most three digits after the point, not {value}"
        raise PydanticCustomError("amount", problem, {"value": shown(value)})
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _in_milli(value: float) -> bool:
    return math.isclose(WHOLE * value, round(WHOLE * value), rel_tol=1e-9)


Gpus = Annotated[
    int | float | str,
    BeforeValidator(_gpus),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": _MOST},
                {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
                {"const": _SHARED},
            ]
        }
    ),
]
Amount = Annotated[
    float,
    BeforeValidator(_amount),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": _MOST}),
]
_GPUS = "whole GPUs of one node, a share of one, or 'shared': memory of one, and no share of it"


class Needs(FileShape):
    """What one task holds while it runs; one without GPUs holds a CPU of its node at least."""

    gpus: Annotated[Gpus, Field(description=_GPUS)] = 1
    gpu_memory: Annotated[
        Memory, Field(description="needed on each whole GPU; allocated on one that is shared")
    ] = 0
    gpu_model: GpuModels = Field(
        default_factory=list, description="models of GPUs, of one of which its GPUs are: H100"
    )
    cpus: Annotated[
        Amount | None,
        Field(description="CPUs; not named: 1 for a task without GPUs, none beside GPUs"),
    ] = None
    memory: Annotated[Memory, Field(description="main memory of the node")] = 0
    custom: dict[Name, Amount] = Field(default_factory=dict, description="other kinds, by name")

    def demand(
        self,
        nodes: Iterable[str] = (),
        exclude: Iterable[str] = (),
        selector: Iterable[str] = (),
    ) -> Demand:
        """Return what a run holds, on one of `nodes` (without any, all) and none of `exclude`.

        And with the labels of `selector`.
        """
        share = 0.0 if self.gpus == _SHARED else float(self.gpus)
        in_part = self.gpus == _SHARED or 0 < share < 1
        return Demand.of(
            gpus=1 if in_part else int(share),
            gpu_milli=round(WHOLE * share) if in_part else WHOLE,
            gpu_memory_bytes=self.gpu_memory,
            gpu_models=tuple(dict.fromkeys(self.gpu_model)),
            cpus=self.cpus,
            memory_bytes=self.memory,
            custom=tuple(sorted((n, round(WHOLE * a)) for n, a in self.custom.items())),
            nodes=tuple(nodes),
            exclude=tuple(exclude),
            selector=tuple(selector),
        )

    def check(self, document: Document, place: Place) -> None:
        """Add a problem for each inconsistent pair of keys."""
        if not self.gpus and document.is_clean((*place, "gpus")):
            if self.gpu_memory:
                document.add((*place, "gpu_memory"), "a task without a GPU needs no GPU memory")
            if self.gpu_model:
                document.add((*place, "gpu_model"), "a task without a GPU has none of a model")
        if (
            self.gpus == _SHARED
            and not self.gpu_memory
            and document.is_clean((*place, "gpu_memory"))
        ):
            hint = "such as gpu_memory: 4GiB, the memory of the GPU that the task gets"
            document.add((*place, "gpu_memory"), "is missing beside 'gpus: shared'", hint)
        check_custom(document, self.custom, place)


def check_custom(document: Document, custom: Iterable[str], place: Place) -> None:
    """Add a problem for each custom resource with a reserved name."""
    for name in custom:
        if name in _RESERVED:
            hint = f"write {name} beside custom, not in it"
            document.add((*place, "custom", name), f"'{name}' is no custom resource", hint)
