"""Asking whether all nodes share a directory of the client's machine.

A file with a random name and content, the marker, is in the directory while the nodes look for it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from headgate.base.errors import Problem, SpecError
from headgate.base.text import visible
from headgate.live.node.marker import MARKER_PREFIX

COPY_HINT = "'working_dir: .' sends a copy of it"
_MOST_NAMED = 8  # nodes, with one problem
_LONGEST = 1000  # characters of a path that is asked for


class NodesClient(Protocol):
    """The part of `headgate.Client` that is used here."""

    def shared_directory(self, path: str, name: str, content: str) -> Mapping[str, Any]:
        """Return whether all nodes have the directory of a marker."""


def shared_by_nodes(nodes: NodesClient, directory: Path) -> dict[str, Any]:
    """Return the value of `working_dir` for a directory that all nodes share.

    SpecError `not_shared` for one that they do not share, or in which no marker can be made.
    """
    path = os.path.realpath(directory)
    if visible(path) != path or len(path) > _LONGEST:
        raise _not_shared(directory, "its path cannot be sent")
    try:
        with _marked(path) as (name, content):
            found = nodes.shared_directory(path, name, content)
    except OSError as error:
        raise _not_shared(directory, f"no file can be made in it: {error.strerror}") from error
    if found["shared"]:
        return {"shared": path, "inode": found["inode"]}
    raise _not_shared(directory, _reasons(found["nodes"]) or "no node is up")


@contextmanager
def _marked(directory: str) -> Iterator[tuple[str, str]]:
    """Make a marker that only its user can read, and yield its name and content."""
    name, content = MARKER_PREFIX + secrets.token_hex(16), secrets.token_hex(32)
    marker = Path(directory, name)
    descriptor = os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:  # other machines see what was closed
            file.write(content)
        yield name, content
    finally:
        with suppress(OSError):
            marker.unlink()


def _reasons(problems: Mapping[str, str]) -> str:
    """Return why nodes do not have a directory: each reason once, with the nodes it is of."""
    nodes: dict[str, list[str]] = {}
    for node in sorted(problems, key=lambda node: (len(node), node)):  # n2 before n10
        nodes.setdefault(problems[node], []).append(node)
    return "; ".join(f"{_named(names)}: {problem}" for problem, names in nodes.items())


def _named(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    shown = ", ".join(names[:_MOST_NAMED])
    return f"{shown} and {more} more" if more > 0 else shown


def _not_shared(directory: Path, why: str) -> SpecError:
    text = f"{directory} is not shared by all nodes: {why}"
    problem = Problem(path="working_dir", problem=visible(text), hint=COPY_HINT)
    return SpecError([problem], code="not_shared")
