"""Requests of administrators to label nodes, checked on a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headgate.base.errors import Problem, SpecError, nearest
from headgate.model.labels import (
    LABELS_FORM,
    MOST_LABEL_SETS,
    as_labels,
    is_label,
    label_name,
)
from headgate.protocol import LabelsChanged
from headgate.state import Snapshot


class LabelChange(NamedTuple):
    """Labels that a node gets and names of labels that it loses; `only`: it keeps no other."""

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    only: bool = False


def label_requests(
    view: Snapshot, changes: Mapping[str, LabelChange], *, user: str, at: float
) -> tuple[LabelsChanged, ...]:
    """Return the events of changes by node, without those of nodes whose labels stay.

    Nodes that have not joined may get labels by `only` alone. SpecError with all problems:
    `not_found` for an unknown node, else `bad_spec`.
    """
    known = {view.node(row).id: view.node(row).labels for row in range(len(view.nodes.spec))}
    unknown = [node for node, change in changes.items() if node not in known and not change.only]
    if unknown:
        raise SpecError(
            (
                Problem(path=n, problem=f"there is no node {n}", hint=nearest(n, known))
                for n in unknown
            ),
            code="not_found",
        )
    problems, wanted = [], dict[str, tuple[str, ...]]()
    for node, change in changes.items():
        held = () if change.only else known[node]
        problems += _problems(node, change, held)
        kept = [label for label in held if label_name(label) not in change.remove]
        wanted[node] = as_labels([*kept, *change.add])
    if problems:
        raise SpecError(problems)
    later = known | wanted
    sets = {later[view.node(row).id] for row in view.live_nodes()} | {*wanted.values()}
    if len(sets) > MOST_LABEL_SETS:
        text = f"the nodes would have {len(sets)} different sets of labels, of which at most"
        text += f" {MOST_LABEL_SETS} are kept apart"
        raise SpecError([Problem(path="labels", problem=text, hint=_SHARE)])
    set_before = {**known, **view.fleet.labels}
    return tuple(
        LabelsChanged(at=at, node=node, labels=labels, by=user)
        for node, labels in wanted.items()
        if set_before.get(node) != labels
    )


def labels_then(
    view: Snapshot, nodes: Iterable[str], events: Iterable[LabelsChanged]
) -> dict[str, tuple[str, ...]]:
    """Return the labels of nodes after some events."""
    held = {view.node(row).id: view.node(row).labels for row in range(len(view.nodes.spec))}
    held |= {**view.fleet.labels, **{event.node: event.labels for event in events}}
    return {node: held[node] for node in nodes}


_SHARE = "use labels that several nodes share; nodes are named by 'nodes' in a job file"


def _problems(node: str, change: LabelChange, held: tuple[str, ...]) -> list[Problem]:
    """Return what is wrong with a change of the labels that a node has."""
    names = [label_name(label) for label in held]
    problems = [
        Problem(path=node, problem=f"{label!r} is no label", hint=f"a label is {LABELS_FORM}")
        for label in change.add
        if not is_label(label)
    ]
    problems += [
        Problem(path=node, problem=f"has no label {name!r}", hint=nearest(name, names))
        for name in change.remove
        if name not in names
    ]
    both = sorted({*map(label_name, change.add)} & {*change.remove})
    text = "label {!r} is both set and removed"
    return problems + [Problem(path=node, problem=text.format(name)) for name in both]
