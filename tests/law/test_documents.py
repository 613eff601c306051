"""The law of documents: links lead somewhere, and modules named in text exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "headgate"
FOLDERS = ("docs", "examples", "README.md", "ARCHITECTURE.md")

_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
_ANCHOR = re.compile(r'<a id="([^"]+)">')
_DATA = {"db", "csv", "html"}  # suffixes of files whose names begin like a package
_PATH = re.compile(r"(?<![\w./:~-])(?:headgate[./])?([a-z]\w*)[./]([\w./]*)")


def _documents() -> Iterator[Path]:
    for top in FOLDERS:
        path = ROOT / top
        yield from sorted(path.rglob("*.md")) if path.is_dir() else [path]


@cache
def _text(path: Path) -> str:
    """Return a document without its blocks of code."""
    return _FENCED.sub("", path.read_text())


# -------------------------------------------------------------------------------- links


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    plain = _LINK.sub("]", heading).lower()
    return re.sub(r"[^\w -]", "", plain).strip().replace(" ", "-")


def anchors(text: str) -> set[str]:
    return {*map(anchor, _HEADING.findall(text)), *_ANCHOR.findall(text)}


def test_links_between_documents_resolve() -> None:
    broken = []
    for path in _documents():
        for link in _LINK.findall(_CODE.sub("", _text(path))):
            name, _, place = link.partition("#")
            target = (path.parent / name).resolve() if name else path
            if re.match(r"\w+:", link):
                continue
            if not target.exists():
                broken.append(f"{path.relative_to(ROOT)}: there is no file {link}")
            elif place and place not in anchors(_text(target)):
                broken.append(f"{path.relative_to(ROOT)}: there is no heading {link}")
    assert broken == []


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("Users and isolation", "users-and-isolation"),
        ("What `up` does, and why", "what-up-does-and-why"),
        ("A [link](x.md) of two-words", "a-link-of-two-words"),
    ],
)
def test_anchors_are_those_of_github(heading: str, expected: str) -> None:
    assert anchor(heading) == expected


# -------------------------------------------------------------------------------- names


def missing_name(dotted: str) -> str:
    """Return what of `planning.scaling.decision.wanted`, without `headgate`, does not exist; "" if
    all does.

    A name in a module is one that is defined, assigned or imported there.
    """
    at, *rest = PACKAGE, *dotted.strip(".").split(".")
    while rest and (at / rest[0]).is_dir():
        at /= rest.pop(0)
    for suffix in (".py", ".pyi"):
        if rest and (at / f"{rest[0]}{suffix}").is_file():
            at /= f"{rest.pop(0)}{suffix}"
    if not rest or f".{rest[0]}" == at.suffix:
        return ""
    module = at if at.is_file() else at / "__init__.py"
    found = not module.is_file() or not _has_name(module, rest)
    return f"{at.relative_to(PACKAGE)} has no {'.'.join(rest)}" if found else ""


def _has_name(module: Path, names: list[str]) -> bool:
    """Return whether a module has a name, and the class of that name an attribute."""
    tree = ast.parse(module.read_text())
    first = next((node for node in tree.body if names[0] in _defined(node)), None)
    if first is None or len(names) == 1 or not isinstance(first, ast.ClassDef):
        return first is not None
    return any(names[1] in _defined(node) for node in first.body)


def _defined(node: ast.stmt) -> set[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return {name}
        case ast.ImportFrom(names=names) | ast.Import(names=names):
            return {each.asname or each.name for each in names}
        case ast.Assign(targets=targets):
            return {ast.unparse(target) for target in targets}
        case ast.AnnAssign(target=target):
            return {ast.unparse(target)}
        case ast.If(body=body):  # imports for type checkers
            return {name for inner in body for name in _defined(inner)}
        case _:
            return set()


def names_in(text: str) -> Iterator[str]:
    """Yield the modules and names of the package in a document's code, dotted."""
    packages = {path.name for path in PACKAGE.iterdir() if path.is_dir()} | {"app"}
    for code in _CODE.findall(text):
        for first, rest in _PATH.findall(code):
            if first in packages and _DATA.isdisjoint(rest.split(".")):
                yield f"{first}.{rest.replace('/', '.')}"


def test_modules_that_documents_name_exist() -> None:
    missing = [
        f"{path.relative_to(ROOT)}: {name}: {what}"
        for path in _documents()
        for name in names_in(_text(path))
        if (what := missing_name(name))
    ]
    assert missing == []


@pytest.mark.parametrize(
    "name",
    [
        "planning.scaling.scaler",
        "state.State.add_job",
        "machine.apply",
        "live.cluster.ordering.py",
        "live.",
    ],
)
def test_a_name_that_exists_is_found(name: str) -> None:
    assert missing_name(name) == ""


@pytest.mark.parametrize(
    "name", ["planning.absent", "state.state.State.absent", "machine.absent", "absent.apply"]
)
def test_a_name_that_does_not_exist_is_reported(name: str) -> None:
    assert missing_name(name)


def test_names_are_read_from_code_alone() -> None:
    text = "planning.a `planning.b.C(x)`, `headgate.live.d`, `live/e.py` `x.live.f` `other.g`"
    assert [*names_in(text)] == ["planning.b.C", "live.d", "live.e.py"]
