"""Labels of nodes, and selectors, which say what labels a node must have or must not have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}(=[A-Za-z0-9._/-]{0,63})?")

LABELS_FORM = "name or name=value, of letters, digits and . _ / -"

MOST_LABEL_SETS = 64
"""Most different sets of labels that the nodes which are up may have."""


def is_label(text: str) -> bool:
    """Return whether a text is a label: `name` or `name=value`."""
    return _LABEL.fullmatch(text) is not None


def is_term(text: str) -> bool:
    """Return whether a text is a term of a selector: a label, or `!` and a label."""
    return is_label(text.removeprefix("!"))


def label_name(label: str) -> str:
    """Return the name of a label, without its value."""
    return label.partition("=")[0]


def as_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Return labels in their order; of several with one name the last."""
    return tuple(sorted({label_name(label): label for label in labels}.values()))


def selects(selector: Sequence[str], labels: Sequence[str]) -> bool:
    """Return whether a node with these labels has all that a selector asks of it.

    A term `name` asks for a label of this name, with any value or none, `name=value` for exactly
    this one; `!` before it, for none such.
    """
    held = {*labels, *map(label_name, labels)}
    return all((term.removeprefix("!") in held) is not term.startswith("!") for term in selector)
