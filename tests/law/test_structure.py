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
