"""YAML files as plain data that knows the line of every value in it.

The schema is YAML 1.2's core (`no` is text and `1e9` a number), without tags of one's own. A key
given twice is a problem; what the file holds is returned all the same, so that whoever checks it
further can report everything at once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from headgate.base.errors import Problem, SpecError

Place = tuple[str | int, ...]  # ("jobs", 0, "tasks", 2) is jobs[0].tasks[2]

_MOST_VALUES = 2_000_000  # aliases may unfold to more than anybody wrote
_TAG = "tag:yaml.org,2002:"
_PLAIN = {
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "int": (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    "float": (
        r"[-+]?((\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|\.(inf|Inf|INF))|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
}


class _Loader(yaml.SafeLoader):
    """Reads text into nodes; the values are made here, not by PyYAML."""


_Loader.yaml_implicit_resolvers = {}
for _name, (_pattern, _first) in _PLAIN.items():
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(rf"({_pattern})\Z"), list(_first))


def dotted(place: Place) -> str:
    """Return a place as people write it: `jobs[0].tasks[2]`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".")


@dataclass(slots=True, kw_only=True)
class Document:
    """What a file holds, and what is wrong with it as YAML; `name` is for messages."""

    name: str
    root: yaml.Node
    data: dict[str, Any] = field(default_factory=dict)
    _problems: list[Problem] = field(default_factory=list)
    _unclean: set[Place] = field(default_factory=set)  # places with a problem in them

    def line(self, place: Place) -> int:
        """Return the line of a place, or of the innermost thing around it that is there."""
        node, line = self.root, self.root.start_mark.line
        for part in place:
            if isinstance(node, yaml.MappingNode):
                found = [(k, v) for k, v in node.value if k.value == part]
                if not found:
                    break
                key, node = found[-1]
                line = key.start_mark.line
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
                if part >= len(node.value):
                    break
                node = node.value[part]
                line = node.start_mark.line
            else:
                break
        return int(line) + 1

    def add(self, place: Place, problem: str, hint: str = "") -> None:
        """Note one thing that is wrong at a place."""
        found = Problem(path=dotted(place), problem=problem, hint=hint, line=self.line(place))
        self._problems.append(found)
        self._unclean.update(place[:length] for length in range(len(place) + 1))

    def is_clean(self, place: Place) -> bool:
        """Return whether nothing is wrong at a place or inside it, as far as noted."""
        return place not in self._unclean

    def raise_problems(self) -> None:
        """Raise every problem noted, in the order of the file, if there is any."""
        if self._problems:
            raise SpecError(sorted(self._problems, key=lambda p: (p.line or 0, p.path)))


def read_document(source: Path | str, *, name: str = "text") -> Document:
    """Read a file, or text, that holds keys and values; raise SpecError when it is not YAML.

    Messages about text as a whole call it `name`.
    """
    if isinstance(source, Path):
        name, source = str(source), read_text(source)

    def refuse(problem: str, hint: str = "", line: int | None = None) -> SpecError:
        return SpecError([Problem(path=name, problem=problem, hint=hint, line=line)])

    try:
        root = yaml.compose(source, _Loader)
        if root is None:
            raise refuse("is empty")
        if not isinstance(root, yaml.MappingNode):
            raise refuse("must hold keys and values", "begin with a line such as 'name: ...'", 1)
        document = Document(name=name, root=root)
        document.data = _Builder(document).value(root, ())
    except yaml.reader.ReaderError as error:
        raise refuse(f"holds a character that text does not: {error.character!r}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = error.problem or error.context or "cannot be read"
        place = (f"column {mark.column + 1}", mark.line + 1) if mark else ("", None)
        raise refuse(f"is not YAML: {what}", *place) from None
    except RecursionError:
        raise refuse("is nested too deeply") from None
    except _Unfolds:
        raise refuse(f"unfolds to more than {_MOST_VALUES} values", "use fewer aliases") from None
    return document


def read_text(path: Path) -> str:
    """Return the text of a file; raise SpecError when there is none to be read."""

    def refuse(problem: str, hint: str = "", code: str | None = None) -> SpecError:
        return SpecError([Problem(path=str(path), problem=problem, hint=hint)], code=code)

    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise refuse("there is no such file", code="missing_file") from None
    except IsADirectoryError:
        raise refuse("is a directory, not a file") from None
    except UnicodeDecodeError:
        raise refuse("is not text", "a YAML file in UTF-8 is needed") from None
    except OSError as error:
        raise refuse(f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise refuse(f"cannot be read: {error}") from None


class _Unfolds(Exception):
    """The file holds more values than anyone can mean."""


class _Builder:
    """Makes values of nodes, and notes what is wrong with them."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._values = 0

    def value(self, node: yaml.Node, place: Place) -> Any:
        self._values += 1
        if self._values > _MOST_VALUES:
            raise _Unfolds
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, place)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self.value(item, (*place, i)) for i, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            try:
                return _scalar(node.tag.removeprefix(_TAG), node.value)
            except ValueError:
                pass
        kind = node.tag.removeprefix(_TAG)
        self._document.add(place, f"is not a value that can be used (tag {kind})")
        return None

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key, item in node.value:
            if not isinstance(key, yaml.ScalarNode) or not key.value.isprintable():
                self._document.add(place, "a key must be text", "put text with { in quotes")
                continue
            if key.value in data:
                problem = f"the key '{key.value}' is given twice"
                self._document.add((*place, key.value), problem, "keep one of them")
            data[key.value] = self.value(item, (*place, key.value))
        return data


def _scalar(kind: str, text: str) -> Any:
    """Return the value of a scalar; raise ValueError for what is none of its kind."""
    match kind:
        case "str":
            text.encode()  # half of a surrogate pair is no text
            return text
        case "null" if text in ("", "~") or text.lower() == "null":
            return None
        case "bool" if text.lower() in ("true", "false"):
            return text.lower() == "true"
        case "int":
            return int(text, 0 if text[:2] in ("0x", "0o") else 10)
        case "float":
            return float(re.sub(r"\.(?=inf|nan)", "", text.lower()))
        case _:
            raise ValueError(text)
