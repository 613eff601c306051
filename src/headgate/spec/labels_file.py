"""Files of the labels of nodes."""

from __future__ import annotations

from pathlib import Path

from headgate.model.labels import as_labels
from headgate.spec.document import read_document
from headgate.spec.shape import FileShape, Name, parse
from headgate.spec.where import Labels


class LabelsShape(FileShape):
    labels: dict[Name, Labels] | None = None
    must = ("labels",)


def load_labels(source: Path | str) -> dict[str, tuple[str, ...]]:
    """Return the labels by node of a file or of text; raise SpecError with every problem of it."""
    document = read_document(source, name="labels")
    shape = parse(document, LabelsShape, document.data, ())
    document.raise_problems()
    if shape is None or shape.labels is None:
        raise AssertionError("unreachable: without labels there is a problem")
    return {node: as_labels(labels) for node, labels in shape.labels.items()}
