"""Balancers: published examples, distributions, smoothness, and bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.arrays import Floats
from headgate.base.errors import SpecError
from headgate.base.rng import stream
from headgate.planning.balancers import (
    WITHOUT_GPUS,
    Balancer,
    LeastCost,
    Memo,
    PickKx,
    RandomPick,
    ResourcePickKx,
    RoundRobin,
    Scores,
    SmoothWeighted,
    Weighting,
    predicted_finish_s,
    spill,
    wait_work_s,
)

TOTAL, LOAD = [5.0, 6.0, 7.0, 8.0], [3.0, 2.0, 1.0, 5.0]
CHI_SQUARE_999 = {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47, 5: 20.52}
"""The quantile 0.999 of the chi-square distribution, by degrees of freedom."""


def scores(
    total: list[float], load: list[float] | None = None, finish_s: list[float] | None = None
) -> Scores:
    held = np.array(load if load is not None else [0.0] * len(total))
    return Scores(
        total=np.array(total),
        available=np.maximum(np.array(total) - held, 0.0),
        load=held,
        finish_s=np.array(finish_s if finish_s is not None else [1.0] * len(total)),
        step_s=np.ones(len(total)),
    )


def nodes(count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.arange(count)


def assert_distributed(balancer: Balancer, given: Scores, chances: Floats) -> None:
    """Assert that picks have these probabilities, by a chi-square test."""
    draws, seeds = 400, 20
    count = np.zeros(len(chances))
    for seed in range(seeds):
        rng = stream(seed, "balancers")
        for node in balancer.pick_many(nodes(len(chances)), given, draws, rng, {}).tolist():
            count[node] += 1
    assert count[chances == 0].sum() == 0
    some = chances > 0
    expected = chances[some] * draws * seeds
    statistic = float(((count[some] - expected) ** 2 / expected).sum())
    assert statistic < CHI_SQUARE_999[int(some.sum()) - 1]


# --- the published examples --------------------------------------------------------------------


def test_pick_kx_has_the_probabilities_of_the_published_example() -> None:
    chances = PickKx().chances(nodes(4), scores(TOTAL, LOAD))
    assert chances == pytest.approx([8 / 33, 9 / 33, 10 / 33, 6 / 33])


def test_resource_pick_kx_has_the_probabilities_of_the_published_example() -> None:
    chances = ResourcePickKx().chances(nodes(4), scores(TOTAL, LOAD))
    assert chances == pytest.approx([2 / 15, 4 / 15, 6 / 15, 3 / 15])


def test_smooth_weighted_takes_the_step_of_the_published_example() -> None:
    memo = {"swrr": np.array([3.5, 2.4, 6.2, 5.8])}
    given = scores([4.7, 5.0, 3.9, 6.2])
    assert SmoothWeighted().pick(nodes(4), given, stream(0), memo) == 3
    assert memo["swrr"] == pytest.approx([8.2, 7.4, 10.1, -7.8])


# --- distributions -----------------------------------------------------------------------------


def test_random_picks_are_uniform() -> None:
    assert_distributed(RandomPick(), scores(TOTAL, LOAD), np.full(4, 0.25))


def test_pick_kx_picks_follow_the_load_of_the_others() -> None:
    assert_distributed(PickKx(), scores(TOTAL, LOAD), np.array([8, 9, 10, 6]) / 33)


def test_resource_pick_kx_picks_follow_what_is_available() -> None:
    assert_distributed(ResourcePickKx(), scores(TOTAL, LOAD), np.array([2, 4, 6, 3]) / 15)
    full = scores([4.0, 2.0, 4.0, 4.0], [4.0, 1.0, 9.0, 1.0])
    assert_distributed(ResourcePickKx(), full, np.array([0.0, 0.25, 0.0, 0.75]))


def test_pick_kx_of_two_sampled_nodes_averages_over_the_pairs() -> None:
    # of a pair, the chance of each is the load of the other, relative to both
    load = [1.0, 2.0, 3.0]
    chances = np.array([2 / 3 + 3 / 4, 1 / 3 + 3 / 5, 1 / 4 + 2 / 5]) / 3
    assert_distributed(PickKx(k=2), scores([5.0, 5.0, 5.0], load), chances)


@pytest.mark.parametrize("balancer", [PickKx(), PickKx(k=1), ResourcePickKx()])
def test_picks_are_uniform_where_the_formula_has_no_weights(balancer: Balancer) -> None:
    load = None if isinstance(balancer, PickKx) else [9.0, 9.0, 9.0]
    assert_distributed(balancer, scores([3.0, 5.0, 8.0], load), np.full(3, 1 / 3))


# --- turns -------------------------------------------------------------------------------------

WEIGHTS = st.lists(st.integers(1, 40), min_size=1, max_size=7)


@given(WEIGHTS)
def test_smooth_weighted_gives_exact_shares_over_its_cycle(weights: list[int]) -> None:
    memo: Memo = {}
    given = scores([float(each) for each in weights])
    cycle = sum(weights)
    picks = SmoothWeighted().pick_many(nodes(len(weights)), given, cycle, stream(0), memo)
    assert np.bincount(picks, minlength=len(weights)).tolist() == weights
    assert not memo["swrr"].any()


@given(WEIGHTS)
def test_smooth_weighted_is_near_each_share_in_every_window(weights: list[int]) -> None:
    given, count = scores([float(each) for each in weights]), 2 * sum(weights)
    picks = SmoothWeighted().pick_many(nodes(len(weights)), given, count, stream(0), {})
    share = np.array(weights) / sum(weights)
    picked = np.cumsum(picks[:, None] == nodes(len(weights)), axis=0)
    ahead = np.vstack([np.zeros(len(weights)), picked - np.arange(1, count + 1)[:, None] * share])
    behind = sum(1 / k for k in range(2, len(weights) + 1))
    assert ahead.max() < 1 + 1e-9
    assert ahead.min() > -behind - 1e-9
    windows = ahead.max(axis=0) - ahead.min(axis=0)  # the worst window of each node
    assert windows.max() < 1 + behind + 1e-9


def test_smooth_weighted_spreads_the_turns_of_a_large_node() -> None:
    picks = SmoothWeighted().pick_many(nodes(3), scores([5.0, 1.0, 1.0]), 7, stream(0), {})
    assert picks.tolist() == [0, 0, 1, 0, 2, 0, 0]


def test_smooth_weighted_needs_nothing_available() -> None:
    given = scores([2.0, 1.0], [9.0, 9.0])
    picks = SmoothWeighted().pick_many(nodes(2), given, 3, stream(0), {})
    assert np.bincount(picks).tolist() == [2, 1]


def test_round_robin_continues_after_its_last_turn_with_other_candidates() -> None:
    memo, given, balancer = dict[str, Floats](), scores([1.0] * 4), RoundRobin()
    first = [balancer.pick(nodes(4), given, stream(0), memo) for _ in range(6)]
    assert first == [0, 1, 2, 3, 0, 1]
    assert balancer.pick(np.array([0, 1, 3]), given, stream(0), memo) == 3
    assert balancer.pick(nodes(4), given, stream(0), memo) == 2


# --- least cost --------------------------------------------------------------------------------


def test_least_cost_picks_the_first_finish_then_balance() -> None:
    balancer = LeastCost()
    given = scores([4.0, 4.0, 8.0], [0.0, 0.0, 4.0], [3.0, 2.0, 2.0])
    assert balancer.pick(nodes(3), given, stream(0), {}) == 1  # wholly available
    assert balancer.pick(np.array([0, 2]), given, stream(0), {}) == 2


@given(
    st.lists(
        st.tuples(st.floats(0, 50), st.floats(0.01, 9), st.integers(0, 4)), min_size=1, max_size=6
    ),
    st.integers(1, 60),
)
def test_least_cost_places_many_as_one_after_the_other(
    each: list[tuple[float, float, int]], count: int
) -> None:
    finish_s, step_s, load = (np.array(column) for column in zip(*each, strict=True))
    given = Scores(
        total=np.full(len(each), 4.0),
        available=4.0 - load,
        load=load,
        finish_s=finish_s,
        step_s=step_s,
    )
    many = LeastCost().pick_many(nodes(len(each)), given, count, stream(0), {})
    placed = np.bincount(many, minlength=len(each))
    last_s = (finish_s + (placed - 1) * step_s)[placed > 0].max()
    assert placed.sum() == count
    assert (finish_s + placed * step_s >= last_s - 1e-9).all()  # no task would finish earlier


def test_predicted_finish_counts_the_work_ahead_only_without_room() -> None:
    waits_s = wait_work_s(np.array([[4, 8], [2, 0]]), np.array([[8.0, 40.0], [6.0, 9.0]]))
    assert waits_s.tolist() == [5.0, 3.0]
    finish_s = predicted_finish_s(
        work_s=2.0,
        waits_s=waits_s,
        has_room=np.array([True, False]),
        speed=np.array([0.5, 2.0]),
        read_s=np.array([0.0, 1.0]),
    )
    assert finish_s.tolist() == [4.0, 3.5]


# --- scores and candidates ---------------------------------------------------------------------


def test_scores_divide_each_kind_by_the_largest_node() -> None:
    total = np.array([[16, 4, 64 << 30], [32, 0, 128 << 30]])
    given = Scores.of(total, total // 2, Weighting(0.25, 0.75))
    assert given.total.tolist() == pytest.approx([0.9 * (0.125 + 0.75) + 0.05, 0.9 * 0.25 + 0.1])
    assert given.load.tolist() == pytest.approx((given.total / 2).tolist())
    in_gib = Scores.of(total / [1, 1, 1 << 30], total // 2 / [1, 1, 1 << 30], Weighting(0.25, 0.75))
    assert in_gib.total.tolist() == pytest.approx(given.total.tolist())


def test_scores_of_a_kind_that_no_node_has_are_zero() -> None:
    given = Scores.of(np.array([[4, 0, 0], [8, 0, 0]]), np.zeros((2, 3)), WITHOUT_GPUS)
    assert given.total.tolist() == pytest.approx([0.45, 0.9])


def test_load_may_exceed_the_total_and_leaves_nothing_available() -> None:
    given = Scores.of(np.array([[4, 0, 0]]), np.array([[12, 0, 0]]), WITHOUT_GPUS)
    assert given.load.tolist() == pytest.approx([2.7])
    assert given.available.tolist() == [0.0]


@pytest.mark.parametrize(
    ("alpha", "beta", "problem"),
    [(0.5, 0.6, "1.1"), (-0.5, 1.5, "alpha"), (0.2, math.nan, "beta")],
)
def test_weights_that_do_not_add_up_are_an_error(alpha: float, beta: float, problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        Weighting(alpha, beta)


def test_spill_goes_local_then_to_available_then_to_any_that_could_hold_it() -> None:
    total = np.array([[4, 1], [8, 0], [8, 2]])
    available = np.array([[2, 0], [4, 0], [1, 2]])
    assert spill(total, available, np.array([2, 0]), local=0).tolist() == [0]
    assert spill(total, available, np.array([4, 0]), local=0).tolist() == [1]
    assert spill(total, available, np.array([2, 0])).tolist() == [0, 1]
    assert spill(total, available, np.array([4, 1]), local=0).tolist() == [0, 2]
    assert spill(total, available, np.array([9, 0]), local=0).tolist() == []
