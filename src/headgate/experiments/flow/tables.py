"""The figures of the flow paper's experiments: means over seeds, beside the published ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from headgate.experiments.flow import jobs as flow_jobs
from headgate.experiments.flow.runs import (
    CONSTRAINED,
    UNCONSTRAINED,
    FlowRun,
    Measured,
    Setup,
    Span,
)
from headgate.metrics.summary import fairness

IDEALS = ("share", "alone")
"""The ideals of a job's time: alone on its share of the cluster (paper, 5.2), or alone on the whole
cluster (5.3.1)."""

LOCALITIES = ("node", "rack", "cluster")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTable:
    """One comparison of policies: a setup on a network."""

    name: str
    title: str
    setup: Setup
    network: str


TABLES = (
    PolicyTable(
        name="in-turn",
        title="Jobs in turn, constrained network",
        setup=Setup.TURN,
        network=CONSTRAINED,
    ),
    PolicyTable(
        name="in-turn-unconstrained",
        title="Jobs in turn, unconstrained network",
        setup=Setup.TURN,
        network=UNCONSTRAINED,
    ),
    PolicyTable(
        name="constrained",
        title="Jobs in parallel, constrained network",
        setup=Setup.PARALLEL,
        network=CONSTRAINED,
    ),
    PolicyTable(
        name="unconstrained",
        title="Jobs in parallel, unconstrained network",
        setup=Setup.PARALLEL,
        network=UNCONSTRAINED,
    ),
    PolicyTable(
        name="users",
        title="Ten users with six jobs each, constrained network",
        setup=Setup.USERS,
        network=CONSTRAINED,
    ),
    PolicyTable(
        name="supplement",
        title="Jobs in parallel with the small J37, constrained network",
        setup=Setup.SUPPLEMENT,
        network=CONSTRAINED,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The published figures of a policy; None where there are none."""

    makespan_s: float | None = None
    deviation: float | None = None
    rack_share: float | None = None
    cluster_share: float | None = None


