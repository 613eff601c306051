"""The groups of jobs, queues and figures of `headgate reproduce label-queues`."""

from __future__ import annotations

from statistics import fmean

import pytest

from headgate.app import POLICIES
from headgate.experiments.frame.claims import judge
from headgate.experiments.label_queues.claims import CLAIMS
from headgate.experiments.label_queues.groups import (
    CPUS,
    Assumed,
    JobGroup,
    Submissions,
    nodes,
    queues,
    submissions,
)
from headgate.experiments.label_queues.results import LabelResults, as_json, without_outliers
from headgate.experiments.label_queues.runs import (
    ALONE,
    CAPACITY,
    DEFAULT,
    ELASTIC_CAPACITY,
    FULL,
    HEADGATE,
    MIXED,
    NEW_CAPACITY,
    VARIANTS,
    GroupTimes,
    LabelRun,
    LabelSizes,
    measure,
    plan,
)
from headgate.model import WHOLE

Totals = dict[tuple[str, int], tuple[float, float, float]]
"""Of a group, those of capacity, new-capacity and headgate."""

SIZES = LabelSizes(mixed=2, alone=(10, 60), varied=(10, 60), assumed=("default",))


# --- groups --------------------------------------------------------------------------------------


def group(seed: int, *, elastic: bool = True, assumed: Assumed = DEFAULT) -> Submissions:
    own = JobGroup(wordcounts=5, mnists=5, seed=seed, assumed=assumed)
    return submissions(own, queues(assumed.twelfths, hard=not elastic), elastic=elastic)


def test_groups_are_equal_for_a_seed_and_else_differ_in_order_work_and_gaps() -> None:
    assert group(1) == group(1)
    (first, second), kinds = (group(1), group(2)), ["mnist"] * 5 + ["wordcount"] * 5
    assert [job.name for _, job in first] != [job.name for _, job in second]
    assert [at for at, _ in first] != [at for at, _ in second]
    for found in (first, second):
        assert sorted(job.name for _, job in found) == kinds
        assert [at for at, _ in found] == sorted(at for at, _ in found)


def test_variants_get_the_same_jobs_and_only_elastic_ones_have_surplus() -> None:
    for (at, one), (same_at, other) in zip(group(3), group(3, elastic=False), strict=True):
        assert (at, one.id, one.queue, one.elastic) == (
            same_at, other.id, other.queue, other.elastic
        )  # fmt: skip
        if one.elastic is not None:
            assert (len(one.tasks), len(other.tasks), one.elastic.minimum) == (64, 20, 20)
            assert one.elastic.work_s == pytest.approx(512, rel=0.2)
        else:
            assert one.tasks == other.tasks
            assert one.tasks[0].demand.gpus == 1


def test_type_of_a_job_decides_its_queue() -> None:
    assert {job.name: job.queue for _, job in group(1)} == {
        "wordcount": "batch", "mnist": "deep-learning"
    }  # fmt: skip


@pytest.mark.parametrize("hard", [True, False])
def test_parts_of_queues_are_the_cluster_as_limits_or_as_guarantees(hard: bool) -> None:
    assert sum(node.cpus for node in nodes()) == CPUS
    for twelfths in (3, 4, 5, 6):
        batch, learning = queues(twelfths, hard=hard)
        assert not (batch.guaranteed if hard else batch.limit)
        own, theirs = (dict(q.limit if hard else q.guaranteed) for q in (batch, learning))
        assert own["cpus"] + theirs["cpus"] == CPUS * WHOLE
        assert theirs["cpus"] == CPUS * WHOLE * twelfths // 12
        assert theirs["gpus"] == 4 * WHOLE
        assert own["memory"] + theirs["memory"] == sum(node.memory_bytes or 0 for node in nodes())


# --- runs ----------------------------------------------------------------------------------------


def test_every_group_runs_under_every_variant() -> None:
    runs = plan(FULL, range(1, 9))
    assert len({*runs}) == len(runs)
    of_default = [run for run in runs if run.assumed == DEFAULT]
    for experiment, jobs, count in ((MIXED, 10, 3), *((ALONE, n, 8) for n in range(10, 70, 10))):
        for variant in VARIANTS:
            shape = (experiment, jobs, variant)
            found = [r for r in of_default if (r.experiment, r.jobs, r.variant) == shape]
            assert len(found) == count


def lone(variant: str) -> GroupTimes:
    """Return the times of one WordCount on an empty cluster."""
    return measure(
        LabelRun(experiment=ALONE, jobs=1, variant=variant, assumed=DEFAULT, seed=1), POLICIES
    )


