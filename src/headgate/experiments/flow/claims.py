"""Claims of the flow paper as data, and Headgate's own goals for the policy `headgate`.

Fairness is that of the paper's section 5.2 (ideal `share`), except where a claim names another.
"""

from __future__ import annotations

from headgate.experiments.flow import checks
from headgate.experiments.flow.checks import BOTH, COUNT, TURN, YARN
from headgate.experiments.flow.tables import FlowResults
from headgate.experiments.frame.claims import Claim

# --- the claims ----------------------------------------------------------------------------------

_IN_TURN = (
    Claim(
        id="turn-totals",
        text="Jobs in turn take GS 825.6 s, FS 808.2 s and FSP 782.3 s",
        reading=f"each within {checks.TOTAL:.0%}; the one fitted constant makes GS right",
        unit="s",
        published=checks.TURN_S,
        check=checks.totals,
    ),
    Claim(
        id="turn-order",
        text="Jobs in turn take less time under FS than under GS, and less still under FSP",
        reading="in this order",
        unit="s",
        published=checks.TURN_S,
        check=checks.falling(checks.makespan, "in-turn", TURN),
    ),
    Claim(
        id="turn-shares",
        text="Of the bytes of jobs in turn, GS reads 25 % in rack and 15 % across racks, "
        "FS 23 % and 12 %, FSP 16 % and 9 %",
        reading=f"each within {100 * checks.POINTS:.0f} points",
        unit="part",
        published=checks.TURN_SHARES,
        check=checks.turn_shares,
    ),
    Claim(
        id="turn-shares-order",
        text="Jobs in turn move less in rack and across racks under FS than under GS, "
        "and less still under FSP",
        reading="both in this order",
        unit="part",
        published=checks.TURN_SHARES,
        check=checks.turn_shares_fall,
    ),
)

_CONSTRAINED = (
    Claim(
        id="fsu-fastest",
        text="FSU has the least makespan",
        reading="of the six, in parallel on the constrained network",
        unit="s",
        check=checks.first(checks.makespan, "constrained", "fsu", least=True),
    ),
    Claim(
        id="fsu-least-even",
        text="FSU has the largest deviation of fairness",
        reading="of the six",
        unit="number",
        check=checks.first(checks.deviation, "constrained", "fsu", least=False),
    ),
    Claim(
        id="fsu-deviation",
        text="The deviation under FSU is 0.32",
        reading=f"within {checks.POINTS:.2f}",
        unit="number",
        published={"fsu": checks.FSU_DEVIATION},
        check=checks.unfair_deviation,
    ),
    Claim(
        id="fsp-fairest",
        text="FSP has the best fairness",
        reading="the largest mean of the six",
        unit="number",
        check=checks.first(checks.fairness, "constrained", "fsp", least=False),
    ),
    Claim(
        id="fsp-fsu-apart",
        text="FSP and FSU are about 25 % apart in fairness",
        reading=f"FSP's mean is larger by 25 %, give or take {100 * checks.ABOUT:.0f} points",
        unit="number",
        published={"apart": 0.25},
        check=checks.apart,
    ),
    Claim(
        id="fsp-best-times",
        text="FSP has the best times per job",
        reading="the least mean time from first start to last end, of the six",
        unit="s",
        check=checks.first(checks.mean_time, "constrained", "fsp", least=True),
    ),
    Claim(
        id="flow-fairness",
        text="Fairness under the fair flow policies is about 90 to 92 %",
        reading=f"the means of FS and FSP, give or take {100 * checks.POINTS:.0f} points",
        unit="number",
        published={"from": 0.90, "to": 0.92},
        check=checks.level,
    ),
    Claim(
        id="gsd-faster",
        text="GSD runs in less time than GS",
        reading="makespan",
        unit="s",
        check=checks.falling(checks.makespan, "constrained", ("gs", "gsd")),
    ),
    Claim(
        id="gsd-less-fair",
        text="GSD is less fair than GS",
        reading="mean fairness",
        unit="number",
        check=checks.falling(checks.fairness, "constrained", ("gs", "gsd")),
    ),
    Claim(
        id="small-near-ideal",
        text="Small jobs stay near their ideal times",
        reading=f"jobs of at most {checks.SMALL_SHARDS} shards under FS and FSP take at most "
        f"{checks.NEAR_IDEAL:g} times as long as alone on the whole cluster (5.3.1), in the mean",
        unit="ratio",
        check=checks.small_near,
    ),
    Claim(
        id="large-stretch",
        text="Large jobs stretch",
        reading=f"jobs of at least {checks.LARGE_SHARDS} shards more than small ones, and more "
        f"than {checks.NEAR_IDEAL:g} times, against the same ideal",
        unit="ratio",
        check=checks.large_stretch,
    ),
)


