"""The laws of balancers, for each of them, on random nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest

from headgate.base.arrays import Ints
from headgate.base.rng import stream
from headgate.planning.balancers import BALANCERS, Balancer, LeastCost, Memo, PickKx, Scores

ALL = (*BALANCERS.values(), PickKx(k=1), PickKx(k=2))
SEEDS = range(80)
COUNT = 20
"""How many picks are made together."""


class Case(NamedTuple):
    """Random nodes, some of which have no capacity, and which of them are candidates."""

    balancer: Balancer
    seed: int
    candidates: Ints
    scores: Scores
    memo: Memo

    @classmethod
    def of(cls, balancer: Balancer, seed: int) -> Case:
        """Return a case; of what lasts of the balancer, the numbers of some nodes are known."""
        rng = stream(seed, "balancers")
        count = rng.randint(1, 6)
        total = np.array(rng.choices((0.0, 1.0, 2.0, 3.5, 8.0), k=count))
        load = np.array(rng.choices((0.0, 0.0, 1.0, 2.0, 9.0), k=count))
        known = np.array(rng.choices((-3.0, 0.0, 2.0), k=rng.randint(0, count)))
        return cls(
            balancer=balancer,
            seed=seed,
            candidates=np.array(sorted(rng.sample(range(count), rng.randint(1, count)))),
            scores=Scores(
                total=total,
                available=np.maximum(total - load, 0.0),
                load=load,
                finish_s=np.array(rng.choices((0.0, 1.0, 1.0, 4.0), k=count)),
                step_s=np.array(rng.choices((0.5, 1.0, 3.0), k=count)),
            ),
            memo={balancer.name: known} if balancer.lasts else {},
        )

    def picks(self, stream_of: str = "picks") -> list[int]:
        rng = stream(self.seed, stream_of)
        picks = self.balancer.pick_many(self.candidates, self.scores, COUNT, rng, self.memo)
        return list(picks.tolist())

    def listed(self) -> list[object]:
        """Return all that a balancer is given."""
        scores = [getattr(self.scores, name).tolist() for name in self.scores.__slots__]
        return [self.candidates.tolist(), scores, self.remembered()]

    def remembered(self) -> dict[str, list[float]]:
        return {name: values.tolist() for name, values in self.memo.items()}


def cases() -> Iterator[Case]:
    for balancer in ALL:
        for seed in SEEDS:
            yield Case.of(balancer, seed)


def test_picks_are_candidates_and_have_capacity_if_any_candidate_has() -> None:
    for case in cases():
        have = {node for node in case.candidates.tolist() if case.scores.total[node]}
        picks = case.picks()
        assert len(picks) == COUNT
        assert set(picks) <= (have or {*case.candidates.tolist()}), case


def test_equal_questions_get_equal_picks_and_nothing_but_the_own_memo_changes() -> None:
    for case in cases():
        again, before = Case.of(case.balancer, case.seed), case.listed()
        assert (case.picks(), case.remembered()) == (again.picks(), again.remembered()), case
        assert case.listed()[:-1] == before[:-1], case
        assert set(case.memo) == ({case.balancer.name} if case.balancer.lasts else set()), case


def test_picks_depend_on_the_stream_where_the_balancer_says_that_it_draws() -> None:
    differ = dict.fromkeys(ALL, False)
    for case in cases():
        differ[case.balancer] |= case.picks("one") != Case.of(case.balancer, case.seed).picks("two")
    assert differ == {each: each.draws for each in ALL}


def test_many_picks_are_those_of_single_ones() -> None:
    """Except with least-cost, which counts what it has placed."""
    for case in cases():
        if isinstance(case.balancer, LeastCost):
            continue
        one, rng = Case.of(case.balancer, case.seed), stream(case.seed, "picks")
        singly = [
            one.balancer.pick(one.candidates, one.scores, rng, one.memo) for _ in range(COUNT)
        ]
        assert case.picks() == singly, case
        assert case.remembered() == one.remembered(), case


def test_what_lasts_has_a_number_for_each_node_also_for_those_that_have_joined() -> None:
    for case in cases():
        case.picks()
        for values in case.memo.values():
            assert len(values) == len(case.scores.total), case


def test_without_a_candidate_there_is_nothing_to_pick() -> None:
    for balancer in ALL:
        case = Case.of(balancer, 0)
        with pytest.raises(ValueError, match="no candidate"):
            balancer.pick_many(case.candidates[:0], case.scores, 1, stream(0), case.memo)