PUBLISHED: Mapping[tuple[str, str], Published] = {
    ("in-turn", "gs"): Published(makespan_s=825.6, rack_share=0.25, cluster_share=0.15),
    ("in-turn", "fs"): Published(makespan_s=808.2, rack_share=0.23, cluster_share=0.12),
    ("in-turn", "fsp"): Published(makespan_s=782.3, rack_share=0.16, cluster_share=0.09),
    ("constrained", "fsu"): Published(deviation=0.32),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanTimes:
    """A job's time from its first start to its last end, and its two ideals, in the mean."""

    run_s: float
    ideal_s: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of a policy in a table: means over the seeds, and the range of the makespan.

    `fairness` has mean and deviation per ideal; it is empty where jobs run one by one.
    """

    makespan_s: float
    makespan_range_s: tuple[float, float]
    mean_run_s: float
    fairness: Mapping[str, tuple[float, float]]
    read_bytes: tuple[float, float, float]
    lost_gpu_s: float
    rounds: float
    times: Mapping[str, MeanTimes]

    @property
    def shares(self) -> tuple[float, float, float]:
        """The parts of the bytes that were read locally, in the rack, and across racks."""
        total = sum(self.read_bytes) or 1.0
        node, rack, cluster = self.read_bytes
        return node / total, rack / total, cluster / total

    @property
    def network_bytes(self) -> float:
        """The bytes read in the rack and across racks."""
        return sum(self.read_bytes[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """The times of rounds, measured on this machine, so not reproducible."""

    policy: str
    where: str
    gpus: int
    jobs: int
    count: int
    mean_s: float
    max_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowResults:
    """All runs, and their figures by table and policy."""

    runs: Mapping[FlowRun, Measured]
    seeds: tuple[int, ...]
    parallel: int
    figures: Mapping[str, Mapping[str, Figures]]
    overhead: tuple[Rounds, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Single:
    """One run with its ideals and fairness."""

    run: FlowRun
    measured: Measured
    ideals: Mapping[str, Mapping[str, float]]
    fairness: Mapping[str, tuple[float, float]]


def job_kinds() -> dict[str, tuple[str, int]]:
    """Return per job of J1 to J37 its kind and the number of its shards."""
    each = [(kind.name, count) for kind in flow_jobs.JOB_KINDS for count in kind.counts]
    return {f"J{number}": found for number, found in enumerate(each, 1)}


def base(job: str) -> str:
    """Return the one of J1 to J37 of which a user's job is a copy."""
    return job.partition("-")[0]


def gather(
    runs: Mapping[FlowRun, Measured],
    seeds: Sequence[int],
    parallel: int,
    overhead: Sequence[Rounds] = (),
) -> FlowResults:
    """Return the figures of all tables."""
    of = singles(runs)
    figures: dict[str, dict[str, Figures]] = {}
    for table in TABLES:
        rows: dict[str, list[Single]] = {}
        for one in of:
            if one.run.setup is table.setup and one.run.network == table.network:
                rows.setdefault(one.run.policy, []).append(one)
        figures[table.name] = {policy: _mean(own) for policy, own in rows.items()}
    return FlowResults(
        runs=runs,
        seeds=tuple(seeds),
        parallel=parallel,
        figures=figures,
        overhead=tuple(overhead),
    )


def singles(runs: Mapping[FlowRun, Measured]) -> tuple[Single, ...]:
    """Return every run with its ideals: the least times of its jobs alone, with equal replicas.

    A job has one ideal, not one per policy: its time alone under the policy that is fastest for it,
    of all that were run. Otherwise a policy that is slow with a job alone would appear fair to it.
    """
    ideal: dict[tuple[Setup, str, int], dict[str, float]] = {}
    for run, made in runs.items():
        if run.setup in (Setup.TURN, Setup.TURN_SHARE, Setup.USERS_SHARE):
            least = ideal.setdefault((run.setup, run.network, run.seed), {})
            for span in made.spans:
                least[span.job] = min(span.run_s, least.get(span.job, span.run_s))
    found = []
    for run, made in runs.items():
        share = Setup.USERS_SHARE if run.setup is Setup.USERS else Setup.TURN_SHARE
        ideals = {
            name: {
                span.job: times[base(span.job)]
                for times in [ideal.get((setup, run.network, run.seed), {})]
                for span in made.spans
                if base(span.job) in times
            }
            for name, setup in zip(IDEALS, (share, Setup.TURN), strict=True)
        }
        fair: dict[str, tuple[float, float]] = {}
        if run.setup in (Setup.PARALLEL, Setup.USERS, Setup.SUPPLEMENT):
            for name in IDEALS:
                got = fairness(_run_s(made.spans), ideals[name])
                if got["mean"] is not None and got["deviation"] is not None:
                    fair[name] = (got["mean"], got["deviation"])
        found.append(Single(run=run, measured=made, ideals=ideals, fairness=fair))
    return tuple(found)


def _run_s(spans: Sequence[Span]) -> dict[str, float]:
    return {span.job: span.run_s for span in spans}


def _mean(of: Sequence[Single]) -> Figures:
    makespans = [one.measured.makespan_s for one in of]
    node, rack, cluster = (fmean(one.measured.read_bytes[i] for one in of) for i in range(3))
    return Figures(
        makespan_s=fmean(makespans),
        makespan_range_s=(min(makespans), max(makespans)),
        mean_run_s=fmean(fmean(s.run_s for s in one.measured.spans) for one in of),
        fairness={
            name: (
                fmean(one.fairness[name][0] for one in of),
                fmean(one.fairness[name][1] for one in of),
            )
            for name in IDEALS
            if all(name in one.fairness for one in of)
        },
        read_bytes=(node, rack, cluster),
        lost_gpu_s=fmean(one.measured.lost_gpu_s for one in of),
        rounds=fmean(one.measured.rounds for one in of),
        times=_times(of),
    )


def _times(of: Sequence[Single]) -> dict[str, MeanTimes]:
    """Return the mean times of every job; users' copies of one job count as the same job."""
    spent: dict[str, list[float]] = {}
    ideal: dict[str, dict[str, list[float]]] = {}
    for one in of:
        for span in one.measured.spans:
            job = base(span.job)
            spent.setdefault(job, []).append(span.run_s)
            for name, times in one.ideals.items():
                if span.job in times:
                    ideal.setdefault(job, {}).setdefault(name, []).append(times[span.job])
    return {
        job: MeanTimes(
            run_s=fmean(spent[job]),
            ideal_s={name: fmean(times) for name, times in ideal.get(job, {}).items()},
        )
        for job in job_kinds()
        if job in spent
    }


# --- as JSON and as rows -------------------------------------------------------------------------


def as_json(results: FlowResults) -> list[dict[str, Any]]:
    """Return every table with published and our figures per policy; None where there is none."""
    tables: list[dict[str, Any]] = [
        {
            "name": table.name,
            "title": table.title,
            "policies": {
                policy: {
                    "published": _published(PUBLISHED.get((table.name, policy), Published())),
                    "ours": _ours(figures),
                }
                for policy, figures in results.figures[table.name].items()
            },
        }
        for table in TABLES
    ]
    measured = [
        {name: getattr(rounds, name) for name in Rounds.__slots__} for rounds in results.overhead
    ]
    overhead = {"name": "overhead", "title": "Rounds, measured on this machine", "rows": measured}
    return [*tables, overhead] if measured else tables


def _published(found: Published) -> dict[str, Any]:
    shares = (None, found.rack_share, found.cluster_share)
    return {
        "makespan_s": found.makespan_s,
        "fairness": {"mean": None, "deviation": found.deviation},
        "bytes": dict.fromkeys(LOCALITIES),
        "share_of_bytes": dict(zip(LOCALITIES, shares, strict=True)),
    }


def _ours(figures: Figures) -> dict[str, Any]:
    def fair(ideal: str) -> dict[str, float | None]:
        mean, deviation = figures.fairness.get(ideal, (None, None))
        return {"mean": mean, "deviation": deviation}

    return {
        "makespan_s": figures.makespan_s,
        "makespan_range_s": list(figures.makespan_range_s),
        "mean_run_s": figures.mean_run_s,
        "fairness": fair("share"),
        "fairness_alone": fair("alone"),
        "bytes": dict(zip(LOCALITIES, figures.read_bytes, strict=True)),
        "share_of_bytes": dict(zip(LOCALITIES, figures.shares, strict=True)),
        "lost_gpu_s": figures.lost_gpu_s,
        "rounds": figures.rounds,
    }


def run_rows(results: FlowResults) -> dict[str, list[Any]]:
    """Return the columns of one row per run."""
    of = singles(results.runs)

    def fair(ideal: str, which: int) -> list[Any]:
        return [one.fairness[ideal][which] if ideal in one.fairness else None for one in of]

    return {
        **_keys([one.run for one in of]),
        "makespan_s": [one.measured.makespan_s for one in of],
        "mean_run_s": [fmean(s.run_s for s in one.measured.spans) for one in of],
        "fairness_share": fair("share", 0),
        "deviation_share": fair("share", 1),
        "fairness_alone": fair("alone", 0),
        "deviation_alone": fair("alone", 1),
        **{
            f"{name}_bytes": [one.measured.read_bytes[i] for one in of]
            for i, name in enumerate(LOCALITIES)
        },
        "lost_gpu_s": [one.measured.lost_gpu_s for one in of],
        "rounds": [one.measured.rounds for one in of],
    }


def job_rows(results: FlowResults) -> dict[str, list[Any]]:
    """Return the columns of one row per job of a run."""
    kinds = job_kinds()
    of = [(one, span) for one in singles(results.runs) for span in one.measured.spans]

    def ideal(name: str) -> list[float | None]:
        return [one.ideals[name].get(span.job) for one, span in of]

    return {
        **_keys([one.run for one, _ in of]),
        "job": [span.job for _, span in of],
        "kind": [kinds[base(span.job)][0] for _, span in of],
        "shards": [kinds[base(span.job)][1] for _, span in of],
        "start_s": [span.start_s for _, span in of],
        "end_s": [span.end_s for _, span in of],
        "run_s": [span.run_s for _, span in of],
        "ideal_share_s": ideal("share"),
        "ideal_alone_s": ideal("alone"),
    }


def _keys(runs: Sequence[FlowRun]) -> dict[str, list[Any]]:
    return {
        "experiment": [run.setup.value for run in runs],
        "network": [run.network for run in runs],
        "policy": [run.policy for run in runs],
        "seed": [run.seed for run in runs],
    }
