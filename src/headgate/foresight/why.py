"""The full explanation of a job or task: its share, candidate nodes and prices, expected start.

All values are of the round that the policy would have now; those that the snapshot and the policy's
own prices do not give come from hypothetical rounds of the policy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from headgate.foresight.explain import Explanation, explain
from headgate.foresight.forecast import Forecast, forecast
from headgate.foresight.outlook import ReadBytes, read_bytes
from headgate.foresight.sizing import Sizing, sizing_of, with_less
from headgate.foresight.whatif import WhatIf
from headgate.planning.moves.migration import room_by_moves
from headgate.planning.units.unit import waiting_units
from headgate.ports import Policy, capabilities
from headgate.ports.capabilities import JobPrices
from headgate.protocol import RunStop
from headgate.protocol.after_moves import AfterMoves
from headgate.protocol.reasons import Fragmented, GangShort, PolicyBroke
from headgate.state import JobState, Scratch, Snapshot, TaskState
from headgate.state.elastic import is_surplus, is_unneeded
from headgate.state.ledger import Ledger
from headgate.state.life import PENDING, RUNS
from headgate.state.stops import preemption
from headgate.state.tables import GPU_FREE, GPU_GONE

_HOLDERS_MOST = 5
_STARTS_MOST = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A job's GPUs against its share of all; other fields as in `planning.shares.job_prices`."""

    job: str
    held_gpus: int
    waiting_tasks: int
    share_gpus: int | None
    may_win_gpus: int
    wait_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateNode:
    """A node where a task may run, and what that costs.

    `cost_s` is the policy's price, `read_s` the time of reading that it expects. When no GPU that
    fits is free there, `held_by` is the run on one that is expected to end first, at `held_until`;
    None for a GPU that is held in part.
    """

    node: str
    gpu_model: str | None
    gpu_memory_bytes: int | None
    cost_s: float
    read_s: float
    read_bytes: ReadBytes
    held_by: str | None
    held_until: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class IfFreed:
    """What the policy would do if the run that holds the cheapest node's GPU ended now.

    The task would start on `starts_on`, or not at all (None); the GPU would go to the task
    `taken_by`, or stay free (None). `price_s` is the dual price of the GPU in that round, in
    seconds: the cost of one GPU less. None when a task fewer would run or the policy has no prices.
    """

    ends: str
    node: str
    starts_on: str | None
    taken_by: str | None
    price_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """A run under way, and what it reads, in bytes by locality."""

    node: str
    gpus: tuple[int, ...]
    since: float
    ends: float | None
    read_bytes: ReadBytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """The explanation of a job and one of its tasks.

    `task` is the ordinal of the explained task: the requested one, else the job's first task that
    waits for a GPU. `sizing` is what tasks like it have used, where that is another amount than it
    asks for. `holders` are other jobs that hold GPUs, the furthest above their share first.
    Values that do not apply are None or empty.
    """

    explanation: Explanation
    task: int | None
    task_state: str | None
    surplus: bool  # of an elastic job
    needed: bool  # not a unit of an elastic job that has finished without a run
    run: RunFacts | None
    unfinished: tuple[int, ...]
    preempted: str | None
    stopped: RunStop | None  # the last stop of one of its runs
    share: Holding | None
    holders: tuple[Holding, ...]
    cheapest_now: CandidateNode | None
    cheapest: CandidateNode | None
    if_freed: IfFreed | None
    room_by_moves: AfterMoves | None
    sizing: Sizing | None
    start: Forecast | None


def why(snapshot: Snapshot, policy: Policy, job: int, task: int | None, now: float) -> Why:
    """Explain a job, or one of its tasks (rows), as the policy in force sees it at a time.

    O(rows), and the decisions of a forecast.
    """
    return _Explainer(snapshot, policy, job, task, now).explain()


