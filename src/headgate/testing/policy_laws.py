"""The laws of policies, as a test class to inherit: a policy that passes is accepted.

class TestMine(PolicyLaws):
    def make(self) -> Policy:
        return Mine()
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, NamedTuple

import numpy as np

from headgate.base.rng import stream
from headgate.machine.job_order import activate
from headgate.model import WHOLE, Queue
from headgate.planning.place.submission_check import fits_no_node
from headgate.ports import Policy
from headgate.protocol import Plan, Start
from headgate.protocol.reasons import PolicyBroke
from headgate.state import JobState, Snapshot, State, TaskState, check
from headgate.state.life import HOLDING
from headgate.state.moves import moving_tasks
from headgate.state.tables import GPU_FREE, GPU_GONE, GPU_IN_PART
from headgate.testing.digest import digest
from headgate.testing.random_worlds import random_job, random_node, random_state


class IndependentLedger:
    """What starts leave of a snapshot's GPUs, CPU slots and ceilings; a naive reimplementation."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        gpus, first = snapshot.gpus, snapshot.nodes.first_gpu
        self.left = {  # thousandths and bytes of each GPU that no run holds whole
            n: {
                gpu - first[n]: [gpus.free_milli[gpu], gpus.free_bytes[gpu]]
                for gpu in range(first[n], first[n] + snapshot.nodes.gpu_count[n])
                if gpus.task[gpu] in (GPU_FREE, GPU_IN_PART) and not gpus.withheld[gpu]
            }
            for n in snapshot.live_nodes()
        }
        self.used_outside = {
            (gpus.node[gpu], gpu - first[gpus.node[gpu]])
            for gpu in np.flatnonzero(gpus.outside_bytes.array()).tolist()
        }
        self.amounts = {
            n: dict(zip(snapshot.names.resources, snapshot.nodes.free[n], strict=False))
            for n in snapshot.live_nodes()
        }
        self.queue_holds = Counter[tuple[int, str]]()
        self.user_holds = Counter[tuple[int, int, str]]()
        for task, state in enumerate(snapshot.tasks.state.array().tolist()):
            if state in HOLDING:
                self._count(task)
        self.placed: set[int] = set()

    def _queue(self, task: int) -> int:
        row: int = self._snapshot.jobs.queue[self._snapshot.tasks.job[task]]
        return row

    def _above(self, task: int) -> Iterator[int]:
        """Yield the queue of a task and those above it."""
        row = self._queue(task)
        yield row
        while name := self._snapshot.queue(row).parent:
            row = self._snapshot.names.queue_rows[name]
            yield row

    def _takes(self, task: int) -> dict[str, int]:
        """Return what a task takes of limits, by kind."""
        return {"gpus": self._snapshot.task(task).demand.gpus_milli, **dict(self._needs(task))}

    def _count(self, task: int) -> None:
        for row in self._above(task):
            for kind, amount in self._takes(task).items():
                self.queue_holds[row, kind] += amount
                self.user_holds[row, self._user(task), kind] += amount

    def _user(self, task: int) -> int:
        row: int = self._snapshot.jobs.user[self._snapshot.tasks.job[task]]
        return row

    def under_ceiling(self, task: int) -> bool:
        """Return whether a task stays below the limits of its queue and of those above it.

        And its user below what each of these allows users.
        """
        takes, user = self._takes(task), self._user(task)
        for row in self._above(task):
            spec = self._snapshot.queue(row)
            limits = dict(spec.limit)
            if spec.max_gpus is not None:
                limits["gpus"] = WHOLE * spec.max_gpus
            for kind, most in limits.items():
                if takes.get(kind) and self.queue_holds[row, kind] + takes[kind] > most:
                    return False
            for kind, most in spec.per_user:
                if takes.get(kind) and self.user_holds[row, user, kind] + takes[kind] > most:
                    return False
        return True

    def fits(self, task: int, node: int) -> bool:
        """Return whether a node has what a task needs."""
        if self._snapshot.nodes.draining[node]:
            return False
        fitting = [gpu for gpu in self.left[node] if self._has(task, node, gpu)]
        return bool(len(fitting) >= self._snapshot.tasks.gpus[task] and not self._lacks(task, node))

    def _has(self, task: int, node: int, gpu: int) -> bool:
        """Return whether a GPU has what one run of a task holds of it."""
        spec, there = self._snapshot.task(task).demand, self._snapshot.node(node).gpus
        words = there[gpu].model.lower().replace("-", " ").split() if 0 <= gpu < len(there) else []
        if spec.gpu_models and not any(model.lower() in words for model in spec.gpu_models):
            return False
        if not spec.in_part and (node, gpu) in self.used_outside:
            return False
        milli, memory_bytes = self.left[node].get(gpu, (0, 0))
        need_milli, need_bytes = self._part(task, node, gpu)
        return milli >= need_milli and memory_bytes >= need_bytes

    def _part(self, task: int, node: int, gpu: int) -> tuple[int, int]:
        """Return the thousandths and bytes of a GPU that a task holds; of a whole one, needs."""
        spec, memory = self._snapshot.task(task).demand, self._snapshot.gpu_memory_bytes_of(node)
        if spec.gpu_milli == WHOLE:
            return WHOLE, spec.gpu_memory_bytes
        share = int(memory[gpu]) * spec.gpu_milli // WHOLE
        return spec.gpu_milli, spec.gpu_memory_bytes or share

    def _lacks(self, task: int, node: int) -> bool:
        spec, there = self._snapshot.task(task).demand, self._snapshot.node(node)
        if there.id in spec.exclude or (spec.nodes and there.id not in spec.nodes):
            return True
        held = {*there.labels, *(label.split("=")[0] for label in there.labels)}
        if any((term.strip("!") in held) == (term[0] == "!") for term in spec.selector):
            return True
        amounts = self.amounts[node]
        return any(amounts.get(name, 0) < amount for name, amount in self._needs(task))

    def _needs(self, task: int) -> list[tuple[str, int]]:
        """Return what a task needs of a node's amounts, from its specification."""
        spec = self._snapshot.task(task).demand
        needs = [("cpus", spec.cpus_milli), ("memory", spec.memory_bytes), *spec.custom]
        return [(name, amount) for name, amount in needs if amount]

    def take(self, start: Start) -> str | None:
        """Take what a start holds; return why it is infeasible, None if it is feasible."""
        snapshot, (task, node, gpus) = self._snapshot, start
        if not 0 <= task < len(snapshot.tasks.state):
            return f"there is no task {task}"
        if snapshot.tasks.state[task] != TaskState.WAITING or task in self.placed:
            return f"task {task} does not wait"
        if node not in self.left:
            return f"node {node} is not up"
        if snapshot.nodes.draining[node]:
            return f"node {node} is draining"
        if len(set(gpus)) != snapshot.tasks.gpus[task]:
            return f"task {task} needs {snapshot.tasks.gpus[task]} GPUs, not {gpus}"
        if not self.under_ceiling(task):
            return f"task {task} breaks the ceiling of its queue"
        for gpu in gpus:
            if not self._has(task, node, gpu):
                return f"task {task}: GPU {gpu} of node {node} is taken or too small"
        if self._lacks(task, node):
            return f"task {task}: too little free on node {node}"
        self._book(start)
        self.placed.add(task)
        return None

    def _book(self, start: Start) -> None:
        task, node, gpus = start
        for gpu in gpus:
            milli, memory_bytes = self._part(task, node, gpu)
            if milli == WHOLE:
                del self.left[node][gpu]
            else:
                self.left[node][gpu][0] -= milli
                self.left[node][gpu][1] -= memory_bytes
        for name, amount in self._needs(task):
            self.amounts[node][name] -= amount
        self._count(task)


