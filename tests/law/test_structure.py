"""Rules of the project about names and who may use what, read from the syntax of the source."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "headgate"
SOURCES = sorted(PACKAGE.rglob("*.py"))


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _place(path: Path, node: ast.AST | None = None) -> str:
    line = f":{node.lineno}" if isinstance(node, ast.expr | ast.stmt) else ""
    return f"{path.relative_to(PACKAGE)}{line}"


def _name(node: ast.expr) -> str:
    """Return the last name of `a`, `a.b` or `a[b]`, "" of anything else."""
    if isinstance(node, ast.Subscript):
        return _name(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


# -------------------------------------------------------------------------------- reasons


def _reasons() -> set[str]:
    """Return the names of the subclasses of `Reason`, direct or not."""
    found, before = {"Reason"}, set[str]()
    while found != before:
        before = set(found)
        for path in sorted((PACKAGE / "protocol").glob("*.py")):
            for node in ast.walk(_tree(path)):
                if isinstance(node, ast.ClassDef) and found & {_name(base) for base in node.bases}:
                    found.add(node.name)
    return found


def test_each_reason_is_constructed_in_one_module() -> None:
    reasons, where = _reasons(), defaultdict[str, set[str]](set)
    assert len(reasons) > 20
    for path in SOURCES:
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.Call) and _name(node.func) in reasons:
                where[_name(node.func)].add(_place(path))
    assert {name: sorted(paths) for name, paths in where.items() if len(paths) > 1} == {}


# -------------------------------------------------------------------------------- names

# Names of two classes, which only become fewer: of all of the source, and, private, of one package.
CLASSES_THAT_SHARE_A_NAME = {"policies/ordered/_Round"}


def test_class_names_are_unique() -> None:
    """A public name is unique in the source, a private one in its package."""
    where = defaultdict[str, list[str]](list)
    for path in SOURCES:
        package = path.parent.relative_to(PACKAGE)
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ClassDef):
                name = f"{package}/{node.name}" if node.name.startswith("_") else node.name
                where[name].append(_place(path, node))
    twice = {name: places for name, places in where.items() if len(places) > 1}
    found = {
        name: places for name, places in twice.items() if name not in CLASSES_THAT_SHARE_A_NAME
    }
    assert found == {}
    assert {*twice} >= CLASSES_THAT_SHARE_A_NAME


# -------------------------------------------------------------------------------- private names

# What other packages name so: of the standard library, and of Ray.
_PRIVATE_ELSEWHERE = {"_exit", "_replace", "_connect_and_get_accessor"}


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _defined(tree: ast.Module) -> set[str]:
    """Return the names that a module defines or assigns, of slots too."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Assign) and _name(node.targets[0]) == "__slots__":
            found |= {
                str(each.value) for each in ast.walk(node.value) if isinstance(each, ast.Constant)
            }
    return found


def test_no_module_uses_a_private_name_of_another() -> None:
    """Neither imported, nor as an attribute; a native module `_native` is no private name."""
    found = []
    for path in SOURCES:
        tree = _tree(path)
        own = _defined(tree) | _PRIVATE_ELSEWHERE
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                names = {alias.name for alias in node.names} - {"_native"}
                found += [f"{_place(path, node)} {name}" for name in names if _is_private(name)]
            elif isinstance(node, ast.Attribute) and _is_private(node.attr):
                found += [] if node.attr in own else [f"{_place(path, node)} {node.attr}"]
    assert found == []


# -------------------------------------------------------------------------------- type tests


def _of_ports(roots: set[str]) -> set[str]:
    """Return the names of classes that inherit from some, these included, and of all worlds."""
    bases = {
        node.name: {_name(base) for base in node.bases}
        for path in SOURCES
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.ClassDef)
    }
    found, before = {*roots, *(name for name in bases if name.endswith("World"))}, set[str]()
    while found != before:
        before = set(found)
        found |= {name for name, of in bases.items() if of & found}
    return found


def _choosers() -> set[str]:
    """Return the names of the classes of `planning.place.choose` that place the tasks of a unit."""
    return {
        node.name
        for path in sorted((PACKAGE / "planning" / "place" / "choose").glob("*.py"))
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.ClassDef)
        and any(isinstance(each, ast.FunctionDef) and each.name == "place" for each in node.body)
    }


def test_no_code_asks_for_the_class_of_a_placer_chooser_policy_or_world() -> None:
    """Placers have attributes, policies what `ports.capabilities` reads."""
    banned = _of_ports({"Placer", "Policy", "World"}) | _choosers()
    assert {"ByLinks", "Compact", "FlowPolicy", "SimulatedWorld"} <= banned
    found = []
    for path in SOURCES:
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.Call) and _name(node.func) in {"isinstance", "issubclass"}:
                asked = node.args[1]
            elif isinstance(node, ast.MatchClass):
                asked = node.cls
            else:
                continue
            if {_name(each) for each in ast.walk(asked) if isinstance(each, ast.expr)} & banned:
                found.append(f"{_place(path, asked)} {ast.unparse(asked)}")
    assert found == []