class _Explainer:
    def __init__(
        self, snapshot: Snapshot, policy: Policy, job: int, task: int | None, now: float
    ) -> None:
        self._snapshot, self._policy, self._now = snapshot, policy, now
        self._offers = capabilities(policy)
        self._job, self._named = job, task
        self._task = self._first_waiting() if task is None else task
        self._explanation = explain(snapshot, job, now, task)
        self._broken = isinstance(self._explanation.reason, PolicyBroke)

    def _first_waiting(self) -> int | None:
        waiting = self._snapshot.waiting_of(self._job).tolist()
        on_gpus = [t for t in waiting if self._snapshot.tasks.gpus[t]]
        return next(iter(on_gpus or waiting), None)

    def explain(self) -> Why:
        """Return the explanation."""
        snapshot, task = self._snapshot, self._task
        task_state = None if task is None else TaskState(snapshot.tasks.state[task])
        accounts, room = self._accounts(), self._room_by_moves()
        places = self._places(task) if task is not None and task_state is TaskState.WAITING else []
        cheapest = min(places, key=_Candidate.order, default=None)
        now = min((p for p in places if p.free), key=_Candidate.order, default=None)
        start = self._start(snapshot)
        return Why(
            explanation=_with_moves(self._explanation, room),
            task=None if task is None else snapshot.ordinal(task),
            task_state=None if task_state is None else task_state.name.lower(),
            surplus=task is not None and is_surplus(snapshot, task),
            needed=task is None or not is_unneeded(snapshot, task),
            run=self._run(task) if task is not None and task_state in RUNS else None,
            preempted=None if task is None else preemption(snapshot, task),
            stopped=None if task is None else next(iter(snapshot.stops.get(task, ())[-1:]), None),
            unfinished=() if task is None else self._unfinished(task),
            share=self._standing(self._job, accounts.get(self._job)),
            holders=self._holders(accounts),
            cheapest_now=None if now is None else self._place(now),
            cheapest=None if cheapest is None else self._place(cheapest),
            if_freed=None if cheapest is None else self._if_freed(cheapest),
            room_by_moves=room,
            sizing=None if task is None else self._sizing(task, start),
            start=start,
        )

    # --- shares ----------------------------------------------------------------------------------

    def _accounts(self) -> dict[int, JobPrices]:
        prices = self._offers.prices
        return {} if prices is None or self._broken else dict(prices.job_prices(self._snapshot))

    def _standing(self, job: int, account: JobPrices | None) -> Holding | None:
        if account is None:
            return None
        jobs = self._snapshot.jobs
        return Holding(
            job=self._snapshot.job(job).id,
            held_gpus=int(self._snapshot.gpus_of_jobs()[job]),
            waiting_tasks=jobs.waiting[job],
            share_gpus=account.share_gpus,
            may_win_gpus=account.may_win_gpus,
            wait_s=account.wait_s,
        )

    def _holders(self, accounts: dict[int, JobPrices]) -> tuple[Holding, ...]:
        if self._job not in accounts or self._explanation.reason is None:
            return ()
        held = self._snapshot.gpus_of_jobs().tolist()

        def above(job: int) -> int:
            share = accounts[job].share_gpus
            over: int = held[job] - (share or 0)
            return over

        rows = [job for job in accounts if job != self._job and held[job]]
        first = sorted(rows, key=lambda job: (-above(job), job))[:_HOLDERS_MOST]
        return tuple(s for j in first if (s := self._standing(j, accounts[j])) is not None)

    # --- one task --------------------------------------------------------------------------------

    def _run(self, task: int) -> RunFacts:
        tasks, node = self._snapshot.tasks, self._snapshot.tasks.node[task]
        return RunFacts(
            node=self._snapshot.node(node).id,
            gpus=self._snapshot.held_gpus(task),
            since=tasks.launched_at[task],
            ends=self._ends(task),
            read_bytes=read_bytes(self._snapshot, task, node),
        )

    def _ends(self, task: int) -> float | None:
        end = self._snapshot.expected_end(task)
        return None if math.isnan(end) else max(end, self._now)

    def _unfinished(self, task: int) -> tuple[int, ...]:
        first = self._snapshot.tasks_of(self._job).start
        states = self._snapshot.tasks.state
        after = self._snapshot.task(task).after
        return tuple(n for n in after if states[first + n] != TaskState.FINISHED)

    def _sizing(self, task: int, start: Forecast | None) -> Sizing | None:
        """Return what tasks like one have used, with the start of those that ask for as much."""
        snapshot, sizing = self._snapshot, sizing_of(self._snapshot, task)
        if sizing is None or not sizing.less or start is None or start.at == self._now:
            return sizing
        pending = self._pending(snapshot.tasks_of(self._job))
        smaller = self._start(with_less(snapshot, pending, sizing))
        return sizing if smaller is None else replace(sizing, starts_at=smaller.at)

    def _start(self, snapshot: Snapshot) -> Forecast | None:
        """Return when the task, or the next one of the job, is expected to start.

        The snapshot is the present one, or one that differs in what tasks ask for.
        """
        rows = self._snapshot.tasks_of(self._job) if self._named is None else (self._named,)
        tasks = self._pending(rows)
        if not tasks or self._broken or self._snapshot.jobs.state[self._job] == JobState.STOPPING:
            return None
        return forecast(snapshot, self._policy, tasks, self._now)

    def _pending(self, tasks: Iterable[int]) -> list[int]:
        states = self._snapshot.tasks.state
        return [task for task in tasks if states[task] in PENDING]

    def _room_by_moves(self) -> AfterMoves | None:
        """Return the moves that make room for what waits for GPUs that are near each other."""
        reason = self._explanation.reason
        if not isinstance(reason, GangShort | Fragmented) or (
            isinstance(reason, GangShort) and reason.free_gpus < reason.needed_gpus
        ):
            return None  # no moves help, or what is free is reserved for others
        units = (each for some in waiting_units(self._snapshot, self._job) for each in some)
        unit = next((each for each in units if self._task in each.tasks), None)
        room = None if unit is None else room_by_moves(Scratch(self._snapshot), unit)
        if room is None:
            return None
        tasks = tuple(map(self._snapshot.task_id, room.tasks))
        return AfterMoves(tasks=tasks, lost_s=room.lost_s, on=self._offers.migrates)

    # --- candidate nodes -------------------------------------------------------------------------

    def _places(self, task: int) -> list[_Candidate]:
        """Return the nodes on which a task fits when idle, each with its price."""
        snapshot, candidates = self._snapshot, []
        need, demand = snapshot.tasks.gpus[task], snapshot.tasks.demand[task]
        ledger = Ledger.tentative(snapshot)
        price = self._price()
        for node in snapshot.live_nodes():
            gpus = self._gpus(ledger, demand, node) if need else []
            if len(gpus) < need or ledger.exceeds_capacity(demand, node):
                continue
            best = ledger.best_gpus(demand, node)
            if best is None:
                held = (g for g in gpus if g.holder != GPU_FREE)
                gpu = min(held, key=_Gpu.order, default=None)
            else:
                gpu = next((g for g in gpus if g.index in best[:1]), None)
            free = best is not None
            candidates.append(_Candidate(node=node, cost_s=price(task, node), free=free, gpu=gpu))
        return candidates

    def _price(self) -> Callable[[int, int], float]:
        prices = self._offers.prices
        if prices is None:
            return self._snapshot.expected_read_s
        return lambda task, node: prices.cost_s(self._snapshot, task, node)

    def _gpus(self, ledger: Ledger, demand: int, node: int) -> list[_Gpu]:
        """Return the GPUs of a node that suit a demand, with their holders."""
        snapshot = self._snapshot
        first = snapshot.nodes.first_gpu[node]
        suits = ledger.suits(demand, first, first + snapshot.nodes.gpu_count[node])
        gpus = []
        for index, size in enumerate(snapshot.gpu_memory_bytes_of(node).tolist()):
            holder = snapshot.gpus.task[first + index]
            if suits[index] and holder != GPU_GONE:
                until = self._ends(holder) if holder >= 0 else None
                gpus.append(_Gpu(index=index, memory_bytes=size, holder=holder, until=until))
        return gpus

    def _place(self, option: _Candidate) -> CandidateNode:
        snapshot, gpu, task = self._snapshot, option.gpu, self._task
        assert task is not None
        held = not option.free and gpu is not None and gpu.holder >= 0
        spec = snapshot.node(option.node)
        return CandidateNode(
            node=spec.id,
            gpu_model=None if gpu is None else spec.gpus[gpu.index].model,
            gpu_memory_bytes=None if gpu is None else gpu.memory_bytes,
            cost_s=option.cost_s,
            read_s=snapshot.expected_read_s(task, option.node),
            read_bytes=read_bytes(snapshot, task, option.node),
            held_by=self._snapshot.task_id(gpu.holder) if gpu is not None and held else None,
            held_until=gpu.until if gpu is not None and held else None,
        )

    def _if_freed(self, option: _Candidate) -> IfFreed | None:
        """Return what the policy would do with a candidate's GPU if its run had just ended."""
        gpu, policy = option.gpu, self._policy
        if option.free or gpu is None or gpu.holder < 0 or self._broken:
            return None
        what_if = WhatIf(self._snapshot, policy, self._now)
        what_if.end_run(gpu.holder, self._now)
        freed = what_if.state.freeze()
        made = [*what_if.round().starts]
        while what_if.continues and not what_if.stopped and len(made) < _STARTS_MOST:
            made += what_if.round().starts
        on = {start.task: start.node for start in made}
        takers = [s.task for s in made if s.node == option.node and gpu.index in s.gpus]
        price_s = None
        if self._offers.prices is not None:
            price_s = self._offers.prices.slot_price_s(freed, option.node, gpu.index)
        starts = on.get(self._task) if self._task is not None else None
        return IfFreed(
            ends=self._snapshot.task_id(gpu.holder),
            node=self._snapshot.node(option.node).id,
            starts_on=None if starts is None else self._snapshot.node(starts).id,
            taken_by=self._snapshot.task_id(takers[0]) if takers else None,
            price_s=price_s,
        )


def _with_moves(explanation: Explanation, room: AfterMoves | None) -> Explanation:
    reason = explanation.reason
    if room is None or not isinstance(reason, GangShort | Fragmented):
        return explanation
    return replace(explanation, reason=replace(reason, after_moves=room))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gpu:
    index: int
    memory_bytes: int
    holder: int  # row of the task that holds it whole, else GPU_FREE or GPU_IN_PART
    until: float | None  # when that task is expected to end, if known

    def order(self) -> tuple[float, int, int]:
        """Return the sort key: the time when it is expected to be free, then its memory."""
        until = math.inf if self.until is None else self.until
        return until, self.memory_bytes, self.index


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    node: int
    cost_s: float
    free: bool
    gpu: _Gpu | None

    def order(self) -> tuple[float, bool, float, int]:
        """Return the sort key: the price, then the time when a GPU is free there."""
        until = math.inf if self.free or self.gpu is None else self.gpu.order()[0]
        return self.cost_s, not self.free, until, self.node
