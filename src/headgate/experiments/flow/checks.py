"""Checks of the flow paper's claims on our figures, with the tolerances for "near" and "about".

A check returns whether its claim holds for the means over the seeds, and the numbers compared; it
raises NotRunError if the runs that it needs were not made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean

from headgate.experiments.flow.tables import PUBLISHED, Figures, FlowResults, MeanTimes, job_kinds
from headgate.experiments.frame.claims import NotRunError

TOTAL = 0.10  # relative tolerance of a published time
POINTS = 0.05  # absolute tolerance of a published share, fairness or deviation
ABOUT = 0.10  # "about 25 %": absolute tolerance
UNCHANGED = 0.10  # "nothing much", "about the same": relative tolerance
SAME_DEVIATION = 0.05  # "nearly unchanged" deviations: absolute tolerance
NEAR_IDEAL = 1.25  # "near its ideal": at most this multiple of it
SMALL_SHARDS, LARGE_SHARDS = (
    10,
    30,
)  # shards: "small" jobs have at most, "large" ones at least this number
SAVED = 0.5  # "takes 9.52 % less": at least this part of the published saving
OVERHEAD = 2.0  # a duration on another machine: at most this multiple of the published one
CLEARLY = 0.05  # "clearly better": relative, at least

SIX = ("gs", "gsp", "gsd", "fs", "fsp", "fsu")
FLOW, COUNT, YARN = ("fs", "fsp"), ("gs", "gsp", "gsd"), ("capacity", "fair")
BOTH = ("constrained", "unconstrained")

Found = tuple[bool, dict[str, float]]
Check = Callable[[FlowResults], Found]


TURN = ("gs", "fs", "fsp")
TURN_S = {p: PUBLISHED["in-turn", p].makespan_s or 0.0 for p in TURN}
TURN_SHARES = {
    f"{p} {where}": share or 0.0
    for p in TURN
    for published in [PUBLISHED["in-turn", p]]
    for where, share in (("rack", published.rack_share), ("cross", published.cluster_share))
}
FSU_DEVIATION = PUBLISHED["constrained", "fsu"].deviation or 0.0


# --- metrics of claims ----------------------------------------------------------------------------


def _of(results: FlowResults, table: str, policy: str) -> Figures:
    found = results.figures.get(table, {}).get(policy)
    if found is None:
        raise NotRunError(f"{policy} in {table}")
    return found


def _fair(results: FlowResults, table: str, policy: str) -> tuple[float, float]:
    found = _of(results, table, policy).fairness.get("share")
    if found is None:
        raise NotRunError(f"fairness of {policy} in {table}")
    return found


Metric = Callable[[FlowResults, str, str], float]


def makespan(results: FlowResults, table: str, policy: str) -> float:
    """Return the makespan of a policy in a table, in seconds; raise NotRunError without runs."""
    return _of(results, table, policy).makespan_s


def fairness(results: FlowResults, table: str, policy: str) -> float:
    """Return the mean fairness against the ideal `share`."""
    return _fair(results, table, policy)[0]


def deviation(results: FlowResults, table: str, policy: str) -> float:
    """Return the deviation of fairness against the ideal `share`."""
    return _fair(results, table, policy)[1]


def mean_time(results: FlowResults, table: str, policy: str) -> float:
    """Return the mean time of a job from its first start to its last end, in seconds."""
    return _of(results, table, policy).mean_run_s


def network_gb(results: FlowResults, table: str, policy: str) -> float:
    """Return the bytes read over the network, in GB."""
    return _of(results, table, policy).network_bytes / 1e9


def _share(which: int) -> Metric:
    return lambda results, table, policy: _of(results, table, policy).shares[which]


LOCAL, RACK, CROSS = _share(0), _share(1), _share(2)


def _each(
    results: FlowResults, metric: Metric, table: str, policies: Sequence[str]
) -> dict[str, float]:
    return {policy: metric(results, table, policy) for policy in policies}


def falling(metric: Metric, table: str, policies: Sequence[str]) -> Check:
    """Return a check that a metric falls from one policy to the next."""

    def check(results: FlowResults) -> Found:
        ours = _each(results, metric, table, policies)
        values = list(ours.values())
        return all(a > b for a, b in pairwise(values)), ours

    return check


def first(metric: Metric, table: str, policy: str, *, least: bool) -> Check:
    """Return a check that a policy has the least (or most) of a metric among the six."""

    def check(results: FlowResults) -> Found:
        ours = _each(results, metric, table, SIX)
        best = min(ours.values()) if least else max(ours.values())
        return ours[policy] == best, ours

    return check


# --- checks of single claims ----------------------------------------------------------------------


def totals(results: FlowResults) -> Found:
    """Check that the jobs in turn take the published times."""
    ours = _each(results, makespan, "in-turn", TURN)
    return all(abs(ours[p] / s - 1) <= TOTAL for p, s in TURN_S.items()), ours


def turn_shares(results: FlowResults) -> Found:
    """Check that the jobs in turn read the published shares of bytes in rack and across racks."""
    ours: dict[str, float] = {}
    for policy in TURN:
        ours[f"{policy} rack"] = RACK(results, "in-turn", policy)
        ours[f"{policy} cross"] = CROSS(results, "in-turn", policy)
    return all(abs(ours[key] - share) <= POINTS for key, share in TURN_SHARES.items()), ours


def turn_shares_fall(results: FlowResults) -> Found:
    """Check that both shares fall from GS to FS to FSP."""
    ours = turn_shares(results)[1]
    rack, cross = ([ours[f"{p} {where}"] for p in TURN] for where in ("rack", "cross"))
    falls = rack[0] > rack[1] > rack[2] and cross[0] > cross[1] > cross[2]
    return falls, ours


def unfair_deviation(results: FlowResults) -> Found:
    """Check that the deviation under FSU is the published one."""
    ours = deviation(results, "constrained", "fsu")
    return abs(ours - FSU_DEVIATION) <= POINTS, {"fsu": ours}


def apart(results: FlowResults) -> Found:
    """Check that FSP is fairer than FSU by about the published part."""
    fsp, fsu = (fairness(results, "constrained", p) for p in ("fsp", "fsu"))
    return abs(fsp / fsu - 1 - 0.25) <= ABOUT, {"fsp": fsp, "fsu": fsu, "apart": fsp / fsu - 1}


def level(results: FlowResults) -> Found:
    """Check that the fairness of FS and of FSP is about the published one."""
    ours = _each(results, fairness, "constrained", FLOW)
    return all(0.90 - POINTS <= mean <= 0.92 + POINTS for mean in ours.values()), ours


def fairer(table: str, others: Sequence[str]) -> Check:
    """Return a check that the mean fairness of FS and FSP is 1.5 times that of others, or more."""
    return _against(fairness, table, others, lambda ratio: ratio >= 1.5)


def faster(table: str, others: Sequence[str]) -> Check:
    """Return a check that the mean makespan of FS and FSP is at most 0.9 of that of others."""
    return _against(makespan, table, others, lambda ratio: ratio <= 0.9)


def _against(
    metric: Metric, table: str, others: Sequence[str], holds: Callable[[float], bool]
) -> Check:
    def check(results: FlowResults) -> Found:
        theirs = fmean(metric(results, table, p) for p in others)
        ours = {p: metric(results, table, p) / theirs for p in (*FLOW, *others)}
        ours["flow / others"] = fmean(ours[p] for p in FLOW)
        return holds(ours["flow / others"]), ours

    return check


def _stretches(results: FlowResults) -> tuple[list[float], list[float]]:
    """Return the times of small and of large jobs over their ideals, under `fs` and `fsp`."""
    kinds = job_kinds()
    small: list[float] = []
    large: list[float] = []
    for policy in FLOW:
        for job, times in _of(results, "constrained", policy).times.items():
            if kinds[job][1] <= SMALL_SHARDS:
                small.append(_stretch(times))
            elif kinds[job][1] >= LARGE_SHARDS:
                large.append(_stretch(times))
    if not small or not large:
        raise NotRunError("small and large jobs")
    return small, large


def _stretch(times: MeanTimes) -> float:
    if "alone" not in times.ideal_s:
        raise NotRunError("the jobs alone")
    return times.run_s / times.ideal_s["alone"]


def small_near(results: FlowResults) -> Found:
    """Check that small jobs take about their ideal time."""
    small = fmean(_stretches(results)[0])
    return small <= NEAR_IDEAL, {"small": small}


def large_stretch(results: FlowResults) -> Found:
    """Check that large jobs exceed their ideal time, and by a larger ratio than small ones."""
    small, large = map(fmean, _stretches(results))
    return large > max(small, NEAR_IDEAL), {"small": small, "large": large}


def all_faster(results: FlowResults) -> Found:
    """Check that each of the six has a smaller makespan on the unconstrained network."""
    ours = {
        p: makespan(results, "unconstrained", p) / makespan(results, "constrained", p) for p in SIX
    }
    return all(ratio < 1 for ratio in ours.values()), ours


def same_deviations(results: FlowResults) -> Found:
    """Check that the deviation of each of the six is nearly the same on both networks."""
    ours = {
        p: deviation(results, "unconstrained", p) - deviation(results, "constrained", p)
        for p in SIX
    }
    return all(abs(change) <= SAME_DEVIATION for change in ours.values()), ours


def between_networks(metric: Metric, holds: Callable[[float, float], bool]) -> Check:
    """Return a check of a share's mean over the six policies, constrained and unconstrained."""

    def check(results: FlowResults) -> Found:
        before, after = (fmean(metric(results, table, p) for p in SIX) for table in BOTH)
        return holds(before, after), dict(zip(BOTH, (before, after), strict=True))

    return check


