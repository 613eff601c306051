"""The verb label."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from headgate.base.errors import Problem, SpecError
from headgate.cli.common import output
from headgate.cli.common.settings import DryRunOption, FormatOption, StateOption, settle


def label(
    node: Annotated[
        str | None, typer.Argument(metavar="NODE", help="The name of a node.", show_default=False)
    ] = None,
    labels: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="LABEL...",
            help="name or name=value sets a label, name- removes one; without: show them.",
            show_default=False,
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Instead: the labels of nodes (YAML)."),
    ] = None,
    dry_run: DryRunOption = False,
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """Set and remove labels of a node; for administrators.

    Jobs name the labels that their nodes must have (node_selector). Running work stays where it
    is. With --file, each node of the file has the labels of the file, and no others.
    """
    settings = settle(state, fmt)
    if (node is None) == (file is None):
        problem = Problem(path="label", problem="requires either a NODE or --file, not both")
        raise SpecError([problem], code="usage")
    with settings.client() as client:
        if file is not None:
            answer = client.set_labels(labels_text(file), dry_run=dry_run)
            joined = {each["id"] for each in client.nodes(all=True)}
            lines = [_line(each, dry_run, each["id"] in joined) for each in answer["nodes"]]
        else:
            assert node is not None
            each = client.label(node, *_changes(labels or []), dry_run=dry_run)
            answer, lines = each, [_line(each, dry_run and bool(labels), joined=True)]
    output.print_result(answer, *lines, as_json=settings.as_json)


def labels_text(file: Path) -> str:
    """Return the text of a labels file; raise SpecError with all its problems."""
    from headgate.spec.document import read_text
    from headgate.spec.labels_file import load_labels

    load_labels(file)
    return read_text(file)


def _changes(labels: list[str]) -> tuple[list[str], list[str]]:
    """Return the labels to set and the names of those to remove."""
    removed = [each for each in labels if each.endswith("-") and "=" not in each]
    return [each for each in labels if each not in removed], [each[:-1] for each in removed]


def _line(each: dict[str, Any], dry_run: bool, joined: bool) -> str:
    has = "would have" if dry_run else "has" if joined else "has, once it joins,"
    return f"{each['id']} {has} {', '.join(each['labels']) or 'no label'}"
