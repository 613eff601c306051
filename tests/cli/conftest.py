"""The command line against a scripted controller on a real socket, in this process."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headgate.cli.main import run

PAIR = "{name: pair, tasks: {run: 'true', count: 2}}"


def _load(name: str) -> ModuleType:
    path = Path(__file__).parents[1] / "api" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"api_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_api = _load("conftest")
state, controller, socket = _api.state, _api.controller, _api.socket


@dataclass(frozen=True)
class Output:
    """The output of one call of the program, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The content of stdout, which must be one JSON document."""
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """The error on stderr, which must be one JSON object; stdout must be empty."""
        assert self.out == ""
        assert len(self.err.splitlines()) == 1
        error = json.loads(self.err)
        assert set(error) == {"code", "problems"}
        for problem in error["problems"]:
            assert set(problem) - {"line"} == {"path", "problem", "hint"}
        return error


@pytest.fixture
def headgate(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Output]:
    """A function that runs the program, without any user's configuration."""
    for variable in ("HEADGATE_STATE", "HEADGATE_OUTPUT", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Output:
        capsys.readouterr()
        try:
            code = run(arguments)
        except SystemExit as end:  # completion and help end with it
            code = int(end.code or 0)
        output = capsys.readouterr()
        assert "Traceback" not in output.out + output.err
        return Output(code, output.out, output.err)

    return call


@pytest.fixture
def up(socket: Path, state: Path, headgate: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program, with a running controller."""
    monkeypatch.setenv("HEADGATE_STATE", str(state))
    return headgate


@pytest.fixture
def job_file(tmp_path: Path) -> Callable[[str], str]:
    """A function that writes a job file and returns its path."""

    def write(text: str) -> str:
        path = tmp_path / "job.yaml"
        path.write_text(text)
        return str(path)

    return write


@pytest.fixture
def pair(up: Any, job_file: Any) -> str:
    """A job of two running tasks."""
    return str(up("submit", job_file(PAIR), "-o", "json").json["id"])
