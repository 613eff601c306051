"""The digests of plans: equal for equal code, different for one step that differs."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from headgate.app import POLICIES
from headgate.base.rng import Random
from headgate.model import Job
from headgate.ports import Policy
from headgate.protocol import Plan, Reason, Steps
from headgate.state import Snapshot

SCRIPT = Path(__file__).parents[2] / "fuzz" / "plan_digests.py"
FEW = ("--storms", "2", "--first", "1000", "--no-goldens")


@pytest.fixture(scope="module")
def digests() -> Any:
    """Return the script as a module."""
    spec = spec_from_file_location("plan_digests", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def called(*arguments: object, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, *map(str, arguments)],
        env={"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )


def test_same_code_gives_the_same_digests_in_any_process(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("before", "after")]
    for seed, file in enumerate(files, start=1):
        assert called("write", file, *FEW, "--jobs", 1, hash_seed=str(seed)).returncode == 0
    answer = called("compare", *files)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.endswith("all 8 cases are equal\n")
    entries = [json.loads(line) for line in files[0].read_text().splitlines()]
    assert all(entry["count"] for entry in entries)
    assert len({entry["plans"] for entry in entries}) > 4


class OneLess(Policy):
    """Another policy, whose first plan with a start has one start less."""

    def __init__(self, policy: Policy) -> None:
        self.name, self._policy, self._left_out = policy.name, policy, False

    def refuses(self, job: Job) -> Reason | None:
        return self._policy.refuses(job)

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        plan = self._policy.decide(snapshot, rng)
        if self._left_out or not len(plan.starts):
            return plan
        self._left_out = True
        return replace(plan, steps=Steps.of([*plan.steps][1:]))


def test_policy_with_one_changed_step_is_reported(
    digests: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pairs = [("fifo", "storm-all-000000"), ("gsp", "storm-links-000002")]
    files = [tmp_path / name for name in ("before", "after")]
    own = digests.made
    for file in files:
        file.write_text("".join(json.dumps(digests.entry(pair)) + "\n" for pair in pairs))
        changed = lambda text: OneLess(own(text)) if text == "gsp" else own(text)  # noqa: E731
        monkeypatch.setattr(digests, "made", changed)
    monkeypatch.setattr(sys, "argv", ["plan_digests.py", "compare", *map(str, files)])
    assert digests.main() == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["fifo: 1 equal, 0 differ", "gsp: 0 equal, 1 differ"]
    assert lines[2:] == ["gsp  storm-links-000002: plans, explanations"]


def test_show_prints_the_plans_of_a_case_by_names() -> None:
    answer = called("show", "fifo", "storm-all-000000")
    assert answer.returncode == 0
    assert "start j" in answer.stdout
    assert "\n    waits: ['j" in answer.stdout


def test_all_policies_and_placers_have_cases(digests: Any) -> None:
    assert {*digests.NAMES} == {*POLICIES}
    found = {text for number in range(400) for text, _ in digests.storms_of(number)}
    assert found == {*digests.PLAIN, *digests.PLACING, *digests.OTHERS}
    assert all(digests.made(text).name for text in found)
