"""Which GPUs and nodes a job accepts: `gpu_model`, `nodes`, `exclude`, `node_selector`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from headgate.base.errors import nearest
from headgate.model.gpu_models import words_of
from headgate.model.labels import LABELS_FORM, is_label, is_term
from headgate.spec.document import Document, Place, clipped
from headgate.spec.shape import shown

_MOST_MODELS, _LONGEST_MODEL = 20, 100
_MOST_NODES = 10_000
_MOST_LABELS = 64


def _models(value: Any) -> Any:
    models = [value] if isinstance(value, str) else value
    if models == []:
        raise PydanticCustomError("models", "must not be empty")
    if not isinstance(models, list) or len(models) > _MOST_MODELS:
        problem = "must be a model of GPUs or a list of up to {most}, not {value}"
        raise PydanticCustomError("models", problem, {"value": shown(value), "most": _MOST_MODELS})
    for model in models:
        if not isinstance(model, str) or len(model) > _LONGEST_MODEL or not words_of(model):
            words = {"value": shown(model), "hint": "write one such as H100 or RTX 4090"}
            raise PydanticCustomError("models", "{value} is no model of GPUs", words)
    return models


def _nodes(value: Any) -> Any:
    nodes = [value] if isinstance(value, str) else value
    if nodes == []:
        raise PydanticCustomError("node_names", "must not be empty")
    is_list = isinstance(nodes, list) and all(isinstance(each, str) and each for each in nodes)
    if not is_list or len(nodes) > _MOST_NODES:
        words = {"value": shown(value), "hint": "how many nodes it runs on is 'num_nodes'"}
        problem = "must be the name of a node or a list of names, not {value}"
        raise PydanticCustomError("node_names", problem, words)
    return nodes


def _labels(value: Any) -> Any:
    return _label_list(value, is_label, "must be labels")


def _selector(value: Any) -> Any:
    terms = _label_list(value, is_term, "must be labels, each with or without ! before it")
    for term in terms:
        if f"!{term}" in terms:
            words = {"value": shown(term)}
            raise PydanticCustomError("labels", "both asks for {value} and excludes it", words)
    return list(dict.fromkeys(terms))


def _label_list(value: Any, is_one: Callable[[str], bool], problem: str) -> list[str]:
    labels = [value] if isinstance(value, str) else value
    is_list = isinstance(labels, list) and len(labels) <= _MOST_LABELS
    wrong = [] if is_list else [value]
    if is_list:
        wrong = [each for each in labels if not isinstance(each, str) or not is_one(each)]
    if wrong:
        words = {"value": shown(wrong[0]), "hint": f"a label is {LABELS_FORM}"}
        raise PydanticCustomError("labels", problem + ", not {value}", words)
    return labels


def _schema(most: int) -> WithJsonSchema:
    name = {"type": "string", "minLength": 1}
    several = {"type": "array", "items": name, "minItems": 1, "maxItems": most}
    return WithJsonSchema({"anyOf": [name, several]})


GpuModels = Annotated[list[str], BeforeValidator(_models), _schema(_MOST_MODELS)]
"""Models of GPUs, one or a list."""

_Names = Annotated[list[str], BeforeValidator(_nodes), _schema(_MOST_NODES)]
Nodes = Annotated[_Names, Field(default_factory=list, description="the only nodes for it")]
_Labels = WithJsonSchema({"type": "array", "items": {"type": "string"}, "maxItems": _MOST_LABELS})
Labels = Annotated[list[str], BeforeValidator(_labels), _Labels]
"""Labels of a node, one or a list."""

Selector = Annotated[
    list[str],
    BeforeValidator(_selector),
    _Labels,
    Field(
        default_factory=list,
        description="labels that its nodes have: name, name=value; with ! before it: have not",
    ),
]
Exclude = Annotated[_Names, Field(default_factory=list, description="nodes that are not for it")]


def check_where(
    document: Document, nodes: Sequence[str], exclude: Sequence[str], place: Place
) -> None:
    """Add a problem if a job accepts no node, whatever nodes there are."""
    if nodes and not set(nodes) - set(exclude) and document.is_clean((*place, "nodes")):
        problem = "excludes all nodes that 'nodes' names"
        document.add((*place, "exclude"), problem, "leave one of them for the job")


def unknown_nodes(
    nodes: Sequence[str], exclude: Sequence[str], known: Mapping[str, Any]
) -> list[tuple[str, int, str, Callable[[], str]]]:
    """Return the key, the index, the problem and the hint of each node that is not known."""
    return [
        (key, number, f"there is no node '{clipped(name)}'", partial(nearest, name, known))
        for key, names in (("nodes", nodes), ("exclude", exclude))
        for number, name in enumerate(names)
        if name not in known
    ]
