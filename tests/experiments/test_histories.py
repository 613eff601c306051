"""Job histories: their sizes, their runs and the goals, against computations of other kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.app import POLICIES
from headgate.base.errors import SpecError
from headgate.experiments.histories import goals
from headgate.experiments.histories.histories import History, Source, published, read, repeated
from headgate.experiments.histories.runs import (
    EASY,
    FIFO,
    HEADGATE,
    ORDERS,
    RESUMED,
    VARIANTS,
    HistoryRun,
    PolicyVariant,
    Which,
    choose,
    measure,
    plan,
    times,
)
from headgate.experiments.histories.sizes import (
    BUSY_WAIT_S,
    GOAL_WAIT_S,
    HistorySizes,
    fifo_waits_s,
    find_sizes,
)
from headgate.metrics.records import JobRecords
from headgate.sim.estimated import Estimated
from headgate.state import JobState

PHILLY = Path(__file__).parents[2] / "examples" / "philly-500.parquet"


def jobs(*of: tuple[float, float, int]) -> History:
    """Return a history of (time of submission, duration, GPUs), in order of time."""
    submitted, compute, gpus = zip(*of, strict=True)
    return History(
        source=Source(path=Path("some.parquet")),
        submitted_at=np.array(submitted, float),
        compute_s=np.array(compute, float),
        gpus=np.array(gpus, np.int64),
    )


def written(path: Path, rows: Sequence[tuple[Any, ...]], **columns: Sequence[Any]) -> Path:
    """Write a trace of (time of submission, duration, GPUs), and more columns."""
    table = {
        "job_id": list(range(len(rows))),
        "submit_s": [float(row[0]) for row in rows],
        "duration_s": [float(row[1]) for row in rows],
        "gpus": [row[2] for row in rows],
        **columns,
    }
    pq.write_table(pa.table(table), path)
    return path


def random_rows(seed: int, count: int, widest: int = 8) -> list[tuple[float, float, int]]:
    """Return jobs of whole times, of which several arrive and end together."""
    random = np.random.default_rng(seed)
    submitted = np.sort(random.integers(0, 3 * count, count)).tolist()
    compute = random.integers(0, 40, count).tolist()
    gpus = (2 ** random.integers(0, int(np.log2(widest)) + 1, count)).tolist()
    return list(zip(map(float, submitted), map(float, compute), gpus, strict=True))


# --- sizes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("gpus", [3, 8, 16])
def test_waits_first_in_first_out_are_those_of_the_simulator(
    seed: int, gpus: int, tmp_path: Path
) -> None:
    path = written(tmp_path / "jobs.parquet", random_rows(seed, 60))
    (history,) = read([path], by_vc=False)

    row = measure(HistoryRun(source=history.source, gpus=gpus, variant=FIFO), POLICIES)
    waits_s = fifo_waits_s(history, gpus)

    known = waits_s[history.gpus <= gpus]
    assert np.isnan(waits_s[history.gpus > gpus]).all()
    assert row["jobs_rejected"] == (history.gpus > gpus).sum()
    assert row["mean_wait_s"] == pytest.approx(known.mean(), abs=1e-9)
    assert row["p99_wait_s"] == pytest.approx(np.quantile(known, 0.99), abs=1e-9)
    for found in row["wait_by_size"]:
        wide = waits_s[(history.gpus >= found["gpus_at_least"]) & (history.gpus <= gpus)]
        assert found["jobs"] == len(wide)
        if len(wide):
            assert found["mean_wait_s"] == pytest.approx(wide.mean(), abs=1e-9)


def test_head_of_the_queue_is_not_overtaken() -> None:
    history = jobs((0, 10, 3), (1, 10, 2), (2, 1, 1), (3, 1, 8))

    assert fifo_waits_s(history, 4).tolist()[:3] == [0, 9, 8]
    assert np.isnan(fifo_waits_s(history, 4)[3])


@pytest.mark.parametrize("seed", range(8))
def test_size_of_the_goals_is_the_largest_power_with_waits_that_holds_the_widest_job(
    seed: int,
) -> None:
    rows = [(at, 60 * run_s, gpus) for at, run_s, gpus in random_rows(seed, 80)]
    history = jobs(*rows)

    sizes = find_sizes(history)

    mean_s = {}
    for power in range(12):
        waits_s = fifo_waits_s(history, 2**power)
        mean_s[2**power] = float(np.nanmean(waits_s))
    enough = [gpus for gpus, s in mean_s.items() if s >= GOAL_WAIT_S and gpus >= 8]
    assert sizes.goal == (max(enough) if enough else None)
    assert sizes.busy == tuple(gpus for gpus, s in mean_s.items() if s >= BUSY_WAIT_S)
    assert mean_s[1024] == 0  # larger ones need not be looked at


def test_history_without_waits_has_no_size() -> None:
    sizes = find_sizes(jobs((0, 5, 2), (100, 5, 1)))

    assert (sizes.goal, sizes.busy, sizes.near) == (None, (), ())


def test_sizes_near_that_of_the_goals_begin_at_half_of_it() -> None:
    sizes = HistorySizes(goal=8, busy=(1, 2, 4, 8, 16), fifo_wait_s={})
    without = HistorySizes(goal=None, busy=(1, 2), fifo_wait_s={})

    assert sizes.near == (4, 8, 16)
    assert without.near == (2,)


# --- reading -------------------------------------------------------------------------------------

ROWS = ((5, 10, 1), (0, 20, 2), (1, 30, 4))


def test_each_vc_of_a_file_is_a_history_in_order_of_time(tmp_path: Path) -> None:
    path = written(tmp_path / "itp.parquet", ROWS, vc=["b", "b", "a"])

    first, second = read([path], by_vc=True)

    assert (first.name, second.name) == ("itp/a", "itp/b")
    assert second.submitted_at.tolist() == [0, 5]
    assert second.compute_s.tolist() == [20, 10]
    assert second.gpus.tolist() == [2, 1]
    assert [job.job_id for job in second.source.open().rows()] == ["1", "0"]


@pytest.mark.parametrize(
    ("columns", "queues"),
    [
        ({"vc": ["b", "b", "a"]}, ["b", "a", "b"]),
        ({"vc": ["b", None, "a"]}, ["", "", ""]),
        ({"vc": ["b", "b", "a"], "queue": ["x", "y", "x"]}, ["y", "x", "x"]),
        ({}, ["", "", ""]),
    ],
)
def test_vc_of_a_whole_file_are_its_queues_unless_it_has_queues(
    columns: Mapping[str, Sequence[Any]], queues: list[str], tmp_path: Path
) -> None:
    path = written(tmp_path / "own.parquet", ROWS, **columns)

    (history,) = read([path], by_vc=False)

    assert history.name == "own"
    assert [job.queue for job in history.source.open().rows()] == queues


def test_file_without_a_vc_in_every_row_cannot_be_divided_by_it(tmp_path: Path) -> None:
    without = written(tmp_path / "without.parquet", ROWS)
    half = written(tmp_path / "half.parquet", ROWS, vc=["b", None, "a"])

    for path in (without, half):
        with pytest.raises(SpecError) as error:
            read([path], by_vc=True)
        assert (error.value.code, error.value.problems[0].path) == ("bad_trace", f"{path}:vc")


def test_all_missing_published_histories_are_named(tmp_path: Path) -> None:
    written(tmp_path / "itp2021_jobs.parquet", ROWS, vc=["b", "b", "a"])

    with pytest.raises(SpecError) as error:
        published(tmp_path)

    assert error.value.code == "missing_file"
    assert [problem.path for problem in error.value.problems] == [
        str(tmp_path / "philly2017_jobs.parquet"),
        str(tmp_path / "gavel_shockwave_traces.parquet"),
    ]


def test_published_histories_are_whole_or_divided_as_they_were_recorded(tmp_path: Path) -> None:
    for name in ("philly2017_jobs", "itp2021_jobs", "gavel_shockwave_traces"):
        written(tmp_path / f"{name}.parquet", ROWS, vc=["b", "b", "a"])

    names = [history.name for history in published(tmp_path)]

    assert names == [
        "philly2017_jobs",
        "itp2021_jobs/a",
        "itp2021_jobs/b",
        "gavel_shockwave_traces/a",
        "gavel_shockwave_traces/b",
    ]
    assert repeated(published(tmp_path)) == []
    assert repeated([*published(tmp_path)[:1], *published(tmp_path)]) == ["philly2017_jobs"]


# --- runs ----------------------------------------------------------------------------------------


def records(of: Sequence[tuple[float, float, float]]) -> JobRecords:
    """Return finished jobs of (submitted, started, ended); NaN is unknown."""
    submitted, started, ended = np.array(of, float).T
    finished = np.where(np.isnan(ended), JobState.QUEUED, JobState.FINISHED).astype(np.uint8)
    none = np.zeros(len(of))
    return JobRecords(
        state=finished,
        submitted_at=submitted,
        started_at=started,
        ended_at=ended,
        lost_gpu_s=none,
        peak_gpus_milli=none.astype(np.int32),
        reserved_at=none + np.nan,
    )


def test_times_are_of_jobs_that_started_and_finished() -> None:
    some = records([(0, 1, 11), (2, 5, 6), (3, 9, np.nan), (4, np.nan, np.nan)])

    found = times(some)
    wide = times(some, np.array([False, True, False, False]))
    none = times(some, np.array([False, False, False, True]))

    assert (found["jobs"], found["mean_jct_s"], found["median_jct_s"]) == (3, 7.5, 7.5)
    assert (found["mean_wait_s"], found["median_wait_s"]) == (pytest.approx(10 / 3), 3)
    assert found["p99_wait_s"] == pytest.approx(5.94)
    assert (wide["jobs"], wide["mean_jct_s"], wide["p99_wait_s"]) == (1, 4, 3)
    assert set(none.values()) == {0, None}


def test_all_policies_run_on_the_size_of_the_goals_and_few_on_other_busy_ones() -> None:
    history = jobs((0, 1, 1))
    sizes = {history: HistorySizes(goal=8, busy=(2, 4, 8, 16), fifo_wait_s={})}

    def sizes_of(on: Which | Sequence[int], variant: PolicyVariant) -> list[int]:
        planned = plan([history], sizes, VARIANTS, on)
        return [run.gpus for run in planned if run.variant == variant]

    srtf = RESUMED[1]
    assert sizes_of(Which.GOAL, EASY) == sizes_of(Which.GOAL, srtf) == [8]
    assert sizes_of(Which.NEAR, EASY) == [8, 16, 4]
    assert sizes_of(Which.NEAR, srtf) == [8]
    assert sizes_of(Which.ALL, HEADGATE) == [8, 16, 4, 2]
    assert sizes_of([3, 5], srtf) == sizes_of([3, 5], HEADGATE) == [3, 5]


def test_policies_are_chosen_by_name_with_all_their_variants() -> None:
    assert choose(POLICIES, ["fifo", "easy-backfill", "fifo"]) == (
        FIFO,
        EASY,
        PolicyVariant(policy="easy-backfill", estimated=Estimated.LEARNT),
    )
    (other,) = choose(POLICIES, ["gs"])
    assert (other.policy, other.estimated) == ("gs", Estimated.LEARNT)
    with pytest.raises(SpecError) as error:
        choose(POLICIES, ["fifo", "easy-backfil"])
    assert error.value.code == "unknown_policy"
    assert "easy-backfill" in str(error.value)


def test_every_variant_is_a_policy() -> None:
    assert {c.policy for c in VARIANTS} <= set(POLICIES)
    assert choose(POLICIES, None) == VARIANTS


def test_history_under_easy_backfill_waits_less_than_first_in_first_out() -> None:
    """Also that a row has the figures of the simulator, of the jobs of a real history."""
    (history,) = read([PHILLY], by_vc=False)

    fifo = measure(HistoryRun(source=history.source, gpus=32, variant=FIFO), POLICIES)
    easy = measure(HistoryRun(source=history.source, gpus=32, variant=EASY), POLICIES)

    assert (fifo["estimates"], easy["estimates"]) == (None, "exact")
    assert 0 < easy["mean_wait_s"] < fifo["mean_wait_s"]
    for row in (fifo, easy):
        assert row["jobs_finished"] == row["jobs"] == len(history)
        assert row["by_size"][0]["p99_jct_s"] == row["p99_jct_s"]
        assert row["mean_jct_s"] - row["mean_wait_s"] == pytest.approx(history.compute_s.mean())
        assert [s["gpus_at_least"] for s in row["by_size"]] == [1, 2, 4, 8, 16, 32, 64]
        assert row["finish_time_fairness"]["p95"] > 0.9


@pytest.mark.parametrize("seed", range(4))
def test_no_policy_is_fairer_than_the_lower_bound(seed: int, tmp_path: Path) -> None:
    path = written(tmp_path / "jobs.parquet", random_rows(seed, 50))
    (history,) = read([path], by_vc=False)

    rows = [
        measure(HistoryRun(source=history.source, gpus=8, variant=variant), POLICIES)
        for variant in (FIFO, EASY, RESUMED[1])
    ]

    (least,) = {row["least_p95_fairness"] for row in rows}
    assert 0 < least <= min(row["finish_time_fairness"]["p95"] for row in rows) + 1e-9


def test_lower_bound_is_one_where_jobs_meet_no_others(tmp_path: Path) -> None:
    path = written(tmp_path / "jobs.parquet", [(100.0 * n, 10.0, 4) for n in range(9)])
    (history,) = read([path], by_vc=False)

    row = measure(HistoryRun(source=history.source, gpus=4, variant=FIFO), POLICIES)

    assert row["least_p95_fairness"] == row["finish_time_fairness"]["p95"] == 1.0


# --- goals ---------------------------------------------------------------------------------------

WIDE = jobs(*[(0, 1, 16)] * 20, *[(0, 1, 1)] * 10)


def figures(jct_s: float, p95: float, p99_s: float | None) -> dict[str, Any]:
    return {
        "jobs_finished": 30,
        "mean_jct_s": jct_s,
        "finish_time_fairness": {"p95": p95},
        "least_p95_fairness": 1.0,
        "wait_by_size": [
            {"gpus_at_least": 1, "p99_wait_s": 1.0},
            {"gpus_at_least": 16, "p99_wait_s": p99_s},
        ],
    }


def rows_of(history: History, gpus: int, **own: Any) -> dict[HistoryRun, dict[str, Any]]:
    """Return rows of all variants: those of `headgate` with learnt estimates are `own`."""
    made = {
        HistoryRun(source=history.source, gpus=gpus, variant=c): figures(10.0, 2.0, 30.0)
        for c in VARIANTS
    }
    return made | {
        HistoryRun(source=history.source, gpus=gpus, variant=HEADGATE): figures(
            **{"jct_s": 10.0, "p95": 1.9, "p99_s": 30.0, **own}
        )
    }


def verdicts(history: History, sizes: HistorySizes, rows: goals.Rows) -> dict[str, bool | None]:
    judged = goals.judge_all([history], {history: sizes}, rows)
    return {f"{goal.verdict.claim.id}": goal.verdict.holds for goal in judged}


ONE_SIZE = HistorySizes(goal=32, busy=(32,), fifo_wait_s={})


@pytest.mark.parametrize(
    ("own", "missed"),
    [
        ({}, set()),
        ({"jct_s": 10.01}, {"jct-some-32"}),
        ({"p95": 2.0}, {"fairness-some-32"}),  # as good is not better
        ({"p99_s": 30.1}, {"wide-some-32"}),
    ],
)
def test_goal_is_missed_by_its_own_figure_alone(own: dict[str, float], missed: set[str]) -> None:
    found = verdicts(WIDE, ONE_SIZE, rows_of(WIDE, 32, **own))

    assert set(found) == {"jct-some-32", "fairness-some-32", "wide-some-32"}
    assert {goal for goal, holds in found.items() if not holds} == missed


def test_no_goal_is_met_by_finishing_fewer_jobs() -> None:
    rows = rows_of(WIDE, 32, jct_s=1.0, p95=1.0, p99_s=1.0)
    rows[HistoryRun(source=WIDE.source, gpus=32, variant=HEADGATE)]["jobs_finished"] = 29

    assert set(verdicts(WIDE, ONE_SIZE, rows).values()) == {False}


def test_fairness_is_compared_with_the_best_order_and_resumed_ones_are_shown() -> None:
    rows = rows_of(WIDE, 32)
    rows[HistoryRun(source=WIDE.source, gpus=32, variant=ORDERS[3])] = figures(10, 1.85, 30)
    rows[HistoryRun(source=WIDE.source, gpus=32, variant=RESUMED[0])] = figures(10, 1.2, 30)

    (goal,) = (
        goal
        for goal in goals.judge_all([WIDE], {WIDE: ONE_SIZE}, rows)
        if goal.verdict.claim.id.startswith("fairness")
    )

    assert goal.verdict.holds is False
    assert dict(goal.verdict.ours) == {
        "headgate, learnt": 1.9,
        f"best: {ORDERS[3].name}": 1.85,
        f"best but srtf: {ORDERS[3].name}": 1.85,
        "least-attained-service, resumed in 0 s": 1.2,
        "srtf, exact, resumed in 0 s": 2.0,
        "lower bound": 1.0,
    }


def test_fairness_goal_is_missed_if_only_the_oracle_is_better_and_shows_the_best_other() -> None:
    rows = rows_of(WIDE, 32)
    rows[HistoryRun(source=WIDE.source, gpus=32, variant=ORDERS[-1])] = figures(10, 1.1, 30)
    judged = goals.judge_all([WIDE], {WIDE: ONE_SIZE}, rows)
    verdict = judged[1].verdict

    assert (ORDERS[-1].policy, verdict.holds) == ("srtf", False)
    assert verdict.ours["best: srtf, exact"] == 1.1
    assert verdict.ours["best but srtf: fifo"] == 2.0


def test_waits_of_wide_jobs_are_a_goal_only_where_there_are_twenty() -> None:
    few = jobs(*[(0, 1, 16)] * 19, *[(0, 1, 8)] * 10)

    assert set(verdicts(few, ONE_SIZE, rows_of(few, 32))) == {"jct-some-32", "fairness-some-32"}


def test_goal_on_completion_times_holds_on_other_busy_sizes_too() -> None:
    sizes = HistorySizes(goal=32, busy=(16, 32, 64), fifo_wait_s={})
    rows = rows_of(WIDE, 32) | rows_of(WIDE, 64, jct_s=11.0)

    found = verdicts(WIDE, sizes, rows)

    assert found["jct-some-32"] is True
    assert found["jct-some-64"] is False
    assert found["jct-some-16"] is None  # not run
    assert len(found) == 5


def test_history_without_a_size_has_no_goals() -> None:
    assert verdicts(WIDE, HistorySizes(goal=None, busy=(), fifo_wait_s={}), {}) == {}


def test_goals_as_json_name_their_history_and_size() -> None:
    judged = goals.judge_all([WIDE], {WIDE: ONE_SIZE}, rows_of(WIDE, 32))
    first = goals.judged(judged)[0].values

    assert (first["trace"], first["gpus"], first["holds"], first["goal"]) == (
        "some", 32, True, True
    )  # fmt: skip
    assert first["ours"] == {"headgate, learnt": 10.0, "easy-backfill, exact": 10.0}
