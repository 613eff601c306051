"""Scaling files of live clusters: the provider, and every problem of a wrong one."""

from __future__ import annotations

import pytest

from headgate.base.errors import SpecError
from headgate.spec.live_scaling import CommandProvider, LocalRayProvider, load_live_scaling

SHAPES = "shapes: [{name: a, resources: {cpus: 2}}]\n"


def test_providers_of_files() -> None:
    scaling, provider = load_live_scaling(SHAPES + "provider: {kind: local-ray, rack: r1}\n")
    assert [shape.name for shape in scaling.shapes] == ["a"]
    assert provider == LocalRayProvider(rack="r1")
    text = "provider: {kind: command, command: [sh, -c, 'true'], timeout: 2min}\n"
    assert load_live_scaling(SHAPES + text)[1] == CommandProvider(
        argv=("sh", "-c", "true"), timeout_s=120.0
    )


@pytest.mark.parametrize(
    ("text", "places"),
    [
        (SHAPES, ["provider"]),
        (SHAPES + "provider: local-ray", ["provider"]),
        (SHAPES + "provider: {rack: r}", ["provider"]),
        (SHAPES + "provider: {kind: kuberay}", ["provider.kind"]),
        (SHAPES + "provider: {kind: local-ray, command: [x]}", ["provider.command"]),
        (SHAPES + "provider: {kind: command}", ["provider.command"]),
        (SHAPES + "provider: {kind: command, command: []}", ["provider.command"]),
        (SHAPES + "provider: {kind: command, command: [no-such-program-here]}",
         ["provider.command"]),
        (SHAPES + "provider: {kind: command, command: [sh], timeout: soon}", ["provider.timeout"]),
        ("floor: -1\nprovider: {kind: nothing}", ["provider.kind", "shapes", "floor"]),
    ],
)  # fmt: skip
def test_every_problem_of_a_file_is_reported_with_its_place(text: str, places: list[str]) -> None:
    with pytest.raises(SpecError) as raised:
        load_live_scaling(text)
    assert {problem.path for problem in raised.value.problems} == set(places)
