"""`headgate policies`: lists every policy with its parameters, without a controller."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.app import POLICIES
from headgate.base.errors import SpecError
from headgate.cli.cluster.cluster import placed_by
from headgate.ports import make_policy, read_live_policy


@pytest.fixture
def listed(headgate: Any) -> list[dict[str, Any]]:
    output = headgate("policies", "-o", "json")
    assert (output.code, output.err) == (0, "")
    assert set(output.json) == {"policies"}
    found: list[dict[str, Any]] = output.json["policies"]
    return found


def test_every_policy_is_listed_with_idea_and_source(listed: list[dict[str, Any]]) -> None:
    assert [policy["name"] for policy in listed] == list(POLICIES)
    assert {"fifo", "fs", "capacity", "fair"} <= set(POLICIES)
    for policy in listed:
        assert set(policy) == {"name", "idea", "source", "parameters"}
        assert policy["idea"]
        assert policy["source"]


def test_parameters_have_default_bound_unit_and_meaning(listed: list[dict[str, Any]]) -> None:
    flow = next(policy for policy in listed if policy["name"] == "fs")
    assert flow["parameters"][0] == {
        "name": "alpha1",
        "default": 3.0,
        "above": 1.0,
        "least": None,
        "unit": "1",
        "meaning": "price of a second spent reading within the rack",
        "choices": [],
    }
    gs, fifo = (
        next(policy for policy in listed if policy["name"] == name)["parameters"]
        for name in ("gs", "fifo")
    )
    assert [each for each in fifo if each["name"] != "migrate"] == gs[2:]
    place = gs[2]
    assert (place["name"], place["default"]) == ("place", "first-fit")
    assert {"closed-minimum", "best-fit-subtree", "sequential"} < set(place["choices"])


def test_every_listed_parameter_can_be_set_within_its_range(listed: list[dict[str, Any]]) -> None:
    for policy in listed:
        parameters = policy["parameters"]
        defaults = {p["name"]: p["default"] for p in parameters}
        assert make_policy(POLICIES, policy["name"], defaults).name == policy["name"]
        for p in parameters:
            if p["above"] is not None:
                with pytest.raises(SpecError, match="is not above"):
                    make_policy(POLICIES, policy["name"], {p["name"]: p["above"]})
            if p["least"] is not None:
                with pytest.raises(SpecError, match="is below"):
                    make_policy(POLICIES, policy["name"], {p["name"]: p["least"] - 1.0})


def test_the_table_contains_the_same_policies_and_parameters(headgate: Any) -> None:
    output = headgate("policies")
    assert (output.code, output.err) == (
        0,
        "",
    )
    policies = output.out.splitlines()
    assert policies[0].split() == ["POLICY", "IDEA"]
    assert [line.split()[0] for line in policies[1:]] == list(POLICIES)
    assert max(map(len, policies)) <= 80
    assert not any(line.endswith("...") for line in policies), "an idea begins with a short clause"


def test_one_policy_is_shown_with_its_parameters(headgate: Any) -> None:
    lines = headgate("policies", "fs").out.splitlines()
    assert [line.partition(":")[0] for line in lines[:3]] == ["Policy", "Idea", "Source"]
    assert "alpha1: price of a second spent reading within the rack (default 3, > 1)" in lines
    shown = headgate("policies", "fs", "-o", "json").json["policies"]
    assert [policy["name"] for policy in shown] == ["fs"]
    unknown = headgate("policies", "fps", "-o", "json")
    assert (unknown.code, unknown.error["code"]) == (2, "unknown_policy")


def test_up_names_a_placer_beside_a_policy_or_the_default_one() -> None:
    assert placed_by(None, None) is None
    assert placed_by("fsp,slack=0", None) == "fsp,slack=0"
    for text, policy in ((None, "headgate"), ("fsp,slack=0", "fsp"), ("gs", "gs")):
        name, parameters = read_live_policy(POLICIES, placed_by(text, "closed-minimum") or "")
        assert (name, parameters["place"]) == (policy, "closed-minimum")
    with pytest.raises(SpecError, match="'cubic' is no value of 'place'"):
        read_live_policy(POLICIES, placed_by("gs", "cubic") or "")
