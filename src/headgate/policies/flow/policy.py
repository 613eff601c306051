"""What the flow policies share: a round is one min-cost flow over all jobs.

`FlowPolicy.decide` names the stages of a round in their order, each of them a module: `eligible`,
`problem`, `solve`, `readback`, `refusals`. A policy says how many tasks of each job may and must be
placed, and which of those that the flow places start now.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from headgate.base.rng import Random
from headgate.flow import Ints
from headgate.model import Job
from headgate.planning.certificates import CertificateStats
from headgate.planning.cpu_tasks import place_cpu_tasks
from headgate.planning.job_prices import JobPrices
from headgate.planning.standing import Standing, standing, unsupported_feature
from headgate.policies.flow.eligible import Entitled, Round, round_of
from headgate.policies.flow.in_flight import Work, in_flight
from headgate.policies.flow.job_prices import free_gpu_price_s, prices_by_job, run_price_s
from headgate.policies.flow.prices import Prices
from headgate.policies.flow.problem import Offered, Whole, offered_problem, pose, whole
from headgate.policies.flow.readback import Choice, plan, routed
from headgate.policies.flow.solve import Flow, Placed, solve
from headgate.policies.flow.warm import Kept, Warm
from headgate.protocol import Plan, Reason
from headgate.protocol.reasons import PolicyRefuses
from headgate.state import Scratch, Snapshot

_PROVEN_EVERY = 64  # of so many rounds that follow another one, one is proven


class FlowPolicy(ABC):
    """A round of a flow policy, but for what jobs are entitled to and which tasks start."""

    name: str
    plans_ahead = False
    """Whether GPUs that are held now are given to tasks, too, which then wait for them."""
    may_wait = False
    """Whether `Entitled.least` may be below `Entitled.most`."""

    def __init__(self, *, alpha1: float, alpha2: float, alpha3: float | None = 1.0) -> None:
        """Take the coefficients of prices; without `alpha3`, waiting has none."""
        self._prices = Prices(alpha1=alpha1, alpha2=alpha2, alpha3=alpha3, may_wait=self.may_wait)
        self._kept = Kept()
        self.certified = CertificateStats()

    @abstractmethod
    def entitle(self, now: Standing) -> Entitled:
        """Return how many tasks may and must be placed."""

    def choose(self, round_: Round, placed: Placed, wait_price: Ints) -> Choice:
        """Return what of a flow starts now, of tasks that are `placed`; here all.

        `placed.task` are indices into `Standing.task`; `wait_price` is by job.
        """
        del round_
        return Choice(starts=placed, wait_price=wait_price)

    def refuses(self, job: Job) -> Reason | None:
        """Refuse gangs and tasks of several GPUs, which a unit of flow cannot stand for."""
        what = unsupported_feature(job)
        return None if what is None else PolicyRefuses(policy=self.name, what=what)

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        """Place what one optimal flow of the round places.

        On a snapshot that follows the one decided last, the flow is kept optimal rather than
        found from scratch: it costs the same, but ties between equal flows may fall otherwise.
        States on paper, and what was decided before, are solved apart from that.
        """
        del rng
        snapshot = snapshot.unexplained()  # else each plan would keep alive all those before it
        scratch = Scratch(snapshot)
        waiting_for_cpus = place_cpu_tasks(scratch)
        with self._kept.lend(snapshot) as warm:
            now, changes = warm.advance(snapshot, ahead=self.plans_ahead)
            round_ = self._round(now, warm.work)
            posed = pose(round_, changes, warm.offered)
            warm.flow = solve(posed, warm.flow)
            if warm.flow.changed % _PROVEN_EVERY == 1 and not self._is_proven(round_, warm):
                posed = pose(round_, None, warm.offered)
                warm.flow = solve(posed, None)
            placed = routed(round_, warm.flow)
        wait_price = 2 * posed.problem.wait_price[round_.entitled.group]
        choice = self.choose(round_, placed, wait_price)
        return plan(self.name, round_, choice, scratch, waiting_for_cpus)

    def _round(self, now: Standing, work: Work | None) -> Round:
        """Return who is eligible, and entitled to what."""
        ahead = None if work is None else in_flight(now, work)
        return round_of(now, ahead, self.entitle(now), self._prices)

    def _is_proven(self, round_: Round, warm: Warm) -> bool:
        """Return whether the flow that was kept is optimal for the round's problem; count it."""
        assert warm.flow is not None
        certificate = warm.flow.certificate(offered_problem(round_, warm.offered))
        known = self.certified
        self.certified = CertificateStats(
            rounds=known.rounds + 1,
            violations=known.violations + (not certificate.clean),
            last_gap=certificate.gap,
        )
        return certificate.clean

    def _posed_apart(self, snapshot: Snapshot) -> tuple[Round, Whole]:
        """Return the round of a snapshot and its problem, apart from what is warm."""
        work = Work(snapshot) if self.plans_ahead else None
        round_ = self._round(standing(snapshot), work)
        return round_, whole(round_, Offered())

    def job_prices(self, snapshot: Snapshot) -> dict[int, JobPrices]:
        """Return how each job stands in the round of a snapshot, by its row."""
        round_, posed = self._posed_apart(snapshot)
        return prices_by_job(round_, posed.problem)

    def cost_s(self, snapshot: Snapshot, task: int, node: int) -> float:
        """Return the price of running a task on a node, in seconds."""
        return run_price_s(snapshot, task, node, self._prices)

    def slot_price_s(self, snapshot: Snapshot, node: int, memory_bytes: int) -> float | None:
        """Return what is lost, in seconds, with one free GPU of a node less; None for a run."""
        round_, posed = self._posed_apart(snapshot)
        return free_gpu_price_s(round_.now, Flow(posed), node, memory_bytes)
