"""Rules of the project that no linter checks: lengths, words, and skipped tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "headgate"
SOURCES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
NATIVE = sorted(path for path in PACKAGE.rglob("*") if path.suffix in {".cpp", ".hpp"})

MOST_LINES_OF_A_FILE = 600
MOST_LINES_OF_A_FUNCTION = 60

# Tests that may be skipped: how many calls in which file, and why. A new one needs a line here.
SKIPS_ALLOWED: dict[str, tuple[int, str]] = {
    "tests/api/test_server.py": (1, "becoming another user needs root"),
    "tests/journal/test_full_disk.py": (1, "a small disk is mounted, which needs root"),
    "tests/live/accounts.py": (3, "other users need root and a Python that they can read"),
    "tests/live/test_closed_partition_live.py": (2, "needs root, Open MPI and mpi4py"),
    "tests/live/node/test_node_status.py": (1, "no C compiler to build the fake driver with"),
    "tests/live/test_ray_bed.py": (1, "network namespaces need root and iproute2"),
    "tests/live/test_reproduce_live.py": (1, "network namespaces need root and iproute2"),
    "tests/live/node/test_store.py": (1, "a full disk is a mount, which not every machine allows"),
    "tests/live/base/test_control_groups.py": (2, "control groups, of either version, need root"),
    "tests/live/node/test_run_files.py": (1, "devices, and files of other users, need root"),
    "tests/live/run/test_run_limits.py": (1, "control groups, which not every machine allows"),
    "tests/live/test_system_bandwidth.py": (1, "network namespaces need root and iproute2"),
    "tests/live/test_system_mpi.py": (2, "network namespaces need root; Open MPI is optional"),
    "tests/live/test_system_ray_libraries.py": (1, "libraries are large: make test-ray"),
    "tests/live/test_system_torch.py": (1, "PyTorch is large: make test-torch installs it"),
    "tests/reports/test_browser.py": (1, "needs a browser, which is large: Debian's chromium"),
    "tests/traces/test_host_map.py": (1, "the recorded map is not part of the project"),
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def place(path: Path, node: ast.AST | None = None) -> str:
    line = f":{node.lineno}" if isinstance(node, ast.expr | ast.stmt) else ""
    return f"{path.relative_to(ROOT)}{line}"


def test_no_file_is_long() -> None:
    lengths = {place(path): len(path.read_text().splitlines()) for path in SOURCES + TESTS + NATIVE}
    assert {p: n for p, n in lengths.items() if n > MOST_LINES_OF_A_FILE} == {}


def test_no_function_is_long() -> None:
    long = [
        f"{place(path, node)} {node.name}"
        for path in SOURCES + TESTS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, Function)
        and (node.end_lineno or 0) - node.lineno + 1 > MOST_LINES_OF_A_FUNCTION
    ]
    assert long == []


# What holds braces that open and close nothing.
_QUOTED = re.compile(r"""//.*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])'""")


def _native_bodies(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the place and the lines of every body whose head ends like `...) {`: functions too."""
    lines = [_QUOTED.sub("", line).rstrip() for line in path.read_text().splitlines()]
    for start, line in enumerate(lines):
        if not (line.endswith("{") and ")" in line):
            continue
        end, depth = start, 1
        while depth > 0:
            end += 1
            depth += lines[end].count("{") - lines[end].count("}")
        yield f"{place(path)}:{start + 1}", end - start + 1


def test_no_function_in_cpp_is_long() -> None:
    bodies = dict(body for path in NATIVE for body in _native_bodies(path))
    assert bodies
    assert {at: lines for at, lines in bodies.items() if lines > MOST_LINES_OF_A_FUNCTION} == {}


def test_every_package_has_a_docstring() -> None:
    silent = [
        place(path)
        for path in SOURCES
        if path.name == "__init__.py" and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


# -------------------------------------------------------------------------------- skips


def _skips(path: Path) -> Iterator[ast.expr]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr in {
            "skip", "skipif", "xfail", "importorskip", "skipTest",
        }:  # fmt: skip
            yield node


def test_skipped_tests_are_counted() -> None:
    counts = {place(path): sum(1 for _ in _skips(path)) for path in TESTS}
    found = {path: count for path, count in counts.items() if count}
    assert found == {path: count for path, (count, _) in SKIPS_ALLOWED.items()}


# -------------------------------------------------------------------------------- words

_FORBIDDEN = {
    "a registry's host": re.compile("py" + "pi|python" + "hosted"),
    "where packages come from": re.compile("extra-" + "index|index-" + "url|find-" + "links"),
    "a path of one machine": re.compile(r"(?<![\w.~}])/(?:work|farm|root|opt)/"),
}
_TEXT = {".py", ".md", ".toml", ".txt", ".yaml", ".yml", ".json", ".sh", ".c", ".html", ".js", ""}
_TEXT |= {".cpp", ".hpp", ".pyi"}
_NO_TEXT = {".git", "__pycache__"}


def _texts() -> Iterator[Path]:
    tops = ("src", "tests", "docs", "bench", "examples", "fuzz", ".ci")
    for path in sorted(p for top in tops for p in (ROOT / top).rglob("*")) + sorted(ROOT.iterdir()):
        if path.is_file() and path.suffix in _TEXT and _NO_TEXT.isdisjoint(path.parts):
            yield path


def test_the_tree_names_no_registry_and_no_path_of_a_machine() -> None:
    found = [
        f"{place(path)}:{number} names {what}: {line.strip()}"
        for path in _texts()
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        for what, pattern in _FORBIDDEN.items()
        if pattern.search(line)
    ]
    assert found == []
