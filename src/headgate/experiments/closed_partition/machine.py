"""The machine of the published runs, and the jobs that it gets in the simulation.

32 nodes of 12 cores: two groups (NRM) of two modules (R) of eight nodes. Every link has the same
bandwidth, as edges of the published system graph have no weights; `wider` scales the links of
each level above a node's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from headgate.base.rng import Random, stream
from headgate.experiments.closed_partition.kernels import KERNELS, SIZES, Kernel, Size
from headgate.experiments.closed_partition.stream import StreamJob
from headgate.model import Communication
from headgate.model.topology import Tree
from headgate.planning.links.traffic import BestSets

FAN_OUT = (2, 2, 8)
LINK_BYTES_PER_S = 1e9
"""Arbitrary: only the times that communication takes are calibrated, so it cancels out."""

_UNIT_BYTES = 10**9

Split = Mapping[tuple[str, str], tuple[float, float]]
"""By names of kernel and size: seconds of computing, and of communication in the best set, alone.
"""


def machine(wider: float = 1.0) -> Tree:
    """Return the tree of the 32 nodes; a link has `wider` times the bandwidth of one below it."""
    widths = [LINK_BYTES_PER_S * wider**above for above in (2, 1, 0)]
    return Tree.uniform(FAN_OUT, widths, level_names=("core", "NRM", "R", "node"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How many jobs arrive: shares of the nodes that they would use if each ran in its best set.

    `own` are jobs of the set that is measured, `others` those of other users: of 1 to `widest`
    nodes, of random kernels with the ratio of communication that these have at C/64, of `others_s`
    seconds in the mean, exponentially distributed.
    """

    own: float = 0.2
    others: float = 0.3
    widest: int = 8
    others_s: float = 30.0


class Jobs:
    """Draws streams of jobs for a machine, from the split of the kernels' times."""

    def __init__(self, tree: Tree, split: Split, load: Load) -> None:
        self._nodes = tree.leaves
        self._best = BestSets(tree)
        self._split = split
        self._load = load

    def draw(self, size: Size, count: int, seed: int) -> tuple[StreamJob, ...]:
        """Return a stream with `count` jobs of the set, among those of other users.

        Each eight jobs of the set are the eight kernels in random order.
        """
        own, others = stream(seed, "own", size.name), stream(seed, "others", size.name)
        submissions = list(self._own(size, count, own))
        last = submissions[-1].submitted_at
        for job in self._others(others):
            if job.submitted_at > last:
                break
            submissions.append(job)
        return tuple(sorted(submissions, key=lambda job: job.submitted_at))

    def _own(self, size: Size, count: int, rng: Random) -> Iterator[StreamJob]:
        jobs = [self.job(kernel, size) for kernel in KERNELS]
        node_s = sum(job.leaves * job.run_s for job in jobs) / len(jobs)
        at, rest = 0.0, list[StreamJob]()
        for _ in range(count):
            at += rng.expovariate(self._load.own * self._nodes / node_s)
            rest = rest or rng.sample(jobs, len(jobs))
            yield replace(rest.pop(), submitted_at=at)

    def _others(self, rng: Random) -> Iterator[StreamJob]:
        load = self._load
        node_s = load.others_s * (1 + load.widest) / 2
        at = 0.0
        while True:
            at += rng.expovariate(load.others * self._nodes / node_s)
            kernel, nodes = rng.choice(KERNELS), rng.randint(1, load.widest)
            run_s = rng.expovariate(1 / load.others_s)
            part = self._part(kernel) if nodes > 1 else 0.0
            communication = self._communication(kernel, nodes, 0, run_s * (1 - part), run_s * part)
            yield StreamJob(
                submitted_at=at,
                leaves=nodes,
                run_s=run_s,
                communication=communication,
                kind=kernel.name,
                measured=False,
            )

    def job(self, kernel: Kernel, size: Size) -> StreamJob:
        """Return a job of the set, submitted at 0."""
        compute_s, sent_s = self._split[kernel.name, size.name]
        return StreamJob(
            submitted_at=0.0,
            leaves=size.nodes,
            run_s=compute_s + sent_s,
            communication=self._communication(
                kernel, size.nodes, size.processes, compute_s, sent_s
            ),
            kind=kernel.name,
        )

    def _part(self, kernel: Kernel) -> float:
        """Return the part of communication in a kernel's time at the largest size."""
        compute_s, sent_s = self._split[kernel.name, SIZES[-1].name]
        return sent_s / (compute_s + sent_s)

    def _communication(
        self, kernel: Kernel, nodes: int, processes: int, compute_s: float, sent_s: float
    ) -> Communication:
        """Return one step, the whole job: it sends for `sent_s` in the best set, alone."""
        unit = Communication(
            pattern=kernel.pattern, bytes_per_step=_UNIT_BYTES, processes=processes
        )
        unit_s = self._best.step_s(unit, nodes)
        return Communication(
            pattern=kernel.pattern,
            bytes_per_step=round(_UNIT_BYTES * sent_s / unit_s) if unit_s else 0,
            step_s=compute_s,
            processes=processes,
        )
