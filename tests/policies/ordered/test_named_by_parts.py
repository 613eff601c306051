"""Policies named by their parts in scenario files, and the one that no live cluster can use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headgate.app import POLICIES
from headgate.base.errors import SpecError
from headgate.planning.place.choose import ByLinks
from headgate.planning.place.choose.setting import PlacingPolicy
from headgate.ports import PLACE_NAMES, choose_policy, make_policy, read_policy
from headgate.spec import load_scenario

SCENARIO = """\
cluster:
  racks: [{name: a, nodes: 2, node: {gpus: 2, gpu_memory: 1GB}}]
  bandwidths: {disk_bytes_per_s: 1MB, node_link_bytes_per_s: 1MB, rack_uplink_bytes_per_s: 1MB}
jobs: [{name: one, tasks: [{compute_s: 1}]}]
policy: """


def chosen(tmp_path: Path, policy: str) -> tuple[str, Any]:
    file = tmp_path / "scenario.yaml"
    file.write_text(SCENARIO + policy + "\n")
    known = {name: [p.name for p in info.parameters] for name, info in POLICIES.items()}
    parts = {name: info.parts for name, info in POLICIES.items() if info.parts}
    scenario = load_scenario(file, known, parts=parts, places=PLACE_NAMES)
    return scenario.policy, scenario.parameters


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("{order: fair, place: first-fit}", "fair-order"),
        ("{order: fair, backfill: easy}", "fair-easy-backfill"),
        ("{backfill: easy}", "easy-backfill"),
        ("{order: arrival}", "fifo"),
        ("{order: srtf}", "srtf"),
        ("easy-backfill", "easy-backfill"),
    ],
)
def test_parts_name_a_policy(tmp_path: Path, text: str, name: str) -> None:
    assert chosen(tmp_path, text) == (name, {})


def test_a_policy_of_parts_has_parameters(tmp_path: Path) -> None:
    text = "{order: fair, backfill: conservative, reservations: 3}"
    assert chosen(tmp_path, text) == ("fair-conservative-backfill", {"reservations": 3})


def test_a_place_among_the_parts_is_a_parameter_of_the_policy(tmp_path: Path) -> None:
    text = "{order: arrival, place: closed-minimum, backfill: easy, otherwise: wait}"
    name, parameters = chosen(tmp_path, text)
    assert (name, parameters) == ("easy-backfill", {"place": "closed-minimum", "otherwise": "wait"})
    assert make_policy(POLICIES, name, parameters).name == name
    text = "{name: headgate, place: best-fit-subtree}"
    assert chosen(tmp_path, text) == ("headgate", {"place": "best-fit-subtree"})


@pytest.mark.parametrize(
    "text", ["{order: fair, place: headgate}", "{name: fair-order, place: headgate}"]
)
def test_the_former_name_of_a_placer_is_accepted(tmp_path: Path, text: str) -> None:
    name, parameters = chosen(tmp_path, text)
    policy = make_policy(POLICIES, name, parameters)
    assert isinstance(policy, PlacingPolicy)
    assert (name, policy.placer) == ("fair-order", ByLinks())
    assert read_policy(POLICIES, "fair-order,place=headgate") == (name, {"place": "links"})


def test_an_unknown_place_is_reported_with_those_known() -> None:
    with pytest.raises(SpecError, match="one of first-fit, links, best-fit-subtree") as error:
        make_policy(POLICIES, "headgate", {"place": "closed-minimun"})
    (problem,) = error.value.problems
    assert (problem.path, problem.hint) == ("policy.place", "did you mean 'closed-minimum'?")


@pytest.mark.parametrize(
    ("text", "path", "problem"),
    [
        ("{order: fiar}", "policy.order", "unknown order 'fiar'"),
        ("{order: fair, place: best}", "policy.place", "unknown place 'best'"),
        ("{order: fair, backfill: 3}", "policy.backfill", "unknown backfill"),
        ("{order: srtf, backfill: easy}", "policy.backfill", "srtf preempts"),
        ("{order: fair, colour: red}", "policy.colour", "unknown parameter 'colour'"),
    ],
)
def test_wrong_parts_are_reported(tmp_path: Path, text: str, path: str, problem: str) -> None:
    with pytest.raises(SpecError) as error:
        chosen(tmp_path, text)
    (found,) = error.value.problems
    assert found.path.endswith(path)
    assert problem in found.problem


def test_an_oracle_of_run_times_is_refused_on_a_live_cluster() -> None:
    with pytest.raises(SpecError, match="only simulations") as error:
        choose_policy(POLICIES, "srtf", {}, None)
    assert error.value.code == "simulated_only"
    with pytest.raises(SpecError, match="only simulations"):
        choose_policy(POLICIES, "headgate", {}, "srtf")
