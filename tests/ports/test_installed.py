"""Policies of other packages: an unusable one is listed with its problem, others work."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from headgate.app import POLICIES
from headgate.base.errors import SpecError
from headgate.policies.table import OWN
from headgate.ports import PolicyInfo, make_policy
from headgate.ports.installed import GROUP, installed_policies

FIFO = {"fifo": OWN["fifo"]}
MODULE = """
from headgate.ports import PolicyInfo
from headgate.policies.ordered.fifo import FirstInFirstOut
def info(name):
    return PolicyInfo(name=name, idea="i", source="s", parameters=(), make=FirstInFirstOut)
GOOD, OTHER, NUMBER = info("good"), info("another"), 7
"""


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, PolicyInfo]:
    """Return what is found beside `fifo` when one package brings good and bad entry points."""
    tmp_path.joinpath("policies_of_others.py").write_text(MODULE)
    tmp_path.joinpath("breaks_on_import.py").write_text("raise RuntimeError('not today')")
    about = tmp_path / "others-1.0.dist-info"
    about.mkdir()
    about.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    entries = {
        "good": "policies_of_others:GOOD",
        "fifo": "policies_of_others:GOOD",
        "missing": "no_such_module:INFO",
        "nothing": "policies_of_others:NOTHING",
        "number": "policies_of_others:NUMBER",
        "misnamed": "policies_of_others:OTHER",
        "breaks": "breaks_on_import:INFO",
    }
    lines = [f"[{GROUP}]", *(f"{name} = {value}" for name, value in entries.items())]
    about.joinpath("entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    return installed_policies(FIFO)


def test_own_policies_come_first_and_are_never_replaced(found: dict[str, PolicyInfo]) -> None:
    assert next(iter(found)) == "fifo"
    assert found["fifo"] is FIFO["fifo"]
    assert make_policy(found, "good").name == "fifo"
    assert found["good"].source == "s (package others)"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("fifo@others", "a policy 'fifo' exists already"),
        ("missing", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("nothing", "AttributeError: module 'policies_of_others' has no attribute 'NOTHING'"),
        ("number", "policies_of_others:NUMBER is no PolicyInfo but of type int"),
        ("misnamed", "calls itself 'another', its entry point 'misnamed'"),
        ("breaks", "RuntimeError: not today"),
    ],
)
def test_unusable_package_is_listed_and_its_problem_is_the_error_when_requested(
    found: dict[str, PolicyInfo], name: str, says: str
) -> None:
    assert says in found[name].idea
    with pytest.raises(SpecError) as refused:
        make_policy(found, name)
    assert refused.value.code == "unusable_policy"
    (problem,) = refused.value.problems
    assert says in problem.problem
    assert "the package others" in problem.hint


def test_other_processes_can_receive_all_policies_of_headgate() -> None:
    received = pickle.loads(pickle.dumps(dict(POLICIES)))

    assert list(received) == list(POLICIES)
    assert make_policy(received, "fifo", {"place": "sequential"}).name == "fifo"
