"""The example of a policy package: its entry point, the law suite, `policies` and `simulate`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from headgate.ports import Policy, make_policy
from headgate.ports.installed import GROUP, installed_policies
from headgate.testing.policy_laws import PolicyLaws

EXAMPLES = Path(__file__).parents[2] / "examples"
PACKAGE = EXAMPLES / "policy-package"
ENTRIES = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]["entry-points"][GROUP]


def install(to: Path, package: str, entries: dict[str, str]) -> Path:
    """Write the metadata of an installed package, with its entry points."""
    about = to / f"{package.replace('-', '_')}-0.1.0.dist-info"
    about.mkdir(parents=True)
    about.joinpath("METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.1.0\n"
    )
    lines = [f"[{GROUP}]", *(f"{name} = {value}" for name, value in entries.items())]
    about.joinpath("entry_points.txt").write_text("\n".join(lines))
    return to


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(PACKAGE / "src"))
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def headgate(*words: str, site: Path) -> str:
    """Run a command line with the example installed."""
    path = os.pathsep.join([str(site), str(PACKAGE / "src")])
    command = [sys.executable, "-c", "from headgate.cli.main import main; main()", *words]
    env = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


class TestExampleKeepsTheLaws(PolicyLaws):
    worlds = 60

    @pytest.fixture(autouse=True)
    def _importable(self, site: Path) -> None:
        install(site, "headgate-shortest", ENTRIES)

    def make(self) -> Policy:
        return make_policy(installed_policies({}), "shortest")


def test_example_is_listed_and_simulates_from_the_command_line(tmp_path: Path) -> None:
    site = install(tmp_path, "headgate-shortest", ENTRIES)
    listed = json.loads(headgate("policies", "-o", "json", site=site))["policies"]
    (found,) = [policy for policy in listed if policy["name"] == "shortest"]
    assert found["source"].endswith("(package headgate-shortest)")
    scenario = str(EXAMPLES / "three-tasks.yaml")
    output = headgate("simulate", scenario, "--policy", "shortest", "-o", "json", site=site)
    assert json.loads(output)["policy"] == "shortest"
