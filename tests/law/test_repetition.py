"""Functions of a package share few lines: what is written twice has a function of its own."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[2] / "src" / "headgate"

SHARED_LINES = 6
"""From so many equal lines of consecutive statements on, a pair of functions is listed."""

LINE = 90  # characters: longer statements count as several lines

# Pairs that are known, which only become fewer.
KNOWN_PAIRS = {
    # One waits in an event loop, the other in a thread.
    ("live/base/user_slots.py slot", "live/base/user_slots.py slot_in_thread"),
    ("planning/packing/fragments.py options", "planning/packing/future.py options"),
}

Function = ast.FunctionDef | ast.AsyncFunctionDef
_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")


def statements(body: list[Any]) -> Iterator[str]:
    """Yield the statements of a body as normalized text, whatever their layout.

    Of one with blocks first its head, then what is in them. Texts alone are no statements.
    """
    for node in body:
        blocks = [part for name in _BLOCKS for part in getattr(node, name, ())]
        if blocks:
            head = [part for part in ast.iter_child_nodes(node) if part not in blocks]
            yield " ".join([type(node).__name__, *map(ast.unparse, head)])
            yield from statements(blocks)
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            yield ast.unparse(node)


def functions(tree: ast.Module) -> Iterator[Function]:
    """Yield the functions and methods of a module, without those in functions."""
    inner = set[ast.AST]()
    for node in ast.walk(tree):
        if isinstance(node, Function) and node not in inner:
            inner.update(part for part in ast.walk(node) if isinstance(part, Function))
            yield node


def windows(function: Function, least: int = SHARED_LINES) -> Iterator[tuple[str, ...]]:
    """Yield each shortest run of several consecutive statements with so many lines."""
    found = list(statements(function.body))
    for first in range(len(found)):
        lines = 0
        for end in range(first, len(found)):
            lines += 1 + len(found[end]) // LINE
            if lines >= least:
                if end > first:
                    yield tuple(found[first : end + 1])
                break


def pairs(sources: dict[str, str]) -> set[tuple[str, str]]:
    """Return the pairs of functions, as `file name`, of which some run of statements is equal."""
    where = defaultdict[tuple[str, ...], set[str]](set)
    for name, text in sources.items():
        for function in functions(ast.parse(text)):
            for window in windows(function):
                where[window].add(f"{name} {function.name}")
    return {pair for names in where.values() for pair in combinations(sorted(names), 2)}


def test_functions_of_a_package_share_few_lines() -> None:
    packages = defaultdict[str, dict[str, str]](dict)
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE)
        packages[name.parts[0]][str(name)] = path.read_text()
    found = {pair for sources in packages.values() for pair in pairs(sources)}
    assert found == KNOWN_PAIRS


_ONE = """
def one(units, rows):
    first = rows[0]
    for unit in units:
        if unit.waits:
            serve(unit, first)
            first = None
        else:
            leave(unit)
    return first
"""


def test_equal_statements_are_found_in_any_layout() -> None:
    other = _ONE.replace("one(", "other(").replace("(unit, first)", "(\n    unit,\n    first,\n)")
    assert pairs({"a": _ONE, "b": other}) == {("a one", "b other")}


def test_few_equal_lines_and_other_names_pass() -> None:
    assert pairs({"a": _ONE, "b": _ONE.replace("unit", "task")}) == set()
    few = "def few(units):\n    first = rows[0]\n    for unit in units:\n        first = unit\n"
    assert pairs({"a": few, "b": few.replace("few", "more")}) == set()
