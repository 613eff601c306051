"""The law of room: the ledger's module alone divides what is free by what one run needs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "headgate"
HOME = "state/ledger.py"

# Names of what one run needs. No other module divides by them: it asks `Ledger.room`, or, of other
# amounts than what nodes have free now, `room_in` and `runs_in`.
NEEDS = {
    "amount", "amounts", "cpu_milli", "cpus_milli", "demand", "gpu_milli", "gpus", "gpus_milli",
    "has", "memory_bytes", "milli", "need", "needed", "needs", "part_bytes", "gpu_memory_bytes",
}  # fmt: skip
DIVIDING = {"divmod", "floor_divide"}

# Divisions of something else, by file, and what of. None is added; one that goes, goes here, too.
ALLOWED: dict[str, dict[str, str]] = {
    "api/executor.py": {"has // needs": "slots of a client, from a list of nodes in JSON"},
    "planning/place/timetable.py": {"self._nth[last] // gpus": "the number of a place on its node"},
}


def divisor_name(divisor: ast.expr) -> str:
    """Return the last name in a divisor, also within `max(1, it)`."""
    match divisor:
        case ast.Call(func=ast.Name(id="max" | "int"), args=[*_, last]):
            return divisor_name(last)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value):
            return divisor_name(value)
    return ""


def divisions(code: str) -> list[str]:
    """Return the whole-number divisions by a need in code."""
    found: list[tuple[ast.expr | ast.stmt, ast.expr]] = []
    for node in ast.walk(ast.parse(code)):
        match node:
            case (
                ast.BinOp(op=ast.FloorDiv(), right=by) | ast.AugAssign(op=ast.FloorDiv(), value=by)
            ):
                found.append((node, by))
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[_, by, *_]):
                if name in DIVIDING:
                    found.append((node, by))
    return [ast.unparse(node) for node, by in found if divisor_name(by) in NEEDS]


def test_the_ledger_alone_divides_by_what_a_run_needs() -> None:
    sources = {path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("*.py")}
    found = {name: divisions(path.read_text()) for name, path in sorted(sources.items())}
    assert found.pop(HOME) == ["free // needed", "free_bytes // part_bytes"]
    allowed = {name: [*each] for name, each in ALLOWED.items()}
    assert {name: each for name, each in found.items() if each} == allowed


@pytest.mark.parametrize(
    "code",
    [
        "room = free.kind(kind) // amount",
        "gpus //= max(1, spec.gpus)",
        "x = [f(free) // needs[kind] for kind in z]",
        "full, rest = divmod(left, demand.gpu_milli)",
        "room = np.floor_divide(free, amount)",
    ],
)
def test_division_by_a_need_is_found(code: str) -> None:
    assert len(divisions(code)) == 1


@pytest.mark.parametrize(
    "code", ["-(-milli // WHOLE)", "a = count // 2", "half //= len(gpus)", "share = gpus / 2"]
)
def test_other_divisions_pass(code: str) -> None:
    assert divisions(code) == []
