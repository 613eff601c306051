"""The live comparison: two MPI jobs at the same time, placed by both methods, and simulated.

Eight nodes in two racks, whose uplinks are shaped. Earlier jobs leave a gap: one of three nodes
starts and ends, and between that a job of four starts. Sequential placement then spreads both jobs
over the racks, closed-minimum placement gives each a rack. The simulation has the same sets of
nodes; the time of a step beside its messages is measured beforehand, in one rack without another
job. Nothing is fitted to the runs that are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from headgate.experiments.bed import PAYLOAD
from headgate.experiments.closed_partition import pages
from headgate.experiments.closed_partition.runs import CLOSED, PLACERS, SEQUENTIAL, place_with
from headgate.experiments.frame.claims import Agreement, agreed
from headgate.experiments.frame.paper import LIVE
from headgate.experiments.frame.report import Report
from headgate.model import Communication, Pattern
from headgate.model.topology import Tree
from headgate.planning.links.contention import Contention
from headgate.planning.links.traffic import traffic_of

RACKS = {"r0": 4, "r1": 4}
UPLINK_MBIT_PER_S = 100
METHODS = (SEQUENTIAL, CLOSED)
JOBS = ("first", "second")
SECONDS = 6.0
"""How long jobs exchange data in one run."""

STEP_BYTES = {Pattern.RING: 4_000_000, Pattern.ALL_TO_ALL: 8_000_000}
"""The patterns that are compared, with the bytes of a step, see `Communication`."""

WITHIN = 0.25
"""A simulated step is right within so much of the measured one."""

_IN_RACK_BYTES_PER_S = 10e9 / 8  # the links of the nodes are not shaped
_NODES_OF = {"earlier": 3, "first": 4, "second": 4}
_HISTORY = (("start", "earlier"), ("start", "first"), ("end", "earlier"), ("start", "second"))


def tree(uplink_mbit_per_s: float = UPLINK_MBIT_PER_S) -> Tree:
    """Return the topology of the test bed, its nodes in order."""
    (per_rack,) = set(RACKS.values())
    uplink = uplink_mbit_per_s * 1e6 / 8 * PAYLOAD
    return Tree.uniform(
        (len(RACKS), per_rack), (uplink, _IN_RACK_BYTES_PER_S), level_names=("core", "rack", "node")
    )


def placed(method: str) -> dict[str, tuple[int, ...]]:
    """Return the nodes of both jobs, as a method places them."""
    topology = tree()
    place = place_with(PLACERS[method], topology)
    used = np.zeros(topology.leaves, np.bool_)
    places_of = {}
    for what, job in _HISTORY:
        if what == "start":
            places = place(used, _NODES_OF[job])
            assert places is not None, "the jobs fit"
            places_of[job] = places
            used[places.taken] = True
        else:
            used[places_of[job].taken] = False
    return {job: tuple(sorted(places_of[job].sites.tolist())) for job in JOBS}


def node_names(method: str) -> dict[str, list[str]]:
    """Return the names of the nodes of both jobs."""
    return {job: [f"n{number}" for number in nodes] for job, nodes in placed(method).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A pattern under a method, and which of the two jobs run at the same time."""

    pattern: Pattern
    method: str
    jobs: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name in tables and claims."""
        return f"{self.pattern}, {self.method}, {' and '.join(self.jobs)}"


def cases() -> tuple[Case, ...]:
    """Return all runs, that which calibrates a pattern before its others."""
    return tuple(
        Case(pattern=pattern, method=method, jobs=jobs)
        for pattern in STEP_BYTES
        for method in reversed(METHODS)
        for jobs in (JOBS[:1], JOBS[1:], JOBS)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCase:
    """A case with the seconds of a step, measured and simulated, in the mean over its jobs."""

    case: Case
    measured_s: float
    simulated_s: float
    calibrates: bool = False

    @property
    def error(self) -> float:
        """The relative error of the simulation."""
        return self.simulated_s / self.measured_s - 1


def pairs(measured: Mapping[Case, Mapping[str, float]]) -> tuple[MeasuredCase, ...]:
    """Return all cases beside their simulation, from the seconds of a step by job."""
    found = []
    beside_s: dict[Pattern, float] = {}
    for case, steps_s in measured.items():
        mean_s = fmean(steps_s.values())
        calibrates = case.pattern not in beside_s
        if calibrates:
            beside_s[case.pattern] = max(0.0, mean_s - simulated_s(case, 0.0))
        simulated = simulated_s(case, beside_s[case.pattern])
        found.append(
            MeasuredCase(case=case, measured_s=mean_s, simulated_s=simulated, calibrates=calibrates)
        )
    return tuple(found)


def simulated_s(case: Case, beside_s: float) -> float:
    """Return the seconds of a step in the mean over the jobs of a case.

    `beside_s` is what a step takes beside its messages.
    """
    topology, nodes = tree(), placed(case.method)
    contention = Contention(topology.capacity)
    for job in case.jobs:
        step = Communication(
            pattern=case.pattern, bytes_per_step=STEP_BYTES[case.pattern], step_s=beside_s
        )
        contention.add(job, traffic_of(topology, np.array(nodes[job]), step))
    contention.changed()
    return fmean(contention.step_s(job) for job in case.jobs)


# --- checks --------------------------------------------------------------------------------------


def judge(found: Sequence[MeasuredCase]) -> list[Agreement]:
    """Return all checks."""
    by = {pair.case: pair for pair in found}
    return [check for pattern in STEP_BYTES for check in _checks(pattern, by)]


def _checks(pattern: Pattern, by: Mapping[Case, MeasuredCase]) -> Iterator[Agreement]:
    both = {m: by[Case(pattern=pattern, method=m, jobs=JOBS)] for m in METHODS}
    alone_s = {
        m: fmean(by[Case(pattern=pattern, method=m, jobs=(j,))].measured_s for j in JOBS)
        for m in METHODS
    }
    slow, fast = both[SEQUENTIAL], both[CLOSED]
    yield Agreement(
        id=f"faster-{pattern}",
        claim=f"{pattern}: two jobs at the same time are faster in closed-minimum sets, measured "
        "and simulated",
        holds=fast.measured_s < slow.measured_s and fast.simulated_s < slow.simulated_s,
        ours=f"{slow.measured_s / fast.measured_s:.1f} times measured, "
        f"{slow.simulated_s / fast.simulated_s:.1f} times simulated",
    )
    yield Agreement(
        id=f"contention-{pattern}",
        claim=f"{pattern}: under sequential placement each job slows the other one down",
        holds=slow.measured_s > (1 + WITHIN) * alone_s[SEQUENTIAL],
        ours=f"{slow.measured_s / alone_s[SEQUENTIAL]:.2f} times the step alone",
    )
    some = [p for c, p in by.items() if c.pattern == pattern and c.method == SEQUENTIAL]
    worst = max(some, key=lambda p: abs(p.error))
    yield Agreement(
        id=f"step-{pattern}",
        claim=f"{pattern}: simulated steps under sequential placement within {WITHIN:.0%} of the "
        "measured ones",
        holds=all(abs(pair.error) <= WITHIN for pair in some),
        ours=f"at most {worst.error:+.1%}",
    )


def rows(found: Sequence[MeasuredCase]) -> list[dict[str, Any]]:
    """Return a row for each run; `nodes` are those of its jobs."""
    names = {method: node_names(method) for method in METHODS}
    return [
        {
            "pattern": str(pair.case.pattern),
            "placement": pair.case.method,
            "nodes": "; ".join(",".join(names[pair.case.method][job]) for job in pair.case.jobs),
            "measured_step_s": pair.measured_s,
            "simulated_step_s": pair.simulated_s,
            "error": pair.error,
            "calibrates": pair.calibrates,
        }
        for pair in found
    ]


def report(found: Sequence[MeasuredCase]) -> Report:
    """Return the page, with a row for each run."""
    return pages.report(
        LIVE,
        "MPI jobs on shaped links, beside the simulator",
        f"Seconds of a step; racks of four nodes, uplinks of {UPLINK_MBIT_PER_S} Mbit/s. The "
        "first run of each pattern calibrates what a step takes beside its messages.",
        agreed(judge(found)),
        {"live": rows(found)},
    )
