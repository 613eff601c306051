"""What the flow policies share: a round is one min-cost flow over all jobs.

A policy says how many tasks may and must be placed (`Demand`), and whose runs are cut short.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from itertools import chain, count

import numpy as np

from headgate.base.rng import Random
from headgate.decision.account import Account
from headgate.decision.costs import prices_per_byte, shard_prices
from headgate.decision.cpu_tasks import place_cpu_tasks
from headgate.decision.standing import Standing, standing, unplaceable
from headgate.flow import Ints
from headgate.model import Job
from headgate.policies.flow.accounts import free_gpu_price_s, job_accounts, run_price_s
from headgate.policies.flow.aggregated import Placed, Round
from headgate.policies.flow.laminar import LaminarRound
from headgate.policies.flow.prices import wait_prices
from headgate.policies.flow.refusals import refusals, strangers
from headgate.protocol import Placement, Plan, Reason
from headgate.protocol.reasons import PolicyRefuses
from headgate.state import Scratch, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Demand:
    """What a policy asks of a round; int64 arrays.

    Jobs are limited in groups: each job alone, or several together. Of a group at most `most` tasks
    are placed, and at least `least` where GPUs allow. `target` are the jobs' fair shares.
    """

    target: Ints  # [jobs]
    group: Ints  # [jobs]
    most: Ints  # [groups]
    least: Ints  # [groups]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """What a policy makes of an optimal flow: what is placed now, and what else its plan says.

    `wait_price` is what waiting costs each job, `[jobs]`, for those who ask why they wait.
    """

    placed: Placed
    wait_price: Ints
    preemptions: tuple[int, ...] = ()
    missed: tuple[tuple[int, float, int], ...] = ()
    again_at: float | None = None


class FlowPolicy(ABC):
    """A round of a flow policy, but for what it demands and what it makes of the flow."""

    name: str
    plans_ahead = False
    """Whether a round is of use when no GPU is free."""

    def __init__(self, *, alpha1: float, alpha2: float, alpha3: float = 1.0) -> None:
        """Take the prices; `alpha3` matters only where a demand's `least` is below its `most`."""
        self._alpha1, self._alpha2, self._alpha3 = alpha1, alpha2, alpha3

    @abstractmethod
    def demand(self, now: Standing) -> Demand:
        """Return how many tasks may and must be placed."""

    def choose(
        self, snapshot: Snapshot, now: Standing, demand: Demand, round_: Round, routed: Placed
    ) -> Choice:
        """Return what of a flow is done now; `routed` are indices into `now.task`. Here: all."""
        del snapshot, now
        return Choice(placed=routed, wait_price=2 * round_.wait_price[demand.group])

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
        demand, offer, solved = self._solved(snapshot, now)
        routed = _first_come(solved.placed(), offer.kind)
        routed = replace(routed, task=offer.task[routed.task])
        choice = self.choose(snapshot, now, demand, solved.round, routed)
        return Plan(
            placements=(*scratch.placements, *_placements(snapshot, now, choice.placed)),
            preemptions=choice.preemptions,
            missed=choice.missed,
            again_at=choice.again_at,
            refusals=(
                *waiting_for_cpus,
                *strangers(self.name, snapshot, now),
                *refusals(
                    snapshot,
                    now,
                    target=demand.target,
                    group=demand.group,
                    offered=offer.task,
                    solved=solved,
                    placed=choice.placed,
                    wait_price=choice.wait_price,
                ),
            ),
        )

    def accounts(self, snapshot: Snapshot) -> dict[int, Account]:
        """Return how each job stands in the round of a snapshot, by its row."""
        now = standing(snapshot)
        demand = self.demand(now)
        offer = _offer(snapshot, now, demand.most[demand.group], ahead=self.plans_ahead)
        round_ = self.round_of(snapshot, now, demand, offer)
        return job_accounts(now, demand.target, demand.group, round_)

    def cost_s(self, snapshot: Snapshot, task: int, node: int) -> float:
        """Return the price of running a task on a node, in seconds."""
        return run_price_s(snapshot, task, node, alpha1=self._alpha1, alpha2=self._alpha2)

    def slot_price_s(self, snapshot: Snapshot, node: int, memory_bytes: int) -> float | None:
        """Return what is lost, in seconds, with one free GPU of a node less; None for a run."""
        now = standing(snapshot)
        _, _, solved = self._solved(snapshot, now)
        return free_gpu_price_s(now, solved, node, memory_bytes)

    def _solved(self, snapshot: Snapshot, now: Standing) -> tuple[Demand, Offer, LaminarRound]:
        demand = self.demand(now)
        offer = _offer(snapshot, now, demand.most[demand.group], ahead=self.plans_ahead)
        return demand, offer, LaminarRound(self.round_of(snapshot, now, demand, offer))

    def round_of(self, snapshot: Snapshot, now: Standing, demand: Demand, offer: Offer) -> Round:
        """Price the tasks of an offer."""
        each = np.array([len(r) for r in offer.reads], np.int64)  # reads per kind
        shards, shard = np.unique(
            np.fromiter(chain.from_iterable(offer.reads), np.int64), return_inverse=True
        )
        size_bytes = snapshot.shards.size_bytes.array()[shards]
        replicas = snapshot.shards.replicas.array()[shards].tolist()
        per_byte = prices_per_byte(snapshot.bandwidth, alpha1=self._alpha1, alpha2=self._alpha2)

        read_kind = np.repeat(np.arange(len(each)), each)
        waiting_bytes = np.bincount(
            demand.group[offer.kind_job[read_kind]],
            offer.kind_count[read_kind] * size_bytes[shard],
            minlength=len(demand.most),
        )
        waiting = np.bincount(demand.group, now.waiting.sum(axis=1), minlength=len(demand.most))
        mean_bytes = waiting_bytes / np.maximum(waiting, 1)

        reads = each[offer.kind]  # per task
        read_task = np.repeat(np.arange(len(reads)), reads)
        nth = np.arange(len(read_task)) - np.repeat(np.cumsum(reads) - reads, reads)
        first = np.cumsum(each) - each
        return Round(
            node_rack=snapshot.nodes.rack.array().astype(np.int64),
            free=now.free,
            task_job=demand.group[now.task_job[offer.task]],
            task_class=now.task_class[offer.task],
            read_task=read_task,
            read_shard=shard[first[offer.kind[read_task]] + nth],
            shard_price=shard_prices(size_bytes, per_byte),
            replica_first=np.cumsum([0, *map(len, replicas)]),
            replica_node=np.fromiter(chain.from_iterable(replicas), np.int64),
            most=demand.most,
            least=demand.least,
            wait_price=wait_prices(
                mean_bytes, snapshot.bandwidth, alpha3=self._alpha3, least=now.free.shape[1]
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Offer:
    """The tasks that go into the flow, by kind: those of a kind differ in nothing but age.

    Of each kind only the first ones are offered, as many as its job may place.
    """

    task: Ints  # [tasks] indices into `Standing.task`, ascending
    kind: Ints  # [tasks]
    kind_job: Ints  # [kinds] index into `Standing.jobs`
    kind_count: Ints  # [kinds] tasks that wait, offered or not
    reads: list[tuple[int, ...]]  # [kinds] rows of shards


def _offer(snapshot: Snapshot, now: Standing, most: Ints, *, ahead: bool) -> Offer:
    """Return the tasks that might be placed now, or, `ahead`, on any GPU that is up."""
    fits = now.task_class < len(now.class_bytes)
    able = np.flatnonzero(fits & (most[now.task_job] > 0) & (ahead or now.free.any()))
    job, size = now.task_job[able], now.task_class[able]
    reads = list(map(snapshot.reads, now.task[able].tolist()))
    number = dict(zip(dict.fromkeys(reads), count(), strict=False))
    read = np.fromiter(map(number.__getitem__, reads), np.int64, len(reads))
    alike = (job * len(now.class_bytes) + size) * len(number) + read
    kinds, example, kind = np.unique(alike, return_index=True, return_inverse=True)
    first = nth_of_equals(kind) < most[job]
    return Offer(
        task=able[first],
        kind=kind[first],
        kind_job=job[example],
        kind_count=np.bincount(kind, minlength=len(kinds)),
        reads=[reads[n] for n in example.tolist()],
    )


def _first_come(placed: Placed, kind: Ints) -> Placed:
    """Let the first tasks of each kind run, since which of them do is all the same to the flow."""
    members = np.argsort(kind, kind="stable")
    wanted = np.sort(kind[placed.task])
    task = members[np.searchsorted(kind[members], wanted) + nth_of_equals(wanted)]
    by_kind = np.argsort(kind[placed.task], kind="stable")
    order = np.argsort(task)
    return Placed(
        task=task[order],
        node=placed.node[by_kind][order],
        kind=placed.kind[by_kind][order],
        price=placed.price[by_kind][order],
    )


def nth_of_equals(values: Ints) -> Ints:
    """Return how many equal values come before each one."""
    order = np.argsort(values, kind="stable")
    nth = np.empty_like(order)
    nth[order] = np.arange(len(order)) - np.searchsorted(values[order], values[order])
    return nth


def _placements(snapshot: Snapshot, now: Standing, placed: Placed) -> list[Placement]:
    """Give each placed task a GPU of its node and class, lower indices to earlier tasks."""
    kinds = now.free.shape[1]
    cell = placed.node * kinds + placed.kind
    first = np.cumsum(now.free.ravel()) - now.free.ravel()  # `free_gpu` is by node and class
    gpu = (
        now.free_gpu[first[cell] + nth_of_equals(cell)]
        - snapshot.nodes.first_gpu.array()[placed.node]
    )
    return [
        Placement(task=task, node=node, gpus=(index,))
        for task, node, index in zip(
            now.task[placed.task].tolist(),
            placed.node.tolist(),
            gpu.tolist(),
            strict=True,
        )
    ]
