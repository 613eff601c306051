"""The closed-minimum paper's experiment: the split of times, streams of jobs, and its pieces."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.app import POLICIES
from headgate.experiments.closed_partition import large, live, runs, traces
from headgate.experiments.closed_partition.guarantee import guarantee
from headgate.experiments.closed_partition.kernels import KERNELS, SIZES, published_mean_s
from headgate.experiments.closed_partition.machine import Jobs, machine
from headgate.experiments.closed_partition.stream import StreamJob, run_stream
from headgate.experiments.closed_partition.training import trainings
from headgate.model import Communication, Pattern
from headgate.model.topology import Tree
from headgate.planning.place.choose import ClosedMinimum, Sequential

A, B, C = SIZES
NOTHING = Communication()
TREE = Tree.uniform((2, 4), (1e9, 1e9))


def job(at: float, leaves: int, run_s: float, sent: Communication = NOTHING) -> StreamJob:
    return StreamJob(submitted_at=at, leaves=leaves, run_s=run_s, communication=sent)


# --- the split of the published times ------------------------------------------------------------


def test_published_means_of_kernels_add_up_to_those_of_the_sets() -> None:
    means_s = [published_mean_s(size) for size in SIZES]

    assert means_s == pytest.approx([7.494, 12.313, 14.326], abs=1e-3)
    assert [size.nodes for size in SIZES] == [1, 2, 6]


def test_split_leaves_least_communication_to_ep_and_most_to_is() -> None:
    parts = {k.name: k.rest_s(C) / k.published_s(C) for k in KERNELS}

    assert all(k.rest_s(A) == pytest.approx(0) for k in KERNELS)
    assert min(parts, key=lambda name: parts[name]) == "EP"
    assert max(parts, key=lambda name: parts[name]) == "IS"
    assert parts["EP"] == pytest.approx(0.047, abs=0.003)
    assert parts["IS"] == pytest.approx(0.726, abs=0.003)


def test_calibrated_means_under_sequential_placement_are_the_published_ones() -> None:
    split = runs.calibrate(runs.DEFAULT, jobs=32)

    for size in (B, C):
        for kernel in KERNELS:
            compute_s, sent_s = split[kernel.name, size.name]
            assert compute_s == pytest.approx(kernel.compute_s(size))
            assert 0 < sent_s <= kernel.rest_s(size) * 1.001
        means_s = runs._means(runs.DEFAULT, size, split, 32)
        ours = sum(means_s.values()) / len(means_s)
        assert ours == pytest.approx(published_mean_s(size), rel=0.02)


def test_stream_of_a_set_has_all_kernels_equally_often_among_other_users() -> None:
    split = {(k.name, s.name): (k.compute_s(s), k.rest_s(s)) for k in KERNELS for s in SIZES}
    drawn = Jobs(machine(), split, runs.DEFAULT.load).draw(C, 24, seed=1)

    own = [job for job in drawn if job.measured]
    assert sorted(job.kind for job in own) == sorted([k.name for k in KERNELS] * 3)
    assert {job.leaves for job in own} == {6}
    assert {job.leaves for job in drawn if not job.measured} <= set(range(1, 9))
    assert all(a.submitted_at <= b.submitted_at for a, b in itertools.pairwise(drawn))


# --- streams -------------------------------------------------------------------------------------


def test_jobs_that_share_a_link_take_longer_until_one_ends() -> None:
    """Both send all the time over the link between the groups: each gets half of it."""
    sends = Communication(pattern=Pattern.RING, bytes_per_step=10**9)
    jobs = [job(0, 3, 1), job(0, 2, 4, sends), job(1, 4, 4, sends)]

    outcome = run_stream(TREE, jobs, runs.place_with(Sequential(), TREE))

    assert [ran.diameter for ran in outcome.ran] == [2, 4, 4]
    assert outcome.ran[1].run_s == pytest.approx(7), "alone for 1 s, then 3 s at half speed"
    assert outcome.ran[2].run_s == pytest.approx(7), "3 s in 6 s, then 1 s alone"
    assert outcome.shared_links == 0, "they share none before the last submission"


def test_jobs_wait_in_order_for_closed_sets() -> None:
    jobs = [job(0, 3, 5), job(0, 3, 7), job(1, 2, 1), job(2, 1, 1)]

    outcome = run_stream(TREE, jobs, runs.place_with(ClosedMinimum(otherwise="wait"), TREE))

    assert [ran.started_at for ran in outcome.ran] == pytest.approx([0, 0, 5, 6])
    assert [ran.diameter for ran in outcome.ran] == [2, 2, 2, 0]
    assert outcome.utilisation == pytest.approx(6 / 8)


def test_training_on_four_servers_is_slower_the_narrower_their_links() -> None:
    ratios = [training.ratio for training in trainings()]

    assert ratios == sorted(ratios)
    assert ratios[0] < 0.5
    assert ratios[-1] <= 1


def test_jobs_of_powers_of_two_always_get_their_best_subtree_after_moves() -> None:
    found = guarantee(jobs=60)

    assert (found.jobs, found.failed) == (60, 0)
    assert found.moves >= found.after_moves > 0


# --- large machines and recorded jobs ------------------------------------------------------------


@pytest.mark.parametrize("shape", [large.TREE, large.MESH])
def test_closed_minimum_sets_share_fewer_links_on_a_large_machine(shape: str) -> None:
    rows = {
        placer: large.measure(large.LargeRun(shape=shape, levels=4, placer=placer), {4: 90})
        for placer in (runs.SEQUENTIAL, runs.CLOSED, runs.CLOSED_OR_WAIT)
    }

    before, after = rows[runs.SEQUENTIAL], rows[runs.CLOSED]
    assert after.shared_links < before.shared_links
    assert after.diameter < before.diameter
    assert rows[runs.CLOSED_OR_WAIT].shared_links == 0


def test_recorded_jobs_spread_less_with_best_fit_than_with_first_fit(tmp_path: Path) -> None:
    count = 60
    table = {
        "job_id": list(range(count)),
        "submit_s": [60.0 * n for n in range(count)],
        "duration_s": [600.0 + 300 * (n % 5) for n in range(count)],
        "gpus": [1 + (5 * n) % 8 for n in range(count)],
        "vc": ["v"] * count,
    }
    pq.write_table(pa.table(table), tmp_path / "own.parquet")
    recorded = traces.Recorded(file="own.parquet", vc="v", gpus=64)
    rows = {}
    for place in (traces.FIRST_FIT, traces.BEST_FIT):
        variant = traces.TraceVariant(policy="fifo", place=place)
        what = traces.TraceRun(directory=tmp_path, recorded=recorded, variant=variant)
        rows[place] = traces.measure(what, dict(POLICIES))

    first, best = rows[traces.FIRST_FIT], rows[traces.BEST_FIT]
    assert first["jobs"] == best["jobs"] == count
    assert best["mean_slowdown"] < first["mean_slowdown"]
    assert 0 < best["fragmentation"] < 1


# --- live ----------------------------------------------------------------------------------------


def test_live_jobs_get_a_rack_each_only_by_closed_minimum_placement() -> None:
    assert live.placed(runs.SEQUENTIAL) == {"first": (3, 4, 5, 6), "second": (0, 1, 2, 7)}
    assert live.placed(runs.CLOSED) == {"first": (4, 5, 6, 7), "second": (0, 1, 2, 3)}


def test_live_steps_are_compared_with_the_simulated_ones() -> None:
    """Measured as simulated, but one, and what is measured beside messages is added to all."""
    beside_s = 0.02
    measured = {}
    for case in live.cases():
        step_s = live.simulated_s(case, beside_s)
        measured[case] = dict.fromkeys(case.jobs, step_s)
    worse = next(c for c in measured if c.method == runs.SEQUENTIAL and c.jobs == live.JOBS)
    measured[worse] = {name: 3 * step_s for name, step_s in measured[worse].items()}

    found = live.pairs(measured)

    assert sum(pair.calibrates for pair in found) == len(live.STEP_BYTES)
    wrong = [pair.case for pair in found if abs(pair.error) > 0.01]
    assert wrong == [worse]
    failed = [check.id for check in live.judge(found) if not check.holds]
    assert failed == [f"step-{worse.pattern}"]
    assert len(live.rows(found)) == len(measured)
