"""The laws of scorers on random nodes, and the packer that keeps their costs."""

from __future__ import annotations

import numpy as np
import pytest

from headgate.base.rng import Random, stream
from headgate.planning.packing import (
    BestFit,
    DotProduct,
    Fgd,
    FreeNodes,
    Future,
    GpuClustering,
    GpuPacking,
    Mix,
    Packer,
    PodDemand,
    Scorer,
    Uniform,
    choose,
    fits,
)

GIB = 1 << 30
DEMANDS = [
    PodDemand(cpu_milli=2000, memory_bytes=GIB, gpus=1, milli=300),
    PodDemand(cpu_milli=6000, memory_bytes=GIB, gpus=1, milli=500, models=frozenset({1})),
    PodDemand(cpu_milli=1000, memory_bytes=9 * GIB, gpus=1, milli=1000),
    PodDemand(cpu_milli=9000, gpus=2, milli=1000),
    PodDemand(gpus=2, milli=500),
    PodDemand(cpu_milli=1000, gpus=4, milli=1000),
    PodDemand(cpu_milli=8000, memory_bytes=GIB),
]
_COUNTS = {demand: 1 + n % 3 for n, demand in enumerate(DEMANDS)}
SCORERS: dict[str, Scorer] = {
    "uniform": Uniform(),
    "best-fit": BestFit(),
    "dot-product": DotProduct(),
    "gpu-packing": GpuPacking(),
    "gpu-clustering": GpuClustering(),
    "fgd": Fgd(Mix.of(_COUNTS)),
    "headgate": Future.of(
        _COUNTS, FreeNodes.empty([32_000] * 4, [64 * GIB] * 4, [1, 2, 4, 8], [0, 1, 0, 1])
    ),
}
EVERY = pytest.mark.parametrize("scorer", SCORERS.values(), ids=SCORERS)


def random_nodes(rng: Random) -> FreeNodes:
    """Return nodes of two models, on which some pods run."""
    count = rng.randint(1, 6)
    room = FreeNodes.empty(
        rng.choices((4000, 16_000, 32_000), k=count),
        rng.choices((8 * GIB, 64 * GIB), k=count),
        rng.choices((0, 1, 2, 4, 8), k=count),
        rng.choices((0, 1), k=count),
    )
    for demand in rng.choices(DEMANDS, k=rng.randint(0, 12)):
        place = choose(Uniform(), room, demand)
        if place is not None:
            room.take(place.node, place.slots, demand)
    return room


def contents(room: FreeNodes) -> list[object]:
    return [getattr(room, name).tolist() for name in room.__slots__]


@EVERY
def test_nodes_with_room_have_a_cost_and_a_gpu_with_room_and_no_others(scorer: Scorer) -> None:
    for seed in range(40):
        room = random_nodes(stream(seed, "scorers"))
        before = contents(room)
        for demand in DEMANDS:
            found = scorer.options(room, demand)
            assert np.isfinite(found.cost).tolist() == fits(room, demand).tolist(), (seed, demand)
            if demand.gpus == 1:
                rows = np.flatnonzero(np.isfinite(found.cost))
                assert (room.gpu[rows, found.slot[rows]] >= demand.milli).all(), (seed, demand)
        assert contents(room) == before, seed


@EVERY
def test_cost_of_a_node_does_not_depend_on_others(scorer: Scorer) -> None:
    for seed in range(40):
        rng = stream(seed, "scorers")
        room = random_nodes(rng)
        some = np.array(rng.sample(range(len(room)), rng.randint(1, len(room))))
        for demand in DEMANDS:
            every, alone = scorer.options(room, demand), scorer.options(room.rows(some), demand)
            assert alone.cost.tolist() == every.cost[some].tolist(), (seed, demand)
            has = np.isfinite(alone.cost)
            assert alone.slot[has].tolist() == every.slot[some][has].tolist(), (seed, demand)


@EVERY
def test_packer_places_as_if_all_nodes_were_ranked_for_each_pod(scorer: Scorer) -> None:
    missed = 0
    for seed in range(5):
        rng = stream(seed, "packer")
        kept = random_nodes(rng)
        fresh = kept.rows(np.arange(len(kept)))
        packer = Packer(kept, DEMANDS, scorer)
        for number in rng.choices(range(len(DEMANDS)), k=40):
            place, expected = packer.place(number), choose(scorer, fresh, DEMANDS[number])
            missed += expected is None
            assert (place is None) == (expected is None), seed
            if place is not None and expected is not None:
                fresh.take(expected.node, expected.slots, DEMANDS[number])
                assert (place.node, place.slots.tolist()) == (
                    expected.node, expected.slots.tolist(),
                )  # fmt: skip
        assert contents(kept) == contents(fresh), seed
        assert (kept.gpu >= 0).all()
        assert (kept.cpu_milli >= 0).all()
    assert 0 < missed < 5 * 40
