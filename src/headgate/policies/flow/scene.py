"""What a round of a flow policy is made of: where things stand, what is asked, what tasks cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.flow import Ints
from headgate.planning.costs import prices_per_byte
from headgate.planning.standing import Standing
from headgate.policies.flow.aggregated import Round, cheapest_free
from headgate.policies.flow.later import Later
from headgate.policies.flow.offers import Candidates, Offers
from headgate.policies.flow.prices import wait_prices
from headgate.state import Snapshot

NONE: Ints = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Demand:
    """What a policy asks of a round; int64 arrays.

    Jobs are limited in groups: each job alone, or several together. Of a group at most `most` tasks
    are placed, and at least `least` where GPUs allow. `target` are the jobs' fair shares.
    """

    target: Ints  # [jobs]
    group: Ints  # [jobs]
    row: Ints  # [groups] row of the job, or of the queue
    most: Ints  # [groups]
    least: Ints  # [groups]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What a policy's prices follow from; without `alpha3`, nobody asks what waiting costs.

    Unless tasks `may_wait`, all are placed that may be, as far as GPUs go.
    """

    alpha1: float
    alpha2: float
    alpha3: float | None
    may_wait: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scene:
    """A snapshot, and all that is known of its round before it is solved."""

    snapshot: Snapshot
    now: Standing
    later: Later | None  # GPUs held now that the round may give to tasks
    demand: Demand
    tasks: Candidates
    prices: Prices

    @property
    def most(self) -> Ints:
        """The most tasks that the group of each job may place."""
        return self.demand.most[self.demand.group]

    def up(self) -> Ints:
        """Return the GPUs that are up, `[nodes, classes]`."""
        free = self.now.free
        return np.bincount(self.now.hardware.cell, minlength=free.size).reshape(free.shape)

    def round_of(self, tasks: Ints, offers: Offers) -> Round:
        """Return the round with some of its tasks (indices); `offers` takes note of what they read.

        O(reads and replicas of these tasks + GPUs + jobs + tasks that wait).
        """
        snapshot, now, demand, prices = self.snapshot, self.now, self.demand, self.prices
        later, row = self.later, now.task[tasks]
        read = snapshot.tasks.input.take(row).astype(np.int64)
        offsets, shard = snapshot.inputs.shards.flat(read)
        size_bytes = snapshot.shards.size_bytes.take(shard)
        replica_first, replica_node = snapshot.shards.replicas.flat(shard)
        read_bytes = np.diff(np.append(0, np.cumsum(size_bytes))[offsets])
        offers.note(self.tasks.kind[tasks], read_bytes, shard)
        per_byte = prices_per_byte(snapshot.bandwidth, alpha1=prices.alpha1, alpha2=prices.alpha2)
        return Round(
            node_rack=snapshot.nodes.rack.array().astype(np.int64),
            free=now.free,
            task=row,
            task_job=demand.group[now.task_job[tasks]],
            task_class=now.task_class[tasks],
            read_first=offsets,
            read_bytes=size_bytes,
            per_byte=per_byte,
            replica_first=replica_first,
            replica_node=replica_node,
            job=demand.row,
            most=demand.most,
            least=demand.least,
            wait_price=self._wait_price(offers),
            may_wait=prices.may_wait,
            later_gpu=NONE if later is None else later.runs.gpu,
            later_node=NONE if later is None else later.runs.node,
            later_class=NONE if later is None else later.runs.kind,
            later_price=NONE if later is None else later.price,
        )

    def cheapest(self, tasks: Ints, free: Ints) -> Ints:
        """Return each job's cheapest price of one of these tasks on a GPU that is free.

        Tasks are indices into `Standing.task`; `free` is by node and class; the largest number
        there is stands for none.
        """
        able = tasks[self.tasks.able[tasks]]
        return cheapest_free(self.round_of(able, Offers()), free)[self.demand.group]

    def _wait_price(self, offers: Offers) -> Ints:
        """Return what waiting costs a task of each group, once on each of two arcs."""
        group, groups, alpha3 = self.demand.group, len(self.demand.most), self.prices.alpha3
        if alpha3 is None:
            return np.zeros(groups, np.int64)
        waiting = np.bincount(group, self.now.waiting.sum(axis=1), minlength=groups)
        read_bytes = offers.waiting_bytes(self.tasks, group, groups)
        return wait_prices(
            read_bytes / np.maximum(waiting, 1),
            self.snapshot.bandwidth,
            alpha3=alpha3,
            least=self.now.free.shape[1],
        )
