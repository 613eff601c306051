"""The published claims on total times, and Headgate's own goals."""

from __future__ import annotations

from statistics import fmean

from headgate.experiments.frame.claims import Claim, Numbers
from headgate.experiments.label_queues.results import LabelResults
from headgate.experiments.label_queues.runs import ALONE, HEADGATE, MIXED, NEW_CAPACITY

PUBLISHED_MIXED = 0.134
PUBLISHED_ALONE = 0.3231


def _mixed(results: LabelResults) -> tuple[bool, Numbers]:
    less = results.mixed(NEW_CAPACITY)
    return less > 0, {"less": less}


def _alone(results: LabelResults) -> tuple[bool, Numbers]:
    most = results.sizes.alone[-1]
    less = results.alone(NEW_CAPACITY)[most]
    return less > 0, {f"less at {most}": less}


def _grows(results: LabelResults) -> tuple[bool, Numbers]:
    less = results.alone(NEW_CAPACITY)
    first, *_, last = less.values()
    return last > first, {f"at {jobs}": value for jobs, value in less.items()}


def _mostly(results: LabelResults) -> tuple[bool, Numbers]:
    better = fmean(results.better(NEW_CAPACITY))
    return better > 0.5, {"runs": better}


def _goal_mixed(results: LabelResults) -> tuple[bool, Numbers]:
    jobs = 2 * results.sizes.mixed
    own, theirs = (fmean(results.totals(MIXED, jobs, name)) for name in (HEADGATE, NEW_CAPACITY))
    return own <= theirs, {HEADGATE: own, NEW_CAPACITY: theirs}


def _goal_alone(results: LabelResults) -> tuple[bool, Numbers]:
    ours = {
        f"at {jobs}": fmean(results.totals(ALONE, jobs, HEADGATE))
        / fmean(results.totals(ALONE, jobs, NEW_CAPACITY))
        for jobs in results.sizes.alone
    }
    return max(ours.values()) <= 1, ours


def _goal_published(results: LabelResults) -> tuple[bool, Numbers]:
    most = results.sizes.alone[-1]
    mixed, alone = results.mixed(HEADGATE), results.alone(HEADGATE)[most]
    ours = {"mixed": mixed, f"alone at {most}": alone}
    return mixed >= PUBLISHED_MIXED and alone >= PUBLISHED_ALONE, ours


_MEAN = "Mean total time of the group, as a part less than that under Capacity."

CLAIMS: tuple[Claim[LabelResults], ...] = (
    Claim(
        id="mixed-total",
        text="NewCapacity finishes a mixed group of CPU and GPU jobs sooner than Capacity",
        reading=f"{_MEAN} Three random orders.",
        unit="part",
        check=_mixed,
        published={"less": PUBLISHED_MIXED},
    ),
    Claim(
        id="alone-total",
        text="NewCapacity finishes many WordCounts sooner than Capacity",
        reading=f"{_MEAN} Without the outliers of a box plot.",
        unit="part",
        check=_alone,
        published={"less at 60": PUBLISHED_ALONE},
    ),
    Claim(
        id="gain-grows",
        text="The gain over Capacity grows with the number of WordCounts",
        reading="It is larger for the most jobs than for the fewest.",
        unit="part",
        check=_grows,
        published={"at 60": PUBLISHED_ALONE},
    ),
    Claim(
        id="mostly-better",
        text="NewCapacity is not better than Capacity in every run, but in most",
        reading="The part of all runs with the same jobs in which the total time is less, outliers "
        "included: above one half.",
        unit="part",
        check=_mostly,
    ),
    Claim(
        id="goal-mixed",
        text="headgate finishes a mixed group no later than new-capacity",
        reading="Mean total time over three orders.",
        unit="s",
        check=_goal_mixed,
        is_goal=True,
    ),
    Claim(
        id="goal-alone",
        text="headgate finishes WordCounts no later than new-capacity, however many",
        reading="Mean total time, as a multiple of that of new-capacity.",
        unit="ratio",
        check=_goal_alone,
        is_goal=True,
    ),
    Claim(
        id="goal-published",
        text="headgate gains at least what was published of NewCapacity",
        reading=_MEAN,
        unit="part",
        check=_goal_published,
        published={"mixed": PUBLISHED_MIXED, "alone at 60": PUBLISHED_ALONE},
        is_goal=True,
    ),
)
"""All claims, in the order of the report; the last ones are own goals."""
