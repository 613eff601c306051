"""What the flow policies share: a round is one min-cost flow over all jobs.

A policy says how many tasks may and must be placed (`Demand`), and whose runs are cut short. Round
after round of one line of states, only what has changed is told to the solver (`Line`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from headgate.base.order import nth_of_equals
from headgate.base.rng import Random
from headgate.flow import Ints
from headgate.model import Job
from headgate.planning.account import Account
from headgate.planning.amounts import with_room
from headgate.planning.certified import Certified
from headgate.planning.cpu_tasks import place_cpu_tasks
from headgate.planning.standing import Standing, standing, unplaceable
from headgate.policies.flow.accounts import free_gpu_price_s, job_accounts, run_price_s
from headgate.policies.flow.aggregated import Placed, Round
from headgate.policies.flow.later import Later
from headgate.policies.flow.line import Line, first_round
from headgate.policies.flow.offers import Offers, candidates
from headgate.policies.flow.refusals import refusals, strangers
from headgate.policies.flow.scene import Demand, Prices, Scene
from headgate.protocol import NO_STEPS, Memo, OnDemand, Plan, Reason, Refusal, Steps
from headgate.protocol.reasons import PolicyRefuses
from headgate.state import Scratch, Snapshot

_PROVEN_EVERY = 64  # of so many rounds that follow another one, one is proven


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """What a policy makes of an optimal flow: what is placed now, and what else its plan says.

    `wait_price` is what waiting costs each job, `[jobs]`, for those who ask why they wait.
    """

    placed: Placed
    wait_price: Ints
    stops: Steps = NO_STEPS
    memo: Memo = field(default_factory=dict)
    again_at: float | None = None


class FlowPolicy(ABC):
    """A round of a flow policy, but for what it demands and what it makes of the flow."""

    name: str
    plans_ahead = False
    """Whether GPUs that are held now are given to tasks, too, which then wait for them."""
    may_wait = False
    """Whether a demand's `least` may be below its `most`."""

    def __init__(self, *, alpha1: float, alpha2: float, alpha3: float | None = 1.0) -> None:
        """Take the prices; without `alpha3`, nobody asks what waiting costs."""
        self._prices = Prices(alpha1=alpha1, alpha2=alpha2, alpha3=alpha3, may_wait=self.may_wait)
        self._kept: list[Line] = []  # the line that was decided last, while nobody works on it
        self.certified = Certified()

    def __getstate__(self) -> dict[str, object]:
        """Leave what has been solved out of copies."""
        return self.__dict__ | {"_kept": []}

    def later(self, now: Standing, before: Later | None) -> Later | None:
        """Return the GPUs held now that tasks may be given, too; here none.

        `before` are those of an earlier snapshot, which are not used again.
        """
        del now, before
        return None

    @abstractmethod
    def demand(self, now: Standing) -> Demand:
        """Return how many tasks may and must be placed."""

    def choose(self, scene: Scene, round_: Round, routed: Placed) -> Choice:
        """Return what of a flow is done now; `routed` are indices into `now.task`. Here: all."""
        return Choice(placed=routed, wait_price=2 * round_.wait_price[scene.demand.group])

    def refuses(self, job: Job) -> Reason | None:
        """Refuse gangs and tasks of several GPUs, which a unit of flow cannot stand for."""
        what = unplaceable(job)
        return None if what is None else PolicyRefuses(policy=self.name, what=what)

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        """Place what one optimal flow of the round places.

        On a snapshot that follows the one decided last, the flow is kept optimal rather than found
        anew: it costs as much, while ties between equal flows may fall otherwise. States on paper,
        and what was decided before, are solved apart from that.
        """
        del rng
        snapshot = snapshot.unexplained()  # else each plan would keep alive all those before it
        scratch = Scratch(snapshot)
        waiting_for_cpus = place_cpu_tasks(scratch)
        line = self._line(snapshot)
        scene = line.scene
        now, demand = scene.now, scene.demand
        choice = self.choose(scene, line.solved.round, line.placed())

        placed, short = with_room(scratch, _starts(snapshot, now, choice.placed))

        def told() -> Iterator[Refusal]:
            yield from waiting_for_cpus
            yield from short
            yield from strangers(self.name, snapshot, now)
            yield from refusals(
                snapshot,
                now,
                target=demand.target,
                group=demand.group,
                most=demand.most,
                placed=choice.placed,
                wait_price=choice.wait_price,
                cheapest=scene.cheapest,
            )

        return Plan(
            steps=scratch.steps() + placed + choice.stops,
            memo=choice.memo,
            again_at=choice.again_at,
            refusals=OnDemand(told),
        )

    def _line(self, snapshot: Snapshot) -> Line:
        """Return the line of a snapshot, its round solved."""
        if snapshot.on_paper:
            return Line(self._scene(snapshot))
        last = self._kept.pop() if self._kept else None
        if last is not None and last.knows(snapshot):
            self._kept[:] = [last]
            return Line(self._scene(snapshot))
        scene = self._scene(snapshot, last)
        line = last if last is not None and last.next(scene) else Line(scene)
        if line.followed % _PROVEN_EVERY == 1:
            line = self._proven(line)
        self._kept[:] = [line]
        return line

    def _proven(self, line: Line) -> Line:
        """Return a line whose plan is proven optimal: this one, or where it is not, a new one."""
        certificate = line.certificate()
        known = self.certified
        self.certified = Certified(
            rounds=known.rounds + 1,
            violations=known.violations + (not certificate.clean),
            last_gap=certificate.gap,
        )
        return line if certificate.clean else Line(line.scene)

    def _scene(self, snapshot: Snapshot, last: Line | None = None) -> Scene:
        """Return what is known before a round is solved, and what was known of the last one."""
        before = None if last is None else last.scene
        now = standing(snapshot, None if before is None else before.now)
        demand = self.demand(now)
        kind = snapshot.tasks.alike.take(now.task).astype(np.int64)
        most = demand.most[demand.group]
        return Scene(
            snapshot=snapshot,
            now=now,
            later=self.later(now, None if before is None else before.later),
            demand=demand,
            tasks=candidates(now, kind, most, ahead=self.plans_ahead),
            prices=self._prices,
        )

    def accounts(self, snapshot: Snapshot) -> dict[int, Account]:
        """Return how each job stands in the round of a snapshot, by its row."""
        scene = self._scene(snapshot)
        demand, round_ = scene.demand, first_round(scene, Offers())
        return job_accounts(scene.now, demand.target, demand.group, round_)

    def cost_s(self, snapshot: Snapshot, task: int, node: int) -> float:
        """Return the price of running a task on a node, in seconds."""
        prices = self._prices
        return run_price_s(snapshot, task, node, alpha1=prices.alpha1, alpha2=prices.alpha2)

    def slot_price_s(self, snapshot: Snapshot, node: int, memory_bytes: int) -> float | None:
        """Return what is lost, in seconds, with one free GPU of a node less; None for a run."""
        scene = self._scene(snapshot)
        return free_gpu_price_s(scene.now, Line(scene).solved, node, memory_bytes)


def _starts(snapshot: Snapshot, now: Standing, placed: Placed) -> Steps:
    """Give each placed task a GPU of its node and class, lower indices to earlier tasks."""
    kinds = now.free.shape[1]
    cell = placed.node * kinds + placed.kind
    first = np.cumsum(now.free.ravel()) - now.free.ravel()  # `free_gpu` is by node and class
    gpu = (
        now.free_gpu[first[cell] + nth_of_equals(cell)]
        - snapshot.nodes.first_gpu.array()[placed.node]
    )
    return Steps.one_gpu_each(now.task[placed.task], placed.node, gpu)
