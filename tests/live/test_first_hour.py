"""The first hour: the commands of the README and the tutorial do what these promise."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.live
ROOT = Path(__file__).parents[2]
FENCED = re.compile(r"^```\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LONG = ("headgate reproduce",)  # takes minutes, and has tests of its own


@dataclass(frozen=True)
class Newcomer:
    """A shell in a copy of the repository, with a state directory of its own."""

    directory: Path
    state: Path

    def runs(self, command: str) -> str:
        """Run a command line, which must end with 0, and return its output."""
        binaries = Path(sys.executable).parent
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.directory,
            env={
                **os.environ,
                "PATH": f"{binaries}:{os.environ['PATH']}",
                "XDG_STATE_HOME": str(self.state),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}"
        return done.stdout


@pytest.fixture
def newcomer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Newcomer]:
    for variable in ("HEADGATE_STATE", "HEADGATE_OUTPUT", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    with tempfile.TemporaryDirectory(prefix="hg-", dir="/tmp") as name:
        directory = Path(name, "repository")
        shutil.copytree(ROOT / "examples", directory / "examples")
        shell = Newcomer(directory, Path(name, "state"))
        try:
            yield shell
        finally:
            if Path(name, "state").exists():
                shell.runs("headgate down -y")


def shell_of(text: str) -> list[str]:
    """Return the command lines of the fenced blocks of a page, without those that take long."""
    lines = [line for block in FENCED.findall(text) for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith(LONG)]


def session_of(text: str) -> list[tuple[str, str]]:
    """Return the commands behind `$` in a page, each with the output that the page shows."""
    steps = list[tuple[str, str]]()
    for block in FENCED.findall(text):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = step.partition("\n")
            steps.append((command, shown))
    return steps


def pattern_of(shown: str) -> str:
    """Return the pattern of an output: `...` stands for anything."""
    return ".*".join(re.escape(part) for part in shown.strip().split("..."))


def test_commands_of_the_readme_run_in_their_order(newcomer: Newcomer) -> None:
    text = (ROOT / "README.md").read_text()
    commands = shell_of(text[text.index("## Five minutes") : text.index("## Documentation")])
    assert len(commands) > 15, "the section has its commands"
    outputs = {command: newcomer.runs(command) for command in commands}
    (run,) = (output for command, output in outputs.items() if command.startswith("headgate run"))
    assert re.search(r"^GPUs \d,\d$", run, re.MULTILINE)
    assert "COMPLETED" in outputs["headgate get occurrence-1"]
    assert "Reason: " in outputs["headgate why sleep-6"]
    assert (newcomer.directory / "counts.npz").stat().st_size > 0


def test_commands_of_the_tutorial_give_the_outputs_that_it_shows(newcomer: Newcomer) -> None:
    steps = session_of((ROOT / "docs" / "tutorial.md").read_text())
    assert len(steps) > 15, "the page has its commands"
    for command, shown in steps:
        output = newcomer.runs(command)
        assert re.fullmatch(pattern_of(shown), output.strip(), re.DOTALL), f"$ {command}\n{output}"
