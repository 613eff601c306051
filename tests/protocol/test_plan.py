"""Steps in columns: equal to the groups they were built from; inconsistent columns are rejected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.protocol import Group, Start, Step, Steps, Stop
from headgate.protocol.plan import Starts
from headgate.protocol.reasons import PreemptedFor

STEP = st.one_of(
    st.builds(Start, st.integers(0, 99), st.integers(0, 9), st.tuples(st.integers(0, 7))),
    st.builds(Start, st.integers(0, 99), st.integers(0, 9), st.just(())),
    st.builds(Start, st.integers(0, 99), st.integers(0, 9), st.just((3, 1, 2))),
    st.builds(Stop, st.integers(0, 99)),
)
REASON = st.sampled_from([None, PreemptedFor(job="j"), PreemptedFor(job="k")])
GROUPS = st.lists(st.builds(Group, st.lists(STEP, min_size=1, max_size=4).map(tuple), REASON))


def sorted_steps(group: Group) -> Group:
    """Return a group with its starts before its stops, as columns keep them."""
    return Group(tuple(sorted(group.steps, key=lambda s: isinstance(s, Stop))), group.reason)


@given(groups=GROUPS)
def test_steps_yield_the_groups_that_they_were_built_from(groups: list[Group]) -> None:
    steps = Steps.of(groups)
    assert list(steps) == [sorted_steps(group) for group in groups]
    assert (len(steps), steps.groups) == (sum(len(g.steps) for g in groups), len(groups))
    assert steps == Steps.of(list(steps))


@given(first=GROUPS, second=GROUPS)
def test_steps_add_up_group_after_group(first: list[Group], second: list[Group]) -> None:
    assert Steps.of(first) + Steps.of(second) == Steps.of(first + second)


@given(data=st.data(), groups=GROUPS)
def test_some_of_the_groups_keep_their_order_and_reasons(
    data: st.DataObject, groups: list[Group]
) -> None:
    chosen = data.draw(st.lists(st.booleans(), min_size=len(groups), max_size=len(groups)))
    kept = [group for group, stays in zip(groups, chosen, strict=True) if stays]
    assert Steps.of(groups).only(np.array(chosen, bool)) == Steps.of(kept)


def test_a_bare_step_is_a_group_of_its_own_and_empty_groups_are_left_out() -> None:
    bare: list[Group | Step] = [Start(1, 0, ()), Group((), PreemptedFor(job="j")), Stop(2)]
    assert list(Steps.of(bare)) == [Group((Start(1, 0, ()),)), Group((Stop(2),))]


def test_columns_of_single_gpus_are_starts_one_by_one() -> None:
    task, node, gpu = np.array([5, 6]), np.array([0, 1], np.int32), np.array([2, 0])
    assert Steps.one_gpu_each(task, node, gpu) == Steps.of([Start(5, 0, (2,)), Start(6, 1, (0,))])


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"node": np.array([1])}, "starts.node: 1 values, not 2"),
        ({"node": np.array([1.5, 2.0])}, "starts.node: not a one-dimensional array of int64"),
        ({"task": [1, 2]}, "starts.task: not a one-dimensional array of int64"),
        ({"group": np.array([[0], [1]])}, "starts.group: not a one-dimensional array of int64"),
        ({"gpu_offset": np.array([0, 2])}, "starts.gpu_offset: 2 values, not 3"),
        ({"gpu_offset": np.array([0, 3, 2])}, "starts.gpu_offset: does not ascend from 0 to 2"),
        ({"gpu_offset": np.array([1, 1, 2])}, "starts.gpu_offset: does not ascend from 0 to 2"),
        ({"gpu": np.array([0])}, "starts.gpu_offset: does not ascend from 0 to 1"),
        ({"group": np.array([0, 2])}, "starts.group: not between 0 and 1"),
        ({"group": np.array([-1, 0])}, "starts.group: not between 0 and 1"),
    ],
)
def test_inconsistent_columns_are_rejected(wrong: dict[str, Any], says: str) -> None:
    right = {
        "task": np.array([1, 2]), "node": np.array([0, 0]), "gpu_offset": np.array([0, 1, 2]),
        "gpu": np.array([0, 1]), "group": np.array([0, 1]),
    }  # fmt: skip
    assert len(Steps(starts=Starts(**right))) == 2
    with pytest.raises(ValueError, match=says):
        Steps(starts=Starts(**{**right, **wrong}))


@pytest.mark.parametrize("number", [-1, 1])
def test_the_only_start_of_a_plan_is_rejected_in_a_group_that_does_not_exist(number: int) -> None:
    starts = Starts.of([Start(1, 0, (0,))], [number])
    with pytest.raises(ValueError, match=r"starts\.group: not between 0 and 0"):
        Steps(starts=starts)