def _against_counting() -> tuple[Claim[FlowResults], ...]:
    """Return the claims against policies "of the GPU count", a term that has two readings."""
    readings = (
        ("greedy", "GS, GSP and GSD, constrained", "constrained", COUNT),
        ("queues", "Fair and Capacity, in the comparison of users", "users", YARN),
    )
    fairer = "Flow policies are at least 1.5 times as fair as policies of the GPU count"
    faster = "Flow policies are at least 10 % faster than policies of the GPU count"
    return tuple(
        claim
        for name, compared, table, others in readings
        for claim in (
            Claim(
                id=f"flow-fairer-{name}",
                text=fairer,
                reading=f"mean fairness of FS and FSP against that of {compared}",
                unit="ratio",
                published={"flow / others": 1.5},
                check=checks.fairer(table, others),
            ),
            Claim(
                id=f"flow-faster-{name}",
                text=faster,
                reading=f"mean makespan of FS and FSP against that of {compared}",
                unit="ratio",
                published={"flow / others": 0.9},
                check=checks.faster(table, others),
            ),
        )
    )


_UNCONSTRAINED = (
    Claim(
        id="unconstrained-faster",
        text="Unconstrained, everything is faster",
        reading="the makespan of each of the six, as a part of that constrained, is below 1",
        unit="ratio",
        check=checks.all_faster,
    ),
    Claim(
        id="unconstrained-deviation",
        text="Unconstrained, the deviation of fairness is nearly unchanged",
        reading=f"for each of the six by at most {checks.SAME_DEVIATION:.2f}",
        unit="number",
        check=checks.same_deviations,
    ),
    Claim(
        id="unconstrained-cross",
        text="Unconstrained, more is read across racks",
        reading="share of bytes, mean of the six",
        unit="part",
        check=checks.between_networks(checks.CROSS, lambda before, after: after > before),
    ),
    Claim(
        id="unconstrained-rack",
        text="Unconstrained, about the same is read in rack",
        reading=f"share of bytes, mean of the six, within {checks.UNCHANGED:.0%} of it",
        unit="part",
        check=checks.between_networks(
            checks.RACK, lambda before, after: abs(after / before - 1) <= checks.UNCHANGED
        ),
    ),
    Claim(
        id="unconstrained-local",
        text="Unconstrained, less is read locally",
        reading="share of bytes, mean of the six",
        unit="part",
        check=checks.between_networks(checks.LOCAL, lambda before, after: after < before),
    ),
)

_OTHERS = (
    Claim(
        id="users-fair",
        text="With ten users, integrated flow takes 9.52 % less time than Fair",
        reading=f"FS, makespan; at least {checks.SAVED:.0%} of the published saving",
        unit="part",
        published={"saved": 0.0952},
        check=checks.saving("fair", 0.0952),
    ),
    Claim(
        id="users-capacity",
        text="With ten users, integrated flow takes 11.27 % less time than Capacity",
        reading=f"FS, makespan; at least {checks.SAVED:.0%} of the published saving",
        unit="part",
        published={"saved": 0.1127},
        check=checks.saving("capacity", 0.1127),
    ),
    Claim(
        id="overhead-test-bed",
        text="A round takes 5.04 ms in the mean and 10.23 ms at most on the test bed",
        reading=f"FS, measured here; at most {checks.OVERHEAD:g} times as long",
        unit="ms",
        published={"mean": 5.04, "max": 10.23},
        check=checks.overhead("test bed", checks.OVERHEAD * 5.04, checks.OVERHEAD * 10.23),
    ),
    Claim(
        id="overhead-large",
        text="A round takes 1 to 2 s with 2,000 GPUs and 100 jobs",
        reading="FS, with all GPUs free, measured here; at most 2 s",
        unit="ms",
        published={"from": 1000.0, "to": 2000.0},
        check=checks.overhead("large", 2000.0, 2000.0),
    ),
    Claim(
        id="supplement",
        text="The small job J37 changes nothing much under any flow policy",
        reading="makespan, mean time of the other jobs, and network bytes of FS, FSP and FSU: "
        f"none by more than {checks.UNCHANGED:.0%}",
        unit="part",
        check=checks.supplement,
    ),
)


def _goals() -> tuple[Claim[FlowResults], ...]:
    each = tuple(
        Claim(
            id=f"goal-{goal.replace(' ', '-')}-{table}",
            text=f"headgate is at least as good as the best of the six in {name}, {table} network",
            reading="means over the seeds, without tolerance",
            unit=unit,
            check=checks.as_good(table, goal),
            is_goal=True,
        )
        for table in BOTH
        for goal, (_, _, unit, name) in checks.GOALS.items()
    )
    return (
        *each,
        Claim(
            id="goal-all",
            text="headgate is so in makespan, fairness and network bytes, on both networks",
            reading="relative gain over the best (below 0: loss)",
            unit="part",
            check=checks.as_good_everywhere,
            is_goal=True,
        ),
        Claim(
            id="goal-clear",
            text="headgate is clearly better in one of them",
            reading=f"by {checks.CLEARLY:.0%} or more on both networks",
            unit="part",
            check=checks.clearly_better,
            is_goal=True,
        ),
    )


CLAIMS = (
    *_IN_TURN, *_CONSTRAINED, *_against_counting(), *_UNCONSTRAINED, *_OTHERS, *_goals(),
)  # fmt: skip
