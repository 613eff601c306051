"""YAML files as plain data, with the line of every value.

The schema is YAML 1.2's core (`no` is text and `1e9` a number), without tags of one's own. A
duplicate key is a problem; the content is returned nevertheless, so that later checks can report
all problems together.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml._yaml import CParser
from yaml.composer import Composer
from yaml.resolver import Resolver

from headgate.base.errors import MOST_PROBLEMS, Problem, SpecError

Place = tuple[str | int, ...]  # ("jobs", 0, "tasks", 2) is jobs[0].tasks[2]
Hint = str | Callable[[], str]  # an expensive one is computed only if it is shown

_MOST_VALUES = 2_000_000  # keys included; a few aliases may unfold to any number
_MOST_LEVELS = 100
_MOST_SHOWN = 100  # characters of a text in a message
_MOST_DIGITS = 1000
_TAG = "tag:yaml.org,2002:"
_NO_TOKEN = "found character that cannot start any token"  # libyaml does not report which
_PLAIN = {
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "int": (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    "float": (
        r"[-+]?((\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|\.(inf|Inf|INF))|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
}


class _Rejected(Exception):
    """The file as a whole cannot be used; the arguments are the problem and the hint."""


class _Loader(Composer, CParser, Resolver):
    """Reads text into nodes; `_Builder` makes their values.

    libyaml's parser, several times as fast as Python's, under Python's composer: the one in C
    recurses without a limit.
    """

    def __init__(self, text: str) -> None:
        CParser.__init__(self, text)
        Composer.__init__(self)
        Resolver.__init__(self)
        self._values = 0  # so far, with what aliases unfold to
        self._weights: dict[str, int] = {}  # values that each anchor stands for
        self._levels = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose a node; raise _Rejected when a limit is exceeded."""
        event, before = self.peek_event(), self._values
        anchor = event.anchor if isinstance(event, yaml.NodeEvent) else None
        self._values += 1
        if isinstance(event, yaml.AliasEvent):
            self._values += self._weights.get(event.anchor or "", 0)
        self._levels += 1
        if self._levels > _MOST_LEVELS:
            raise _too_deep()
        if self._values > _MOST_VALUES:
            raise _Rejected(f"unfolds to more than {_MOST_VALUES} values", "use fewer aliases")
        node = super().compose_node(parent, index)
        self._levels -= 1
        if anchor is not None:
            self._weights[anchor] = self._values - before
        return node


def _too_deep() -> _Rejected:
    return _Rejected("is nested too deeply", f"use at most {_MOST_LEVELS} levels")


_Loader.yaml_implicit_resolvers = {}
for _name, (_pattern, _first) in _PLAIN.items():
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(rf"({_pattern})\Z"), list(_first))


def dotted(place: Place) -> str:
    """Return the text of a place: `jobs[0].tasks[2]`; long keys are shortened."""
    text = "".join(f"[{p}]" if isinstance(p, int) else f".{clipped(p)}" for p in place)
    return text.removeprefix(".")


def clipped(text: str) -> str:
    """Return the first 100 characters of a text, for messages."""
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."


@dataclass(slots=True, kw_only=True)
class Document:
    """The content of a file and its problems; `name` is for messages."""

    name: str
    root: yaml.Node
    data: dict[str, Any] = field(default_factory=dict)
    _found: list[tuple[Place, str, Hint]] = field(default_factory=list)
    _unclean: set[Place] = field(default_factory=set)  # places with a problem in them
    _keys: dict[int, dict[str, tuple[int, yaml.Node]]] = field(default_factory=dict)

    def line(self, place: Place) -> int:
        """Return the line of a place, or of the innermost value around it that exists.

        O(depth), after a first look at each mapping on the way.
        """
        node, line = self.root, self.root.start_mark.line
        for part in place:
            if isinstance(node, yaml.MappingNode):
                found = self._keys_of(node).get(str(part))
                if found is None:
                    break
                line, node = found
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
                if part >= len(node.value):
                    break
                node = node.value[part]
                line = node.start_mark.line
            else:
                break
        return int(line) + 1

    def _keys_of(self, node: yaml.MappingNode) -> dict[str, tuple[int, yaml.Node]]:
        """Return, by key, the line of a mapping's key and the node of its value."""
        known = self._keys.get(id(node))
        if known is None:
            known = self._keys[id(node)] = {
                key.value: (key.start_mark.line, item)
                for key, item in node.value
                if isinstance(key, yaml.ScalarNode)
            }
        return known

    def add(self, place: Place, problem: str, hint: Hint = "") -> None:
        """Add a problem at a place."""
        self._found.append((place, problem, hint))
        self._unclean.update(place[:length] for length in range(len(place) + 1))

    def is_clean(self, place: Place) -> bool:
        """Return whether no problem was added at a place or inside it."""
        return place not in self._unclean

    def part(self, key: str) -> Document:
        """Return the mapping at a top-level key as a document of its own."""
        assert isinstance(self.root, yaml.MappingNode), "it was read as one"
        return Document(name=self.name, root=self._keys_of(self.root)[key][1], data=self.data[key])

    def add_from(self, part: Document, key: str) -> None:
        """Add the problems of the part at a key."""
        for place, problem, hint in part._found:
            self.add((key, *place), problem, hint)

    def raise_problems(self) -> None:
        """Raise SpecError with every problem, in the order of the file, if there is any."""
        if not self._found:
            return
        placed = [
            (self.line(place), dotted(place), problem, hint) for place, problem, hint in self._found
        ]
        placed.sort(key=lambda found: found[:2])
        problems = [
            Problem(
                path=path,
                problem=problem,
                hint=hint if isinstance(hint, str) else hint(),
                line=line,
            )
            for line, path, problem, hint in placed[:MOST_PROBLEMS]
        ]
        raise SpecError(problems, more=len(placed) - len(problems))


