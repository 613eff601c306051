"""Requests to label nodes: what they change, and every problem of those that are refused."""

from __future__ import annotations

import pytest

from headgate.base.errors import SpecError
from headgate.model import Node
from headgate.planning.scaling.labelling import LabelChange, label_requests
from headgate.protocol import LabelsChanged
from headgate.state import Snapshot, State


def view(*labels: tuple[str, ...]) -> Snapshot:
    state = State()
    for number, each in enumerate(labels):
        state.add_node(Node(id=f"n{number}", rack="r", gpus=(), labels=each))
    return state.freeze()


def requested(view: Snapshot, changes: dict[str, LabelChange]) -> list[LabelsChanged]:
    return list(label_requests(view, changes, user="root", at=1.0))


def problems(view: Snapshot, changes: dict[str, LabelChange]) -> list[str]:
    with pytest.raises(SpecError) as refused:
        requested(view, changes)
    return [str(problem) for problem in refused.value.problems]


def test_labels_are_added_removed_and_replaced() -> None:
    before = view(("ml", "zone=a"), ("ml",))
    added = LabelChange(add=("zone=b", "spot"), remove=("ml",))
    (event,) = requested(before, {"n0": added})
    assert event == LabelsChanged(at=1.0, node="n0", labels=("spot", "zone=b"), by="root")
    (event,) = requested(before, {"n0": LabelChange(add=("x",), only=True)})
    assert event.labels == ("x",)


def test_a_change_that_leaves_all_labels_is_no_event() -> None:
    assert requested(view(("ml",)), {"n0": LabelChange(add=("ml",))}) == []
    assert requested(view(("ml",)), {"n0": LabelChange()}) == []


def test_a_file_may_label_nodes_that_have_not_joined() -> None:
    (event,) = requested(view(()), {"later": LabelChange(add=("ml",), only=True)})
    assert event.node == "later"


def test_all_unknown_nodes_are_named_with_the_nearest_one() -> None:
    changes = {"n9": LabelChange(add=("a",)), "m0": LabelChange(add=("a",))}
    assert problems(view((), ()), changes) == [
        "n9: there is no node n9; known: n0, n1",
        "m0: there is no node m0; known: n0, n1",
    ]


def test_all_wrong_labels_are_named() -> None:
    changes = {
        "n0": LabelChange(add=("a b", "ml"), remove=("zoned", "ml")),
        "n1": LabelChange(remove=("a",)),
    }
    form = "a label is name or name=value, of letters, digits and . _ / -"
    assert problems(view(("zone=a", "ml"), ("x",)), changes) == [
        f"n0: 'a b' is no label; {form}",
        "n0: has no label 'zoned'; did you mean 'zone'?",
        "n0: label 'ml' is both set and removed",
        "n1: has no label 'a'; known: x",
    ]


def test_more_than_64_different_sets_of_labels_are_refused() -> None:
    before = view(*((f"a={n}",) for n in range(64)), ("a=0",))
    assert requested(before, {"n64": LabelChange(add=("a=1",))})
    (text,) = problems(before, {"n64": LabelChange(add=("b",))})
    assert "65 different sets of labels" in text
    assert "share" in text
