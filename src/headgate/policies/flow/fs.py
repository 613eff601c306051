"""Flow sharing: every job its fair share, every task as near to its data as all of them together
allow, in one min-cost flow per round; what runs is left alone."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np

from headgate.base.rng import Random
from headgate.decision import Parameter, Policy, PolicyInfo
from headgate.decision.cpu_tasks import place_cpu_tasks
from headgate.decision.shares import Entitlement, entitle, fair_shares
from headgate.flow import Ints, OrToolsSolver, Solver
from headgate.model import Job
from headgate.policies.flow.aggregated import Aggregated, Placed, Round
from headgate.policies.flow.prices import prices_per_byte, shard_prices, wait_prices
from headgate.policies.flow.refusals import refusals, strangers
from headgate.policies.flow.standing import Standing, standing, unplaceable
from headgate.protocol import Placement, Plan, Reason
from headgate.protocol.reasons import PolicyRefuses
from headgate.state import Scratch, Snapshot

PARAMETERS = (
    Parameter(
        name="alpha1",
        default=1.5,
        unit="1",
        meaning="price of a second spent reading within the rack",
        above=1.0,
    ),
    Parameter(
        name="alpha2",
        default=2.0,
        unit="1",
        meaning="price of a second spent reading across racks",
        above=1.0,
    ),
    Parameter(
        name="alpha3",
        default=2.0,
        unit="1",
        meaning="half the price of waiting, per second that the job's average task would spend "
        "reading across racks; small values hold tasks back until a nearer GPU is free",
        above=1.0,
    ),
)


class FlowSharing:
    """The policy `fs`: flow paper, sections 3 to 6, without preemption.

    Each round a job may win up to `a_j = clip(share - held, 0, waiting)` of the free GPUs, and more
    where GPUs would be left over; a job above its share wins nothing until then. Whether it takes
    them is a matter of price: a task waits when its cheapest way to run costs more than
    2 x alpha3 x (the time that the job's average waiting task needs to read across racks). With
    `alpha1` and `alpha2` below `2 * alpha3`, as by default, no task of average size or below ever
    waits by price; by default only tasks of more than twice the average may. A job
    that holds nothing must place one task if any GPU that may be its own fits (`A_min = 1`), so
    price can hold back no job for ever.
    """

    name = "fs"

    def __init__(self, *, alpha1: float = 1.5, alpha2: float = 2.0, alpha3: float = 2.0) -> None:
        self._alpha1, self._alpha2, self._alpha3 = alpha1, alpha2, alpha3
        self._solver: Solver = OrToolsSolver()

    def refuses(self, job: Job) -> Reason | None:
        """Refuse gangs and tasks of several GPUs, which a unit of flow cannot stand for."""
        what = unplaceable(job)
        return None if what is None else PolicyRefuses(policy=self.name, what=what)

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        """Place what one optimal flow of the round places; ties fall the same way each time."""
        del rng
        scratch = Scratch(snapshot)
        waiting_for_cpus = place_cpu_tasks(scratch)
        now = standing(snapshot)
        target = fair_shares(now.hierarchy, unfinished=now.unfinished, gpus=now.gpus)
        won = entitle(
            now.hierarchy,
            target=target,
            held=now.held,
            waiting=now.waiting,
            free=now.free.sum(axis=0),
        )
        offer = _offer(snapshot, now, won.most)
        aggregated = Aggregated(self._round(snapshot, now, won, offer))
        solution = self._solver.solve(aggregated.network)
        placed = _first_come(aggregated.placed(solution), offer.kind)
        return Plan(
            placements=(*scratch.placements, *_placements(snapshot, now, offer, placed)),
            refusals=(
                *waiting_for_cpus,
                *strangers(self.name, snapshot, now),
                *refusals(
                    snapshot,
                    now,
                    target=target,
                    offered=offer.task,
                    aggregated=aggregated,
                    placed=placed,
                ),
            ),
        )

    def _round(self, snapshot: Snapshot, now: Standing, won: Entitlement, offer: _Offer) -> Round:
        """Price the tasks of an offer."""
        each = np.array([len(r) for r in offer.reads], np.int64)  # reads per kind
        shards, shard = np.unique(
            np.fromiter(chain.from_iterable(offer.reads), np.int64), return_inverse=True
        )
        size_bytes = snapshot.shards.size_bytes.array()[shards]
        replicas = [snapshot.replicas(s) for s in shards.tolist()]
        per_byte = prices_per_byte(snapshot.bandwidth, alpha1=self._alpha1, alpha2=self._alpha2)

        read_kind = np.repeat(np.arange(len(each)), each)
        waiting_bytes = np.bincount(
            offer.kind_job[read_kind],
            offer.kind_count[read_kind] * size_bytes[shard],
            minlength=len(now.jobs),
        )
        mean_bytes = waiting_bytes / np.maximum(now.waiting.sum(axis=1), 1)

        reads = each[offer.kind]  # per task
        read_task = np.repeat(np.arange(len(reads)), reads)
        nth = np.arange(len(read_task)) - np.repeat(np.cumsum(reads) - reads, reads)
        first = np.cumsum(each) - each
        return Round(
            node_rack=snapshot.nodes.rack.array().astype(np.int64),
            free=now.free,
            task_job=now.task_job[offer.task],
            task_class=now.task_class[offer.task],
            read_task=read_task,
            read_shard=shard[first[offer.kind[read_task]] + nth],
            shard_price=shard_prices(size_bytes, per_byte),
            replica_first=np.cumsum([0, *map(len, replicas)]),
            replica_node=np.fromiter(chain.from_iterable(replicas), np.int64),
            most=won.most,
            least=((now.held == 0) & (won.share > 0)).astype(np.int64),
            wait_price=wait_prices(
                mean_bytes, snapshot.bandwidth, alpha3=self._alpha3, least=now.free.shape[1]
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Offer:
    """The tasks that go into the network, by kind: those of a kind differ in nothing but age.

    Of each kind only the first ones are offered, as many as its job may place.
    """

    task: Ints  # [tasks] indices into `Standing.task`, ascending
    kind: Ints  # [tasks]
    kind_job: Ints  # [kinds] index into `Standing.jobs`
    kind_count: Ints  # [kinds] tasks that wait, offered or not
    reads: list[tuple[int, ...]]  # [kinds] rows of shards


def _offer(snapshot: Snapshot, now: Standing, most: Ints) -> _Offer:
    """Return the tasks that might be placed now."""
    fits = now.task_class < len(now.class_bytes)
    able = np.flatnonzero(fits & (most[now.task_job] > 0) & now.free.any())
    kinds: dict[tuple[int, int, tuple[int, ...]], int] = {}
    columns = (now.task[able], now.task_job[able], now.task_class[able])
    kind = np.array(
        [
            kinds.setdefault((job, size, snapshot.reads(task)), len(kinds))
            for task, job, size in zip(*(c.tolist() for c in columns), strict=True)
        ],
        np.int64,
    )
    first = _nth_of_equals(kind) < most[now.task_job[able]]
    return _Offer(
        task=able[first],
        kind=kind[first],
        kind_job=np.array([job for job, _, _ in kinds], np.int64),
        kind_count=np.bincount(kind, minlength=len(kinds)),
        reads=[reads for _, _, reads in kinds],
    )


def _first_come(placed: Placed, kind: Ints) -> Placed:
    """Let the first tasks of each kind run, since which of them do is all the same to the flow."""
    members = np.argsort(kind, kind="stable")
    wanted = np.sort(kind[placed.task])
    task = members[np.searchsorted(kind[members], wanted) + _nth_of_equals(wanted)]
    by_kind = np.argsort(kind[placed.task], kind="stable")
    order = np.argsort(task)
    return Placed(
        task=task[order], node=placed.node[by_kind][order], kind=placed.kind[by_kind][order]
    )


def _nth_of_equals(values: Ints) -> Ints:
    """Return how many equal values come before each one."""
    order = np.argsort(values, kind="stable")
    nth = np.empty_like(order)
    nth[order] = np.arange(len(order)) - np.searchsorted(values[order], values[order])
    return nth


def _placements(
    snapshot: Snapshot, now: Standing, offer: _Offer, placed: Placed
) -> list[Placement]:
    """Give each placed task a GPU of its node and class, lower indices to earlier tasks."""
    kinds = now.free.shape[1]
    cell = placed.node * kinds + placed.kind
    first = np.cumsum(now.free.ravel()) - now.free.ravel()  # `free_gpu` is by node and class
    gpu = (
        now.free_gpu[first[cell] + _nth_of_equals(cell)]
        - snapshot.nodes.first_gpu.array()[placed.node]
    )
    return [
        Placement(task=task, node=node, gpus=(index,))
        for task, node, index in zip(
            now.task[offer.task[placed.task]].tolist(),
            placed.node.tolist(),
            gpu.tolist(),
            strict=True,
        )
    ]


def _make(**parameters: float) -> Policy:
    return FlowSharing(**parameters)


INFO = PolicyInfo(
    name="fs",
    idea="fair shares, as near to the data as all tasks together allow; what runs is left alone",
    source="Tang, Zhu, Mao, Fu, Li: Algorithm of scheduling for data-intensive computing "
    "operations onto GPU cluster, Journal of Software 33(12), 2022",
    parameters=PARAMETERS,
    make=_make,
)