def read_document(source: Path | str, *, name: str = "text") -> Document:
    """Read a file, or text, of keys and values; raise SpecError when it is not YAML.

    Messages about text as a whole call it `name`.
    """
    if isinstance(source, Path):
        name, source = str(source), read_text(source)

    def rejection(problem: str, hint: str = "", line: int | None = None) -> SpecError:
        return SpecError([Problem(path=name, problem=problem, hint=hint, line=line)])

    try:
        root = _Loader(source).get_single_node()
        if root is None:
            raise rejection("is empty")
        if not isinstance(root, yaml.MappingNode):
            raise rejection(
                "must be a mapping of keys to values", "begin with a line such as 'name: ...'", 1
            )
        document = Document(name=name, root=root)
        document.data = _Builder(document).value(root, ())
    except yaml.reader.ReaderError as error:
        raise rejection(
            f"contains a character that is invalid in text: {error.character!r}"
        ) from None
    except UnicodeEncodeError:
        raise rejection("contains half of a surrogate pair, which is invalid in text") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = error.problem or error.context or "cannot be read"
        if mark and what == _NO_TOKEN and mark.index < len(source):
            what = what.replace("character", f"character {source[mark.index]!r}")
        place = (f"column {mark.column + 1}", mark.line + 1) if mark else ("", None)
        raise rejection(f"is not YAML: {clipped(what)}", *place) from None
    except _Rejected as error:
        raise rejection(*error.args) from None
    return document


def read_text(path: Path) -> str:
    """Return the text of a file; raise SpecError when it cannot be read."""

    def rejection(problem: str, code: str | None = None) -> SpecError:
        return SpecError([Problem(path=str(path), problem=problem)], code=code)

    try:
        return decoded(path.read_bytes(), str(path))
    except FileNotFoundError:
        raise rejection("there is no such file", code="missing_file") from None
    except IsADirectoryError:
        raise rejection("is a directory, not a file") from None
    except OSError as error:
        raise rejection(f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise rejection(f"cannot be read: {error}") from None


def decoded(content: bytes, name: str) -> str:
    """Return the text of the content of a file; raise SpecError when it is not text."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        hint = "a YAML file in UTF-8 is needed"
        raise SpecError([Problem(path=name, problem="is not text", hint=hint)]) from None


class _Builder:
    """Makes values of nodes, and adds their problems to the document."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def value(self, node: yaml.Node, place: Place) -> Any:
        if len(place) > _MOST_LEVELS:  # an alias contains itself, or others
            raise _too_deep()
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, place)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self.value(item, (*place, i)) for i, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            try:
                return _scalar(node.tag.removeprefix(_TAG), node.value)
            except ValueError:
                pass
        kind = clipped(node.tag.removeprefix(_TAG))
        self._document.add(place, f"is not a value that can be used (tag {kind})")
        return None

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key, item in node.value:
            if not isinstance(key, yaml.ScalarNode) or not key.value.isprintable():
                self._document.add(place, "a key must be text", "put text with { in quotes")
                continue
            if key.value in data:
                problem = f"the key '{clipped(key.value)}' is given twice"
                self._document.add((*place, key.value), problem, "keep one of them")
            data[key.value] = self.value(item, (*place, key.value))
        return data


def _scalar(kind: str, text: str) -> Any:
    """Return the value of a scalar; raise ValueError for text that is not of its type."""
    match kind:
        case "str":
            text.encode()  # half of a surrogate pair cannot be encoded
            return text
        case "null" if text in ("", "~") or text.lower() == "null":
            return None
        case "bool" if text.lower() in ("true", "false"):
            return text.lower() == "true"
        case "int":
            if len(text) > _MOST_DIGITS:  # not even Python writes a number of many digits
                raise ValueError(text)
            return int(text, 0 if text[:2] in ("0x", "0o") else 10)
        case "float":
            return float(re.sub(r"\.(?=inf|nan)", "", text.lower()))
        case _:
            raise ValueError(text)