class _Round(NamedTuple):
    """A decision on a random state."""

    name: str
    snapshot: Snapshot
    plan: Plan
    leaves_all: bool
    """Whether the snapshot and the state that it is of are as they were before."""


class PolicyLaws:
    """Every law on many random states; a failure names the state's seed."""

    worlds = 150
    idles_by_choice = False
    """Whether GPUs may stay idle though a waiting task fits: a strict order, waiting for data."""
    preempts_whole_jobs = False
    """Whether all runs of a job may be stopped, those of gangs together, for whatever job."""

    def make(self) -> Policy:
        """Return a fresh policy."""
        raise NotImplementedError

    _decided: ClassVar[tuple[type, list[_Round]] | None] = None  # of one class

    def rounds(self) -> Iterator[tuple[str, Snapshot, Plan]]:
        """Yield the name of a round, its snapshot, and the plan of a fresh policy."""
        for each in self._rounds():
            yield each.name, each.snapshot, each.plan

    def _rounds(self) -> list[_Round]:
        """Return the rounds, which are decided once for all laws."""
        if PolicyLaws._decided is None or PolicyLaws._decided[0] is not type(self):
            PolicyLaws._decided = type(self), [self._round(seed) for seed in range(self.worlds)]
        return PolicyLaws._decided[1]

    def _round(self, seed: int) -> _Round:
        policy, state = self.make(), self._state(seed)
        check(state)
        snapshot = state.freeze()
        before = digest(snapshot), digest(state)
        plan = policy.decide(snapshot, stream(seed))
        leaves_all = (digest(snapshot), digest(state)) == before
        return _Round(f"random_state({seed})", snapshot, plan, leaves_all)

    def _state(self, seed: int) -> State:
        """Return a state with jobs of every kind that the policy places."""
        policy = self.make()
        return random_state(seed, lambda job: policy.refuses(job) is None, every_kind=True)

    def test_a_job_alone_starts_whole_where_every_task_may_have_a_node_of_its_own(self) -> None:
        placed = 0
        for seed in range(self.worlds // 3):
            policy, state = self.make(), _alone(seed)
            job, nodes = state.job(0), [state.node(n) for n in state.live_nodes()]
            if policy.refuses(job) is None and fits_no_node(job, nodes) is None:
                starts = policy.decide(state.freeze(), stream(seed)).starts.task.tolist()
                assert sorted(starts) == [*range(len(job.tasks))], (seed, job)
                placed += 1
        assert placed

    def test_a_plan_stays_within_free_resources_and_under_every_ceiling(self) -> None:
        for name, snapshot, plan in self.rounds():
            ledger = IndependentLedger(snapshot)
            faults = [fault for s in plan.starts if (fault := ledger.take(s)) is not None]
            assert faults == [], name

    def test_a_gang_is_started_as_a_whole_in_one_group_or_not_at_all(self) -> None:
        for name, snapshot, plan in self.rounds():
            for group in plan.steps:
                started = [snapshot.tasks.job[s.task] for s in group.steps if isinstance(s, Start)]
                for job in dict.fromkeys(started):
                    if snapshot.job(job).gang:
                        assert started.count(job) == snapshot.jobs.task_count[job], (name, job)

    def test_members_of_a_gang_of_distinct_nodes_start_on_a_node_each(self) -> None:
        for name, snapshot, plan in self.rounds():
            nodes: dict[int, list[int]] = {}
            for start in plan.starts:
                nodes.setdefault(snapshot.tasks.job[start.task], []).append(start.node)
            for job, used in nodes.items():
                if snapshot.job(job).distinct_nodes:
                    assert len(set(used)) == len(used), (name, job)

    def test_tasks_that_move_are_neither_stopped_nor_moved_nor_started(self) -> None:
        for name, snapshot, plan in self.rounds():
            moving = set(moving_tasks(snapshot))
            for steps in (plan.starts, plan.stops, plan.moves):
                assert not moving & set(steps.task.tolist()), name

    def test_every_stop_has_a_reason(self) -> None:
        for name, _, plan in self.rounds():
            stops = plan.stops.group.tolist()
            assert [group for group in stops if group not in plan.steps.reasons] == [], name

    def test_only_runs_on_gpus_are_preempted_gangs_whole_and_no_job_loses_its_last(self) -> None:
        runs = (TaskState.STARTING, TaskState.RUNNING)
        for name, snapshot, plan in self.rounds():
            stops = plan.stops.task.tolist()
            assert len(set(stops)) == len(stops), name
            losers = [snapshot.tasks.job[task] for task in stops]
            starts = [t for t in plan.starts.task.tolist() if snapshot.tasks.gpus[t]]
            for task, job in zip(stops, losers, strict=True):
                assert snapshot.tasks.state[task] in runs, (name, task)
                assert snapshot.held_gpus(task), (name, task)
                assert snapshot.jobs.state[job] == JobState.ACTIVE, (name, task)
            for job in dict.fromkeys(losers):
                tasks = snapshot.tasks_of(job)
                going = [t for t in tasks if snapshot.tasks.state[t] in runs]
                holding = [task for task in going if snapshot.held_gpus(task)]
                begun = [task for task in starts if task in tasks]
                if not self.preempts_whole_jobs:
                    assert len(holding) + len(begun) > losers.count(job), name
                elif snapshot.jobs.gang[job]:
                    assert set(holding) <= set(stops), name

    def test_runs_are_preempted_only_for_tasks_of_others_that_fit_their_gpus(self) -> None:
        if self.preempts_whole_jobs:
            return
        for name, snapshot, plan in self.rounds():
            tasks, started = snapshot.tasks, set(plan.starts.task.tolist())
            stops = plan.stops.task.tolist()
            losers = {tasks.job[task] for task in stops}
            needs = sorted(
                tasks.memory_bytes[task]
                for job in snapshot.waiting_jobs()
                for task in snapshot.waiting_of(job).tolist()
                if tasks.gpus[task] and task not in started and job not in losers
            )
            freed = sorted(
                max(snapshot.gpu_memory_bytes_of(tasks.node[t])[g] for g in snapshot.held_gpus(t))
                for t in stops
            )
            assert len(freed) <= len(needs), name
            for memory, need in zip(freed, needs, strict=False):  # smallest with smallest
                assert memory >= need, name

    def test_jobs_that_keep_waiting_have_a_reason_and_no_others(self) -> None:
        for name, snapshot, plan in self.rounds():
            started = set(plan.starts.task.tolist())
            named = {job for refusal in plan.refusals for job in refusal.jobs}
            covers_all = any(not refusal.jobs for refusal in plan.refusals)
            waits = {
                job
                for job in snapshot.waiting_jobs()
                if set(snapshot.waiting_of(job).tolist()) - started
            }
            assert covers_all or waits <= named, name
            assert named <= waits, name
            for refusal in plan.refusals:
                assert not isinstance(refusal.reason, PolicyBroke), (name, refusal.reason)
                assert str(refusal.reason).startswith(refusal.reason.code), name

    def test_reservations_fit_together_and_are_of_tasks_that_keep_waiting(self) -> None:
        for name, snapshot, plan in self.rounds():
            started = set(plan.starts.task.tolist())
            booked: dict[int, list[tuple[float, float, int]]] = {}
            for each in plan.reservations:
                waits = set(snapshot.waiting_of(each.job).tolist()) - started
                assert waits, (name, each)
                assert snapshot.now <= each.at <= each.until, (name, each)
                assert len(set(each.gpus)) == len(each.gpus), (name, each)
                for gpu, milli in zip(each.gpus, each.milli, strict=True):
                    assert snapshot.gpus.task[gpu] != GPU_GONE, (name, each)
                    booked.setdefault(gpu, []).append((each.at, each.until, milli))
            for spans in booked.values():
                for begin, _, _ in spans:
                    held = [m for at, until, m in spans if at <= begin < until - 1e-6]
                    assert sum(held) <= WHOLE, (name, spans)

    def test_equal_snapshots_get_equal_plans(self) -> None:
        policy = self.make()  # one that has decided other rounds before
        for seed, (name, snapshot, plan) in enumerate(self.rounds()):
            copy = pickle.loads(pickle.dumps(snapshot))
            twice = seed % 5 == 0  # a copy right after what it was made of
            for again in (snapshot, copy) if twice else (copy,):
                other = policy.decide(again, stream(seed))
                assert (other, [*other.refusals]) == (plan, [*plan.refusals]), name
                assert [*other.reservations] == [*plan.reservations], name

    def test_deciding_changes_no_snapshot(self) -> None:
        assert [each.name for each in self._rounds() if not each.leaves_all] == []

    def test_no_gpu_idles_while_a_task_waits_that_fits(self) -> None:
        if self.idles_by_choice:
            return
        for name, snapshot, plan in self.rounds():
            ledger = IndependentLedger(snapshot)
            for start in plan.starts:
                ledger.take(start)
            for job in snapshot.waiting_jobs():
                if snapshot.job(job).gang:
                    continue  # whether a gang fits as a whole is a question of its own
                for task in snapshot.waiting_of(job).tolist():
                    if task in ledger.placed:
                        continue
                    if snapshot.tasks.gpus[task] and ledger.under_ceiling(task):
                        idle = [n for n in ledger.left if ledger.fits(task, n)]
                        assert idle == [], (name, task)


def _alone(seed: int) -> State:
    """Return a random job that waits, and idle nodes: of each kind as many as it has tasks."""
    rng, state = stream(seed, "alone"), State()
    job = random_job(rng, "alone", every_kind=True)
    wants = [replace(task.demand, nodes=(), exclude=()) for task in job.tasks]
    tasks = [
        replace(task, reads=(), after=(), demand=demand)
        for task, demand in zip(job.tasks, wants, strict=True)
    ]
    job = replace(job, tasks=tuple(tasks), max_running=None)
    state.set_queue(Queue(name=job.queue))
    kinds = [random_node(rng, n, every_kind=True) for n in range(rng.randint(1, 3))]
    for copy in range(len(tasks)):
        for node in kinds:
            state.add_node(replace(node, id=f"{node.id}-{copy}"))
    activate(state, state.add_job(job))
    return state
