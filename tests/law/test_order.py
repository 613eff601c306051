"""The law of order: no result depends on the order of a set, which differs between processes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "headgate"

# The core, the parts and the simulated world: same seed, same bytes out.
ORDERED = (
    "base", "model", "flow", "protocol", "state", "machine", "ports", "planning", "engine",
    "policies", "foresight", "journal", "traces", "metrics", "spec", "workloads", "testing", "sim",
)  # fmt: skip

# What gives the same from a set, whatever its order; and what keeps the order in which it came.
ORDER_FREE = {"sorted", "set", "frozenset", "len", "any", "all"}
ORDER_KEEPING = {"list", "tuple", "enumerate", "iter", "map", "filter", "zip", "deque"}
ORDER_KEEPING_METHODS = {"join", "extend", "fromkeys"}

SET_TYPES = {"set", "frozenset", "Set", "AbstractSet", "MutableSet"}
SET_METHODS = {"union", "intersection", "difference", "symmetric_difference"}
SET_OPERATORS = ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor


def is_set_type(annotation: ast.expr | None) -> bool:
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
    return isinstance(annotation, ast.Name) and annotation.id in SET_TYPES


class SetLoops(ast.NodeVisitor):
    """Finds loops over what is a set by its form, its annotation or what was assigned to it."""

    def __init__(self) -> None:
        self.found: list[ast.expr] = []
        self._known: list[set[str]] = [set()]  # names known to be sets, scope by scope
        self._order_free: list[ast.expr] = []

    def visit(self, node: ast.AST) -> None:
        match node:
            case ast.ClassDef():
                self._in_scope(node, self._attributes(node))
                return
            case ast.FunctionDef(args=args) | ast.AsyncFunctionDef(args=args):
                every = [*args.posonlyargs, *args.args, *args.kwonlyargs]
                self._in_scope(node, {a.arg for a in every if is_set_type(a.annotation)})
                return
            case ast.Assign(targets=targets, value=value) if self.is_set(value):
                self._known[-1].update(ast.unparse(target) for target in targets)
            case ast.AnnAssign(target=target, annotation=annotation) if is_set_type(annotation):
                self._known[-1].add(ast.unparse(target))
            case ast.Call(func=ast.Name(id=name), args=args) if name in ORDER_FREE:
                self._order_free += args
        self.found += [over for over in self._loops(node) if self.is_set(over)]
        self.generic_visit(node)

    def _in_scope(self, node: ast.AST, known: set[str]) -> None:
        self._known.append(known)
        self.generic_visit(node)
        self._known.pop()

    @staticmethod
    def _attributes(node: ast.ClassDef) -> set[str]:
        names = [
            ast.unparse(inner.target).removeprefix("self.")
            for inner in ast.walk(node)
            if isinstance(inner, ast.AnnAssign) and is_set_type(inner.annotation)
        ]
        return {f"self.{name}" for name in names}

    def _loops(self, node: ast.AST) -> list[ast.expr]:
        """Return what this node goes through in an order that shows."""
        match node:
            case ast.For(iter=over) | ast.AsyncFor(iter=over) | ast.Starred(value=over):
                return [over]
            case ast.ListComp() | ast.GeneratorExp() | ast.DictComp():
                free = node in self._order_free
                return [] if free else [generator.iter for generator in node.generators]
            case ast.Call(func=ast.Name(id=name), args=args) if name in ORDER_KEEPING:
                return args
            case ast.Call(func=ast.Attribute(attr=name), args=args) if (
                name in ORDER_KEEPING_METHODS
            ):
                return args
            case _:
                return []

    def is_set(self, node: ast.expr) -> bool:
        match node:
            case ast.Set() | ast.SetComp() | ast.Call(func=ast.Name(id="set" | "frozenset")):
                return True
            case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in SET_METHODS:
                return self.is_set(value)
            case ast.BinOp(left=left, op=op, right=right) if isinstance(op, SET_OPERATORS):
                return self.is_set(left) or self.is_set(right)
            case ast.Name() | ast.Attribute():
                return any(ast.unparse(node) in known for known in self._known)
            case _:
                return False


def set_loops(text: str) -> list[ast.expr]:
    visitor = SetLoops()
    visitor.visit(ast.parse(text))
    return visitor.found


def test_no_result_depends_on_the_order_of_a_set() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno} {ast.unparse(node)}"
        for name in ORDERED
        for path in sorted((PACKAGE / name).rglob("*.py"))
        for node in set_loops(path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "for x in {1, 2}: pass",
        "for x in set(y): pass",
        "z = [x for x in frozenset(y)]",
        "z = {x: 1 for x in a | {1}}",
        "def f(a: set[int]):\n    return [x for x in a - b]",
        "def f():\n    a = set()\n    for x in a: pass",
        "class A:\n    a: set[int]\n    def f(self):\n        return list(self.a)",
        "class A:\n  def f(self): return list(self.a)\n  def g(self): self.a: set[int] = set()",
        "z = [*{1, 2}]",
        "z = ','.join({'a', 'b'})",
    ],
)
def test_loop_over_a_set_is_found(code: str) -> None:
    assert len(set_loops(code)) == 1


@pytest.mark.parametrize(
    "code",
    [
        "for x in sorted({1, 2}): pass",
        "a = set(y)\nz = [x for x in sorted(a)]",
        "z = {x + 1 for x in {1, 2}}",
        "z = any(x > 1 for x in {1, 2})",
        "for x in [1, 2]: pass",
        "def f(a: dict[str, set[int]]):\n    return list(a)",
        "def f():\n    a = set()\ndef g(a):\n    return list(a)",
    ],
)
def test_ordered_loops_pass(code: str) -> None:
    assert set_loops(code) == []