def saving(other: str, published: float) -> Check:
    """Return a check that FS saves time against another policy, with ten users."""

    def check(results: FlowResults) -> Found:
        mine, theirs = (makespan(results, "users", p) for p in ("fs", other))
        return 1 - mine / theirs >= SAVED * published, {"saved": 1 - mine / theirs}

    return check


def overhead(where: str, mean_ms: float, most_ms: float) -> Check:
    """Return a check that rounds of FS take no longer, in the mean and at most."""

    def check(results: FlowResults) -> Found:
        rounds = [r for r in results.overhead if (r.policy, r.where) == ("fs", where)]
        if not rounds:
            raise NotRunError(f"rounds {where}")
        ours = {"mean": 1e3 * rounds[0].mean_s, "max": 1e3 * rounds[0].max_s}
        return ours["mean"] <= mean_ms and ours["max"] <= most_ms, ours

    return check


def supplement(results: FlowResults) -> Found:
    """Check that J37 changes the figures of the other jobs little."""
    ours = {}
    *_, last = job_kinds()
    for policy in ("fs", "fsp", "fsu"):
        for name, metric in (("makespan", makespan), ("time", mean_time), ("bytes", network_gb)):
            without = metric(results, "constrained", policy)
            if name == "time":  # of the jobs that are in both
                times = _of(results, "supplement", policy).times
                change = fmean(t.run_s for j, t in times.items() if j != last) / without - 1
            else:
                change = metric(results, "supplement", policy) / without - 1
            ours[f"{policy} {name}"] = change
    return all(abs(change) <= UNCHANGED for change in ours.values()), ours


