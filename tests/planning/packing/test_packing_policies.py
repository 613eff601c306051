"""Packing: costs of each policy on cases computed by hand, and the packer that keeps them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from headgate.base.rng import stream
from headgate.planning.packing import (
    BestFit,
    DotProduct,
    Fgd,
    FreeNodes,
    Future,
    GpuClustering,
    GpuPacking,
    Learnt,
    Mix,
    Packer,
    PodDemand,
    Scorer,
    Uniform,
    choose,
    fits,
    fragment_milli,
    typical,
)

GIB = 1 << 30


def nodes(*gpus: int, cpus: int = 64, memory: int = 256, model: int = 0) -> FreeNodes:
    """Return idle nodes with these numbers of GPUs."""
    count = len(gpus)
    return FreeNodes.empty([cpus * 1000] * count, [memory * GIB] * count, gpus, [model] * count)


def pod(gpus: int = 1, milli: int = 1000, cpus: float = 1, memory: float = 1) -> PodDemand:
    return PodDemand(
        cpu_milli=round(1000 * cpus), memory_bytes=round(memory * GIB), gpus=gpus, milli=milli
    )


def cost(scorer: Scorer, room: FreeNodes, demand: PodDemand) -> list[float]:
    return [round(float(value), 6) for value in scorer.options(room, demand).cost]


def test_pod_fits_where_cpus_memory_gpus_and_model_suffice() -> None:
    room = FreeNodes.empty([8000] * 4, [8 * GIB] * 4, [1, 2, 2, 2], [0, 0, 0, 1])
    room.gpu[2] = [400, 600]
    demand = PodDemand(
        cpu_milli=8000, memory_bytes=8 * GIB, gpus=2, milli=500, models=frozenset({0})
    )
    assert fits(room, demand).tolist() == [False, True, False, False]
    assert not fits(room, PodDemand(cpu_milli=8001)).any()
    assert not fits(room, PodDemand(memory_bytes=8 * GIB + 1)).any()


def test_pod_for_models_that_no_node_has_fits_nowhere() -> None:
    demand = PodDemand(gpus=1, milli=10, models=frozenset())
    assert not fits(nodes(8), demand).any()
    assert choose(BestFit(), nodes(8), demand) is None


def test_several_gpus_are_those_with_the_least_free_that_have_enough() -> None:
    room = nodes(4)
    room.gpu[0] = [1000, 300, 500, 700]
    found = choose(BestFit(), room, pod(2, 500))
    assert found is not None
    assert found.slots.tolist() == [2, 3]


def test_best_fit_takes_the_node_with_the_least_left() -> None:
    room = nodes(8, 4)
    # half of what is left of 128 CPUs, and half of what is left of 8 GPUs: 56.25 and 31.25 %
    assert cost(BestFit(), room, pod(cpus=32)) == [57, 32]
    assert cost(BestFit(), room, pod(cpus=0)) == [69, 44]
    assert cost(BestFit(), room, pod(2, cpus=0)) == [63, 38]  # 62.5 and 37.5 %


def test_dot_product_takes_the_node_with_the_least_product_of_free_and_asked() -> None:
    room = nodes(8, 4)
    room.cpu_milli[1] = 128_000
    # asked: 1/4 of the CPUs, 1/4 of the GPUs; free: half and all, all and a quarter
    room.gpu[1, 2:4] = 0
    assert cost(DotProduct(), room, pod(2, cpus=32)) == [19, 16]  # 18.75 and 15.625 %


def test_gpu_packing_prefers_shared_gpus_then_used_nodes_then_idle_ones() -> None:
    room = nodes(2, 2, 2, 2, 1)
    room.gpu[0] = [500, 1000]
    room.gpu[1] = [700, 1000]
    room.gpu[2] = [200, 1000]
    found = cost(GpuPacking(), room, pod(1, 400))
    assert sorted(range(5), key=found.__getitem__) == [0, 1, 2, 4, 3]


def test_gpu_clustering_prefers_nodes_with_pods_of_the_same_kind_alone() -> None:
    room = nodes(2, 2, 2, 2)
    room.take(0, np.array([0]), pod(1, 500))
    room.take(1, np.array([0]), pod(1, 300))
    room.take(1, np.array([1]), pod(1))
    room.take(2, np.array([0]), pod(1))
    found = cost(GpuClustering(), room, pod(1, 200))
    assert sorted(range(4), key=found.__getitem__) == [0, 1, 3, 2]


def test_fragments_are_what_a_pod_of_the_mix_cannot_use() -> None:
    mix = Mix.of({pod(1, 600): 1, pod(1, 200, cpus=100): 2, pod(0, 0): 1})
    room = nodes(2)
    room.gpu[0] = [1000, 500]
    # 600: the second GPU is too small; 200: no CPUs; without GPUs: all is a fragment
    assert fragment_milli(room, mix).tolist() == [500 / 4 + 1500 / 2 + 1500 / 4]


def test_fgd_takes_the_gpu_where_fragmentation_grows_least() -> None:
    mix = Mix.of({pod(1, 500): 1, pod(1): 1})
    room = nodes(2)
    room.gpu[0] = [500, 1000]
    # first GPU: fragments fall from 250 to 0; second: they rise to 500
    found = Fgd(mix).options(room, pod(1, 500))
    assert found.slot.tolist() == [0]
    assert found.cost.tolist() == [-np.floor(100 / (1 + np.exp(-0.25)))]


def test_typical_pods_are_the_most_frequent() -> None:
    counts = {pod(1): 90, pod(2): 6, pod(4): 4}
    assert typical(counts, 0.95) == {pod(1): 90, pod(2): 6}


def test_random_ties_are_drawn_among_nodes_and_gpus_with_room() -> None:
    room = nodes(2, 2, cpus=1000)
    packer = Packer(room, [pod(1, 10, 0)], Uniform(), ties=stream(3, "ties"))
    taken = Counter((p.node, int(p.slots[0])) for _ in range(40) if (p := packer.place(0)))
    assert set(taken) == {(0, 0), (0, 1), (1, 0), (1, 1)}


# --- the policy that keeps what nodes are worth ---------------------------------------------------


def test_share_takes_the_free_part_that_is_worth_nothing_else() -> None:
    room = nodes(3)
    room.gpu[0] = [400, 600, 1000]
    future = Future.of({pod(1, 600): 2, pod(1, 400): 1, pod(1): 1}, room)
    assert future.options(room, pod(1, 400)).slot.tolist() == [0]
    assert future.options(room, pod(1, 600)).slot.tolist() == [1]


@pytest.mark.parametrize(("leave", "slot"), [(False, 1), (True, 0)])
def test_share_breaks_a_whole_gpu_for_better_parts_only_where_pods_stay(
    leave: bool, slot: int
) -> None:
    room = nodes(2)
    room.gpu[0, 0] = 530  # worth a 470; beside a 320, 680 of a whole one are worth two more
    future = Future.of({pod(1, 470): 4, pod(1, 320): 2, pod(1): 6}, room, leave=leave)
    assert future.options(room, pod(1, 320)).slot.tolist() == [slot]


def test_pod_without_gpus_takes_cpus_that_no_gpu_needs() -> None:
    room = FreeNodes.empty([16_000, 64_000], [256 * GIB] * 2, [2, 2], [0, 0])
    future = Future.of({pod(1, 1000, 10): 3, pod(0, 0, 8): 1}, room)
    found = cost(future, room, pod(0, 0, 8))
    assert found[0] > found[1] == 0


def test_pod_with_few_cpus_takes_the_node_where_cpus_are_short() -> None:
    counts = {pod(1, 1000, 2): 1, pod(1, 1000, 14): 1}
    room = FreeNodes.empty([64_000, 32_000], [256 * GIB] * 2, [4, 8], [0, 0])
    future = Future.of(counts, room)
    light, heavy = cost(future, room, pod(1, 1000, 2)), cost(future, room, pod(1, 1000, 14))
    assert light[1] < light[0]
    assert heavy[0] < heavy[1]


def test_single_gpus_are_taken_where_no_whole_set_breaks() -> None:
    room = nodes(8, 8)
    room.take(1, np.array([0]), pod(1))
    future = Future.of({pod(1): 9, pod(8, cpus=8): 1}, room)
    assert choose(future, room, pod(1)).node == 1


def test_the_fewer_whole_sets_the_more_each_is_worth() -> None:
    counts = {pod(1): 90, pod(8, cpus=8): 1}
    many, few = Future.of(counts, nodes(*[8] * 12)), Future.of(counts, nodes(8, 8, *[4] * 20))
    assert cost(few, nodes(8), pod(1))[0] > cost(many, nodes(8), pod(1))[0] > 0


def test_node_is_worth_nothing_for_pods_that_do_not_fit_on_it() -> None:
    room = nodes(8, 8, cpus=96)
    room.take(1, np.array([0]), pod(1))
    wide = FreeNodes.empty([128_000], [256 * GIB], [8], [0])
    future = Future.of({pod(1): 9, pod(8, cpus=120): 9}, wide)
    broken, other = cost(future, room, pod(1))
    assert broken == other


def test_scarce_model_is_left_even_where_a_pod_fills_a_gpu_there() -> None:
    needs = PodDemand(cpu_milli=1000, memory_bytes=GIB, gpus=1, milli=600, models=frozenset({1}))
    room = FreeNodes.empty([64_000] * 5, [256 * GIB] * 5, [1, 8, 8, 8, 8], [1, 0, 0, 0, 0])
    room.gpu[0] = 600
    future = Future.of({pod(1, 600): 9, pod(1, 400): 9, needs: 3}, room)
    assert choose(future, room, pod(1, 600)).node == 1
    assert choose(future, room, needs).node == 0


def test_models_that_some_pods_need_are_left_to_them() -> None:
    needs = PodDemand(cpu_milli=1000, gpus=1, milli=1000, models=frozenset({1}))
    room = FreeNodes.empty([8000] * 2, [GIB * 64] * 2, [2, 2], [1, 0])
    future = Future.of({pod(1): 3, needs: 1}, room)
    assert choose(future, room, pod(1)).node == 1
    assert choose(future, room, needs).node == 0


def test_mix_without_gpus_has_no_preference() -> None:
    assert cost(Future.of({pod(0, 0): 1}, nodes(1, 2)), nodes(1, 2), pod(0, 0)) == [0, 0]


@pytest.mark.parametrize("seed", range(20))
def test_what_a_demand_is_worth_is_spread_over_what_it_can_use(seed: int) -> None:
    rng = stream(seed, "spread")
    count = rng.randint(1, 6)
    room = FreeNodes.empty(
        [64_000] * count, [256 * GIB] * count, rng.choices((0, 1, 4), k=count),
        rng.choices((0, 1, 2), k=count),
    )  # fmt: skip
    room.gpu[...] = [[min(g, rng.choice((0, 300, 1000))) for g in row] for row in room.gpu.tolist()]
    named = [None, frozenset({0}), frozenset({1, 2}), frozenset({3})]
    counts = {PodDemand(gpus=1, milli=1000, models=m): rng.randint(1, 9) for m in named}
    whole = [int((row == 1000).sum()) * 1000 for row in room.gpu]
    scale = int(room.gpu.sum()) / (1000 * sum(counts.values()))
    expected = [0.0] * count
    for demand, number in counts.items():
        on = [n for n in range(count) if demand.models is None or room.model[n] in demand.models]
        usable = sum(whole[n] for n in on)
        for node in on:
            expected[node] += scale * number * 1000 * whole[node] / usable if usable else 0.0
    assert Future.of(counts, room).worth(room).tolist() == pytest.approx(expected)


def test_policy_is_learnt_again_when_pods_have_doubled() -> None:
    learnt = Learnt(nodes(2, 4))
    changed = [n for n in range(1, 20) if learnt.arrived(pod(1)) is not None]
    assert changed == [1, 2, 4, 8, 16]


def test_policy_is_learnt_again_when_a_quarter_of_the_free_gpus_is_taken() -> None:
    room = nodes(4, 4, 4, 4, 4)
    learnt, changed = Learnt(room, growth=1e9), []
    for number in range(20):
        room.take(number // 4, np.array([number % 4]), pod(1))
        if learnt.arrived(pod(1)) is not None:
            changed.append(19 - number)
    assert changed == [19, 14, 10, 7, 5, 3, 2, 1, 0]


def test_learnt_policy_is_that_of_the_pods_that_have_arrived() -> None:
    room = nodes(2, 4)
    learnt = Learnt(room)
    pods = [pod(1, 400), pod(1, 600), pod(1), pod(1, 600)]
    last = [learnt.arrived(demand) for demand in pods][-1]
    assert last is not None
    assert cost(last, room, pod(1, 400)) == cost(Future.of(Counter(pods), room), room, pod(1, 400))
