"""Verbs that people wait for import no heavy modules."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from tests.cli.program import VERBS

HEAVY = {
    "numpy", "pyarrow", "httpx", "asyncio", "ray", "fastapi", "psutil", "rich.console",
    "rich.progress", "headgate.state", "headgate.protocol", "headgate.planning",
    "headgate.sim.run", "headgate.experiments",
}  # fmt: skip
"""pydantic is not among them: typer imports it for every command line."""

_PROGRAM = """
import sys
from headgate.cli.main import run
code = run(sys.argv[1:])
print(code, *sorted(sys.modules), sep="\\n", file=sys.stderr)
"""


def imported(*arguments: str) -> tuple[int, set[str]]:
    """Run a command line in a process of its own; return its code, and what it imported."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *arguments], capture_output=True, text=True, check=True
    )
    lines = done.stderr.splitlines()
    start = max(n for n, line in enumerate(lines) if line.isdigit())
    return int(lines[start]), set(lines[start + 1 :])


@pytest.mark.parametrize(
    "verb",
    [
        "jobs -o json", "get {job}", "why {job} -o json", "logs {job}", "run -- true",
        "submit {file} --wait", "cancel {job}",
    ],
)  # fmt: skip
def test_verb_imports_no_heavy_module(up: Any, controller: Any, job_file: Any, verb: str) -> None:
    controller.on_launch = lambda launch: None if verb.startswith("cancel") else b""
    file = job_file("{run: 'true'}")
    job = up("submit", file, "-o", "json").json["id"]
    arguments = [word.format(job=job, file=file) for word in verb.split()]
    code, modules = imported(*arguments)
    assert (code, modules & HEAVY) == (0, set())


@pytest.mark.parametrize("verb", ["", "data", "reproduce", *VERBS])
def test_help_imports_no_heavy_module(verb: str) -> None:
    _, modules = imported(*verb.split(), "--help")
    assert modules & (HEAVY | {"headgate.spec"}) == set()


def test_list_of_policies_imports_none_of_them() -> None:
    code, modules = imported("policies")
    of_policies = {name for name in modules if name.startswith("headgate.policies.")}
    assert (code, modules & HEAVY) == (0, set())
    assert of_policies == {"headgate.policies.table"}