# --- Headgate's own goals ------------------------------------------------------------------------

GOALS: dict[str, tuple[Metric, bool, str, str]] = {  # metric, less is better, unit, name
    "makespan": (makespan, True, "s", "makespan"),
    "fairness": (fairness, False, "number", "mean fairness"),
    "network bytes": (network_gb, True, "GB", "bytes over the network"),
}


def _gain(results: FlowResults, table: str, goal: str) -> tuple[float, float, float]:
    """Return the figure of `headgate`, the best of the six, and the relative gain."""
    metric, less, *_ = GOALS[goal]
    mine = metric(results, table, "headgate")
    every = [metric(results, table, p) for p in SIX]
    best = min(every) if less else max(every)
    if not best:
        return mine, best, 0.0 if mine == best else -1.0
    return mine, best, (1 - mine / best) if less else (mine / best - 1)


def as_good(table: str, goal: str) -> Check:
    """Return a check that `headgate` is at least as good as the best of the six."""

    def check(results: FlowResults) -> Found:
        mine, best, gain = _gain(results, table, goal)
        return gain >= 0, {"headgate": mine, "best of six": best}

    return check


def _gains(results: FlowResults) -> dict[str, float]:
    return {f"{goal}, {t}": _gain(results, t, goal)[2] for t in BOTH for goal in GOALS}


def as_good_everywhere(results: FlowResults) -> Found:
    """Check that `headgate` is at least as good in every metric on both networks."""
    ours = _gains(results)
    return all(gain >= 0 for gain in ours.values()), ours


def clearly_better(results: FlowResults) -> Found:
    """Check that `headgate` is clearly better in one metric on both networks."""
    ours = _gains(results)
    return any(min(ours[f"{g}, {t}"] for t in BOTH) >= CLEARLY for g in GOALS), ours
