"""The balancers: rules that pick a node for each of a stream of small tasks.

All are pure: they change nothing but the `Memo` given, and draw from the random stream given. The
first five are from the source named in `scores`. Nodes of a total score of 0 are picked only where
no candidate has more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from headgate.base.arrays import Bools, Floats, Ints
from headgate.base.rng import Random
from headgate.planning.balancers.scores import Scores

_PER_UNIT = 2.0**20
"""Weights are rounded to this part of a unit: then sums of them are exact, and end at 0."""

Memo = dict[str, Floats]
"""What lasts from pick to pick: by name, a number for each node; 0 where none is stored."""


class Balancer(ABC):
    """A rule that picks a node among candidates."""

    name: str
    lasts = False
    """Whether it uses the memo; its entry there has the balancer's name."""
    draws = False
    """Whether it uses the random stream."""

    def pick(self, candidates: Ints, scores: Scores, rng: Random, memo: Memo) -> int:
        """Return the node for one task; ValueError without a candidate. O(nodes)."""
        return int(self.pick_many(candidates, scores, 1, rng, memo)[0])

    def pick_many(
        self, candidates: Ints, scores: Scores, count: int, rng: Random, memo: Memo
    ) -> Ints:
        """Return the nodes for `count` tasks that are placed before any score changes.

        They are those of as many calls of `pick`, except with `least-cost`, which knows how much
        later each node finishes with one more task. ValueError without a candidate.
        """
        if not len(candidates):
            raise ValueError("there is no candidate to pick")
        some = candidates[scores.total[candidates] > 0]
        return self._picks(some if len(some) else candidates, scores, count, rng, memo)

    @abstractmethod
    def _picks(self, candidates: Ints, scores: Scores, count: int, rng: Random, memo: Memo) -> Ints:
        """Return the nodes for `count` tasks, given at least one candidate."""


class _Drawn(Balancer):
    """A balancer that draws nodes by their chances."""

    draws = True

    @abstractmethod
    def chances(self, candidates: Ints, scores: Scores) -> Floats:
        """Return the probability of each candidate."""

    def _picks(self, candidates: Ints, scores: Scores, count: int, rng: Random, memo: Memo) -> Ints:
        del memo
        return _drawn(candidates, self.chances(candidates, scores), count, rng)


class RandomPick(_Drawn):
    """Any candidate, each with the same probability."""

    name = "random"

    def chances(self, candidates: Ints, scores: Scores) -> Floats:
        """Return the probability of each candidate."""
        del scores
        return _uniform(candidates)


@dataclass(frozen=True, slots=True)
class PickKx(_Drawn):
    """One of `k` sampled candidates, by the load of the others: X = (sum of loads - load) / sum.

    Uniform with one candidate or without load. By default all candidates are sampled.
    """

    k: int | None = None
    name = "pick-kx"

    def chances(self, candidates: Ints, scores: Scores) -> Floats:
        """Return the probability of each candidate, if all are sampled."""
        load = scores.load[candidates]
        others = load.sum() - load
        if others.sum() <= 0:
            return _uniform(candidates)
        share: Floats = others / others.sum()
        return share

    def _picks(self, candidates: Ints, scores: Scores, count: int, rng: Random, memo: Memo) -> Ints:
        del memo
        if self.k is None or self.k >= len(candidates):
            return _drawn(candidates, self.chances(candidates, scores), count, rng)
        picks = np.zeros(count, np.int64)
        for number in range(count):
            sampled = np.array(rng.sample(candidates.tolist(), self.k))
            picks[number] = _drawn(sampled, self.chances(sampled, scores), 1, rng)[0]
        return picks


class ResourcePickKx(_Drawn):
    """A candidate by its available resources; uniform where nothing is available."""

    name = "resource-pick-kx"

    def chances(self, candidates: Ints, scores: Scores) -> Floats:
        """Return the probability of each candidate."""
        available = np.maximum(scores.available[candidates], 0.0)
        if available.sum() <= 0:
            return _uniform(candidates)
        share: Floats = available / available.sum()
        return share


class RoundRobin(Balancer):
    """The candidate whose last turn is longest ago, the first of those that had none.

    With the same candidates each time, that is each of them in turn. The memo has the number of
    each node's last turn.
    """

    name = "round-robin"
    lasts = True

    def _picks(self, candidates: Ints, scores: Scores, count: int, rng: Random, memo: Memo) -> Ints:
        del rng
        turn = _memo_of(memo, self.name, len(scores.total))
        order = candidates[np.lexsort((candidates, turn[candidates]))]
        picks = np.resize(order, count)
        turn[picks] = turn.max(initial=0.0) + 1 + np.arange(count)  # the last of each one counts
        return picks


