"""The parameters of every policy: defaults as in its constructor, bounds that are kept."""

from __future__ import annotations

import math
from typing import Any

import pytest

from headgate.app import POLICIES
from headgate.base.errors import SpecError
from headgate.policies.table import PATIENCE
from headgate.ports import PLACE, make_policy

EACH = pytest.mark.parametrize("name", POLICIES)


def problem_of(name: str, parameter: str, value: Any) -> str:
    """Return the problem of making a policy with one parameter of a value."""
    with pytest.raises(SpecError) as error:
        make_policy(POLICIES, name, {parameter: value})
    assert error.value.code == "bad_parameter"
    (problem,) = error.value.problems
    assert problem.path == f"policy.{parameter}"
    return problem.problem


@EACH
def test_policy_is_made_from_its_defaults(name: str) -> None:
    defaults = {each.name: each.default for each in POLICIES[name].parameters}
    assert make_policy(POLICIES, name, defaults).name == name


@pytest.mark.parametrize("name", [name for name, info in POLICIES.items() if not info.parts])
def test_defaults_are_those_of_the_constructor(name: str) -> None:
    """Those that are composed of parts share their constructor."""
    others = {each.name for each in (*PLACE, PATIENCE)}
    listed = {each.name: each.default for each in POLICIES[name].parameters}
    own = {key: default for key, default in listed.items() if key not in others}
    constructor: Any = type(make_policy(POLICIES, name)).__init__
    assert (getattr(constructor, "__kwdefaults__", None) or {}) == own


@EACH
def test_values_outside_the_bounds_of_a_parameter_are_refused(name: str) -> None:
    for each in POLICIES[name].parameters:
        if each.choices:
            assert "one of" in problem_of(name, each.name, "no such choice")
            continue
        assert "not a finite number" in problem_of(name, each.name, math.inf)
        if each.above > -math.inf:
            assert f"is not above {each.above:g}" in problem_of(name, each.name, each.above)
        if each.least > -math.inf:
            assert f"is below {each.least:g}" in problem_of(name, each.name, each.least - 0.1)


@EACH
def test_unknown_parameter_is_refused(name: str) -> None:
    assert problem_of(name, "colour", 1) == f"policy {name} has no parameter 'colour'"
