"""Scaling in files: what it describes, and every problem of wrong ones."""

from __future__ import annotations

import pytest

from headgate.base.errors import SpecError
from headgate.model import Gpu
from headgate.model.scaling import Scaling, Shape
from headgate.spec.scaling import load_scaling

GOOD = """\
shapes:
  - {name: small, resources: {cpus: 2, memory: 4GiB}, cost_per_h: 1, ready_after: 40s, max: 3}
  - {name: large, resources: {cpus: 8, gpus: 2, gpu_memory: 16GiB, custom: {fpga: 0.5}}}
floor: 1
max_nodes: 6
max_cost_per_h: 2.5
idle_after: 10min
utilisation: 0.5
"""


def test_scaling_of_a_file() -> None:
    assert load_scaling(GOOD) == Scaling(
        shapes=(
            Shape(
                name="small",
                cpus=2,
                memory_bytes=4 << 30,
                cost_per_h=1,
                ready_after_s=40,
                most=3,
            ),
            Shape(
                name="large",
                cpus=8,
                gpus=(Gpu(memory_bytes=16 << 30),) * 2,
                custom=(("fpga", 500),),
            ),
        ),
        floor=1,
        max_nodes=6,
        max_cost_per_h=2.5,
        idle_after_s=600,
        utilisation=0.5,
    )


def test_node_of_a_shape_has_its_resources() -> None:
    large = load_scaling(GOOD).shapes[1]
    node = large.node("n9", "r1")
    assert (node.id, node.rack, node.gpus) == ("n9", "r1", large.gpus)
    assert (node.cpus, node.memory_bytes, node.custom) == (8, None, (("fpga", 500),))


ONE = "shapes: [{name: a, resources: {cpus: 1}}]\n"
BAD = {
    "no shapes": ("floor: 1", ["shapes"]),
    "empty list of shapes": ("shapes: []", ["shapes"]),
    "unknown key": (ONE + "flor: 1", ["flor"]),
    "shape without name and resources": ("shapes: [{max: 1}]", ["name", "resources"]),
    "shape that is no mapping": ("shapes: [3]", ["shapes"]),
    "two shapes of one name": (
        "shapes: [{name: a, resources: {}}, {name: a, resources: {}}]",
        ["'a' exists already"],
    ),
    "shape without capacity": ("shapes: [{name: a, resources: {cpus: 0}}]", ["no CPU and no GPU"]),
    "name in resources": ("shapes: [{name: a, resources: {name: b}}]", ["must not be given"]),
    "GPU without memory": ("shapes: [{name: a, resources: {gpus: 1}}]", ["gpu_memory"]),
    "reserved kind": ("shapes: [{name: a, resources: {custom: {gpus: 1}}}]", ["no custom"]),
    "no node allowed": ("shapes: [{name: a, resources: {}, max: 0}]", ["at least 1"]),
    "negative cost": ("shapes: [{name: a, resources: {}, cost_per_h: -1}]", ["at least 0"]),
    "no duration": ("shapes: [{name: a, resources: {}, ready_after: soon}]", ["not a duration"]),
    "negative duration": (
        "shapes: [{name: a, resources: {}, ready_after: -3s}]",
        ["'-3s' is not a duration"],
    ),
    "infinite cost": ("shapes: [{name: a, resources: {}, cost_per_h: .inf}]", ["finite"]),
    "resources that are no mapping": ("shapes: [{name: a, resources: 3}]", ["mapping"]),
    "shapes that are no list": ("shapes: {a: 1}", ["must be a list"]),
    "shape above the ceiling": (
        "max_cost_per_h: 1\nshapes: [{name: a, resources: {}, cost_per_h: 2}]",
        ["at most max_cost_per_h, 1, not 2"],
    ),
    "floor above the ceiling": (ONE + "floor: 3\nmax_nodes: 2", ["at most max_nodes, 2, not 3"]),
    "utilisation of zero": (ONE + "utilisation: 0", ["more than 0"]),
    "utilisation above one": (ONE + "utilisation: 1.5", ["at most 1"]),
    "several problems": (ONE + "utilisation: 2\nfloor: -1", ["utilisation", "floor"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_scaling(case: str) -> None:
    text, expected = BAD[case]
    with pytest.raises(SpecError) as refused:
        load_scaling(text)
    problems = [str(problem) for problem in refused.value.problems]
    assert len(problems) == len(expected), problems
    for word in expected:
        assert any(word in problem for problem in problems), problems