class SmoothWeighted(Balancer):
    """Smooth weighted round robin: nodes get turns by their total resources, evenly spread.

    Each time the current weight of every candidate grows by its total score; the largest is picked
    and reduced by the sum of the total scores of the candidates. The memo has the current weights.
    As long as the m candidates remain the same, a node's picks exceed its share by less than 1, and
    are at most 1/2 + 1/3 + ... + 1/m less. (After a pick, let A(k) be the largest average of k
    current weights, relative to the sum of scores. If the node picked is in that set, A(k) has not
    grown; else A(k) is at most A(k+1) + 1/(k+1), as that node had the largest weight. A(m) is 0.)
    """

    name = "swrr"
    lasts = True

    def _picks(self, candidates: Ints, scores: Scores, count: int, rng: Random, memo: Memo) -> Ints:
        del rng
        stored = _memo_of(memo, self.name, len(scores.total))
        weight = scores.total[candidates]
        if not weight.any():
            weight = np.ones(len(candidates))
        weight = np.maximum(np.rint(weight * _PER_UNIT), 1) / _PER_UNIT
        total, now = weight.sum(), stored[candidates]
        picks = np.zeros(count, np.int64)
        for number in range(count):
            now += weight
            best = now.argmax()
            now[best] -= total
            picks[number] = best
        stored[candidates] = now
        return candidates[picks]


class LeastCost(Balancer):
    """The candidate on which the task is predicted to finish first.

    Ties go to the node of which the largest part is available, then to the first.
    """

    name = "least-cost"

    def _picks(self, candidates: Ints, scores: Scores, count: int, rng: Random, memo: Memo) -> Ints:
        del rng, memo
        if scores.finish_s is None or scores.step_s is None:
            raise ValueError("least-cost needs the predicted finish of nodes")
        finish_s, step_s = scores.finish_s[candidates], scores.step_s[candidates]
        total = scores.total[candidates]
        free = np.divide(
            scores.available[candidates], total, out=np.zeros(len(total)), where=total > 0
        )
        most = _most_by_then(finish_s, step_s, count)
        node = np.repeat(np.arange(len(candidates)), most)
        nth = np.arange(len(node)) - np.repeat(np.cumsum(most) - most, most)
        at_s = finish_s[node] + nth * step_s[node]
        order = np.lexsort((node, nth, -free[node], at_s))
        return candidates[node[order[:count]]]


def _most_by_then(finish_s: Floats, step_s: Floats, count: int) -> Ints:
    """Return how many of `count` tasks each node may get, if the next one always finishes first.

    At least as many as it gets, and little more. O(nodes).
    """
    steps = np.where(np.isfinite(finish_s) & (step_s > 0), 1 / np.maximum(step_s, 1e-12), 0.0)
    if count == 1 or steps.sum() == 0 or (steps == 0).any():
        return np.full(len(finish_s), count)
    latest = finish_s.max() + count / steps.sum()
    bound = np.floor((latest - finish_s) * steps) + 2
    most: Ints = np.clip(bound, 0, count).astype(np.int64)
    return most


def _uniform(candidates: Ints) -> Floats:
    return np.full(len(candidates), 1 / len(candidates))


def _drawn(candidates: Ints, chances: Floats, count: int, rng: Random) -> Ints:
    """Draw `count` candidates, with one random number each; none whose probability is 0."""
    possible: Bools = chances > 0
    ends = np.cumsum(chances[possible])
    drawn = np.array([rng.random() for _ in range(count)]) * ends[-1]
    index = np.minimum(np.searchsorted(ends, drawn, side="right"), len(ends) - 1)
    picks: Ints = candidates[possible][index]
    return picks


def _memo_of(memo: Memo, name: str, nodes: int) -> Floats:
    """Return the numbers of a memo, `[nodes]`, to be changed in place; 0 for nodes without any."""
    known = memo.get(name)
    if known is None or len(known) < nodes:
        stored = np.zeros(nodes)
        if known is not None:
            stored[: len(known)] = known
        memo[name] = known = stored
    return known


BALANCERS: dict[str, Balancer] = {
    each.name: each
    for each in (
        RandomPick(),
        RoundRobin(),
        PickKx(),
        ResourcePickKx(),
        SmoothWeighted(),
        LeastCost(),
    )
}
"""All balancers by name, with their default parameters."""