def test_a_wordcount_alone_uses_what_it_declares_or_its_queue_or_all_its_splits() -> None:
    ((_, job),) = submissions(
        JobGroup(wordcounts=1, mnists=0, seed=1), queues(4, hard=True), elastic=True
    )
    assert job.elastic is not None
    assert lone(CAPACITY).total_s == pytest.approx(job.elastic.work_s / 20)
    assert lone(ELASTIC_CAPACITY).total_s == pytest.approx(job.elastic.work_s / 48)
    assert lone(NEW_CAPACITY).total_s == pytest.approx(job.elastic.work_s / 48)
    times = lone(HEADGATE)
    assert times.total_s == times.completion_s == pytest.approx(job.elastic.work_s / 64)
    assert times.longest_wait_s == 0


# --- figures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ([5.0], [5.0]),
        ([5.0, 9.0], [5.0, 9.0]),
        ([3.0, 3.0, 3.0, 3.0, 4.0], [3.0, 3.0, 3.0, 3.0]),
        # Quartiles 2.75 and 6.25: outliers are below -2.5 and above 11.5.
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 11.5], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 11.5]),
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 11.6], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]),
    ],
)
def test_outliers_are_those_of_a_box_plot(values: list[float], kept: list[float]) -> None:
    assert without_outliers(values) == kept


def results(totals: Totals) -> LabelResults:
    """Return figures with these total times of capacity, new-capacity and headgate."""
    times = {}
    for run in plan(SIZES, (1, 2, 3)):
        capacity_s, new_s, headgate_s = totals[run.experiment, run.jobs]
        total_s = {NEW_CAPACITY: new_s, HEADGATE: headgate_s}.get(run.variant, capacity_s)
        times[run] = GroupTimes(total_s=total_s, completion_s=1.0, longest_wait_s=2.0)
    return LabelResults(sizes=SIZES, seeds=(1, 2, 3), times=times)


GOOD: Totals = {
    (MIXED, 4): (100.0, 86.0, 80.0),
    (ALONE, 10): (10.0, 9.0, 8.0),
    (ALONE, 60): (90.0, 60.0, 50.0),
}


def fails(change: Totals) -> set[str]:
    """Return the claims that do not hold for good figures with this change."""
    verdicts = judge(CLAIMS, results(GOOD | change))
    assert all(verdict.holds is not None for verdict in verdicts)
    return {verdict.claim.id for verdict in verdicts if not verdict.holds}


def test_claims_hold_for_good_figures() -> None:
    assert fails({}) == set()


@pytest.mark.parametrize(
    ("change", "claims"),
    [
        ({(MIXED, 4): (100.0, 100.0, 80.0)}, {"mixed-total"}),
        ({(MIXED, 4): (100.0, 82.0, 83.0)}, {"goal-mixed"}),
        ({(MIXED, 4): (100.0, 95.0, 90.0)}, {"goal-published"}),
        ({(ALONE, 10): (10.0, 5.0, 4.0)}, {"gain-grows"}),
        ({(ALONE, 10): (10.0, 8.0, 9.0)}, {"goal-alone"}),
        ({(ALONE, 60): (90.0, 90.0, 50.0)}, {"alone-total", "gain-grows"}),
        (
            {(MIXED, 4): (80.0, 80.0, 60.0), (ALONE, 10): (10.0, 11.0, 8.0)},
            {"mixed-total", "mostly-better"},
        ),
    ],
)
def test_claims_fail_for_figures_that_contradict_them(change: Totals, claims: set[str]) -> None:
    assert fails(change) == claims


def test_outliers_count_for_no_mean_but_as_runs() -> None:
    sizes = LabelSizes(mixed=1, alone=(10, 20), varied=(10, 20), assumed=("default",))
    times = {
        run: GroupTimes(
            total_s=900.0 if run.seed == 5 and run.variant == CAPACITY else 10.0,
            completion_s=1.0,
            longest_wait_s=float(run.seed),
        )
        for run in plan(sizes, range(1, 9))
    }
    found = LabelResults(sizes=sizes, seeds=range(1, 9), times=times)
    assert fmean(found.totals(ALONE, 20, CAPACITY)) == 10.0
    row = next(r for r in as_json(found)["alone"] if r["variant"] == CAPACITY)
    assert (row["runs"], row["outliers"], row["longest_wait_s"]) == (8, 1, 8.0)
    assert sum(found.better(HEADGATE)) == 2  # of each number of jobs, the run of the outlier
