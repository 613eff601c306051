"""Random clusters, jobs and states from a seed, on which laws are checked.

Sizes are small and numbers few, so that ties, ceilings and full nodes are common. With
`every_kind`, some nodes have memory and licenses, of which there are limited amounts, and some jobs
need these, run on parts of GPUs, are gangs of equal tasks on distinct nodes, or are for certain
models of GPUs, certain nodes or labels only; and single tasks have been cancelled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from headgate.base.rng import Random, stream
from headgate.machine.job_order import activate
from headgate.machine.run_ends import end_of_job
from headgate.machine.running_limit import release_held, unblock
from headgate.machine.task_cancel import cancel_task
from headgate.model import (
    Bandwidth,
    Communication,
    Demand,
    Gpu,
    Job,
    Node,
    Pattern,
    Shard,
    Task,
    result_id,
)
from headgate.model.job import WrittenTask
from headgate.model.labels import as_labels
from headgate.model.topology import ClusterMesh, ClusterTopology, ClusterTree
from headgate.planning.units.unit import is_multi_gpu
from headgate.protocol import TaskCancelled
from headgate.state import JobState, Snapshot, State, TaskState, moves
from headgate.state.life import RUNS
from headgate.state.stops import is_cancelled
from headgate.testing.others import use_outside
from headgate.testing.random_queues import GIB, QUEUES, divided, random_queues

MODELS = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "Tesla V100-SXM2-16GB")
LABELS: tuple[tuple[str, ...], ...] = ((), ("ml",), ("ml", "zone=a"), ("spot", "zone=b"), ())
SELECTORS = (("ml",), ("!spot",), ("zone=a",), ("zone", "!spot"), ("ml", "!zone=b"))
LICENSES: tuple[tuple[tuple[str, int], ...], ...] = ((), (("license", 500),), (("license", 1000),))


def random_node(rng: Random, number: int, *, every_kind: bool = False) -> Node:
    """Return node `n<number>`: up to four GPUs of one to three GiB, in one of three racks."""
    memory = [rng.choice((1, 2, 2, 3)) * GIB for _ in range(rng.randint(0, 4))]
    rack, cpus = f"r{rng.randrange(3)}", rng.randint(0, 3)
    models = stream(number, repr((memory, rack, cpus)), "models")
    mixed = models.choice((MODELS, *((model,) for model in MODELS)))
    node = Node(
        id=f"n{number}",
        rack=rack,
        gpus=tuple(Gpu(memory_bytes=m, model=models.choice(mixed)) for m in memory),
        cpus=cpus,
    )
    if not every_kind:
        return node
    drawn = repr(node).replace(", labels=()", "")  # as in earlier releases
    kind = stream(0, drawn, "kind")
    return replace(
        node,
        labels=kind_labels(stream(0, drawn, "labels")),
        memory_bytes=kind.choice((None, 3 * GIB, 5 * GIB)),
        custom=kind.choice(((), (("license", 1000),), (("license", 2000),))),
    )


def kind_labels(rng: Random) -> tuple[str, ...]:
    """Return the labels of a node: of a third none."""
    return as_labels(rng.choice(LABELS))


def random_job(
    rng: Random, job_id: str, shards: tuple[Shard, ...] = (), *, every_kind: bool = False
) -> Job:
    """Return a job of at most five tasks: a gang, or a DAG with tasks on GPUs and on CPU slots.

    A third of the jobs have `max_running`.
    """
    gang = rng.random() < 0.3
    tasks: list[Task] = []
    for ordinal in range(rng.randint(1, 3 if gang else 5)):
        reads = [s.id for s in rng.sample(shards, min(len(shards), rng.choice((0, 1, 1, 2))))]
        after: list[int] = []
        if not gang:
            after = [n for n in range(ordinal) if rng.random() < 0.3]
            reads += [result_id(job_id, n) for n in after if rng.random() < 0.7]
        tasks.append(
            Task(
                reads=tuple(reads),
                after=tuple(after),
                demand=_demand(rng),
                compute_s=rng.choice((0.0, 1.0, 2.0, 2.5, 7.0)),
                output_bytes=rng.choice((0, 0, 100, 1000)),
            )
        )
    job = Job(
        id=job_id,
        name=job_id,
        user=rng.choice(("ada", "grace", "edsger")),
        queue=rng.choice(QUEUES),
        tasks=tuple(tasks),
        shards=shards,
        priority=rng.choice((0, 0, 1, 5)),
        gang=gang,
        distinct_nodes=gang and rng.random() < 0.5,
        retries=rng.randint(0, 2),
        estimated_s=stream(0, job_id, _text(tasks)).choice((None, None, 0.5, 3.0)),
        max_running=stream(0, job_id, _text(tasks), "limit").choice((None, None, None, None, 1, 2)),
    )
    return _restricted(_of_any_kind(job)) if every_kind else job


def _restricted(job: Job) -> Job:
    """Return a job; a third has tasks for certain models of GPUs or nodes, some for labels."""
    rng = stream(0, job.id, _text(job.tasks), "restricted")
    if rng.random() < 0.67:
        return job
    selector = stream(0, job.id, _text(job.tasks), "selector").choice((*SELECTORS, *15 * ((),)))
    models = rng.choice((("h100",), ("A100", "h100"), ("V100",), ()))
    names = [f"n{n}" for n in range(6)]
    nodes = tuple(rng.sample(names, 3)) if rng.random() < 0.3 else ()
    exclude = tuple(rng.sample(names, 2)) if rng.random() < 0.3 else ()
    every = job.gang or rng.random() < 0.5
    return replace(
        job,
        tasks=tuple(
            _with(
                t,
                gpu_models=models if t.demand.gpus else (),
                nodes=nodes,
                exclude=exclude,
                selector=selector,
            )
            if every or rng.random() < 0.5
            else t
            for t in job.tasks
        ),
    )


def _of_any_kind(job: Job) -> Job:
    """Return a job unchanged, or on parts of GPUs, with vectors, or as a gang on distinct nodes."""
    rng = stream(0, job.id, _text(job.tasks), "kind")
    match rng.choice(("plain", "plain", "parts", "vectors", "vectors", "nodes")):
        case "parts":
            tasks = [
                _with(t, gpu_milli=rng.choice((200, 500))) if t.demand.gpus else t
                for t in job.tasks
            ]
        case "vectors":
            tasks = [
                _with(
                    t,
                    memory_bytes=rng.choice((0, GIB, 2 * GIB)),
                    custom=rng.choice(LICENSES),
                    cpus_milli=rng.choice((0, 500, 1000)) if t.demand.gpus else t.demand.cpus_milli,
                )
                for t in job.tasks
            ]
        case "nodes":
            first = _with(replace(job.tasks[0], after=()), gpus=rng.choice((1, 2)), cpus_milli=0)
            return replace(job, tasks=(first,) * rng.choice((2, 3)), gang=True, distinct_nodes=True)
        case _:
            return job
    return replace(job, tasks=tuple(tasks))


def linked(job: Job) -> Job:
    """Return a job of which two thirds communicate."""
    rng = stream(0, job.id, _text(job.tasks), "links")
    pattern = rng.choice((None, *Pattern, *Pattern))
    if pattern is None:
        return job
    communication = Communication(
        pattern=pattern,
        bytes_per_step=rng.choice((0, 10, 300)),
        step_s=rng.choice((0.0, 1.0)),
        processes=rng.choice((0, 0, 0, 7)),
    )
    return replace(job, communication=communication)


def random_topology(seed: int, nodes: int) -> ClusterTopology | None:
    """Return a topology of some of the nodes n0, n1 ...: a mesh, or a tree; None for racks."""
    rng = stream(seed, "topology")
    names = tuple(f"n{n}" for n in range(max(1, nodes - rng.choice((0, 0, 1)))))
    count = len(names)
    match rng.choice(("racks", "mesh", "tree")):
        case "mesh":
            return ClusterMesh(sides=(count,), wrap=(False,), bytes_per_s=(50.0,), nodes=names)
        case "tree":
            pairs = -(-count // 2)
            return ClusterTree(
                level_names=("core", "pair", "node"),
                names=("core", *(f"p{n}" for n in range(pairs)), *names),
                parents=(-1, *[0] * pairs, *(1 + n // 2 for n in range(count))),
                levels=(0, *[1] * pairs, *[2] * count),
                bytes_per_s=(math.inf, *[20.0] * pairs, *[80.0] * count),
            )
        case _:
            return None


def _demand(rng: Random) -> Demand:
    gpus = rng.choice((0, 1, 1, 1, 2))
    memory_bytes = rng.choice((0, GIB, 2 * GIB)) if gpus else 0
    cpus_milli = rng.choice((1000, 1000, 2000))
    return Demand(gpus=gpus, gpu_memory_bytes=memory_bytes, cpus_milli=0 if gpus else cpus_milli)


def _with(task: Task, **changed: Any) -> Task:
    return replace(task, demand=replace(task.demand, **changed))


def _text(tasks: Sequence[Task]) -> str:
    """Return the text of tasks by which more of their job is drawn.

    It is that of the tasks of earlier releases, so that the same seed is the same storm.
    """
    written = [WrittenTask.of(task) for task in tasks]
    named = [replace(each, cpus=None) if each.gpus and not each.cpus else each for each in written]
    text = repr(named if isinstance(tasks, list) else tuple(named))
    return text.replace("WrittenTask(", "Task(").replace(", selector=()", "")


def is_narrow(job: Job) -> bool:
    """Return whether every task of a job that needs a GPU starts alone, on one whole GPU."""
    return not (job.gang and len(job.tasks) > 1) and not any(
        is_multi_gpu(t.demand) for t in job.tasks
    )


def random_shards(rng: Random) -> tuple[Shard, ...]:
    """Return up to five shards, one of them empty at times."""
    sizes = (0, 200, 1000, 3000)
    return tuple(Shard(id=f"s{n}", size_bytes=rng.choice(sizes)) for n in range(rng.randint(0, 5)))


def random_state(
    seed: int, accepts: Callable[[Job], bool] = lambda job: True, *, every_kind: bool = False
) -> State:
    """Return a state with jobs that `accepts` admits: some run, wait, are stopped, have ended.

    Nodes may be down, shards without a replica, and gangs half stopped. With `every_kind`, some
    runs are stopped to move.
    """
    rng = stream(seed, "random state")
    state = State()
    state.bandwidth = rng.choice(
        (
            Bandwidth(disk_bytes_per_s=100.0, rack_bytes_per_s=60.0, cluster_bytes_per_s=30.0),
            Bandwidth(disk_bytes_per_s=100.0, rack_bytes_per_s=100.0, cluster_bytes_per_s=1.0),
        )
    )
    for queue in random_queues(rng):
        state.set_queue(queue)
    count = rng.randint(1, 6)
    nodes = [state.add_node(random_node(rng, n, every_kind=every_kind)) for n in range(count)]
    shards = random_shards(rng)
    for shard in shards:
        row = state.shard(shard)
        for node in rng.sample(nodes, min(len(nodes), rng.choice((0, 1, 1, 2, 3)))):
            state.add_replica(row, node)
    count = rng.randint(1, 10)
    submitted = (random_job(rng, f"j{n}", shards, every_kind=every_kind) for n in range(count))
    jobs = [state.add_job(job) for job in submitted if accepts(job)]
    for _ in range(rng.randint(0, 30)):
        _step(state, jobs, rng)
    if every_kind:
        known = tuple(state.queue(row) for row in range(len(state.queues.spec)))
        for queue in divided(seed, known):
            state.set_queue(queue)
        _begin_moves(state, stream(seed, "moves"))
        _cancel_task(state, stream(seed, "cancelled task"), chance=0.3)
    return state


def random_walk(
    seed: int,
    steps: int,
    accepts: Callable[[Job], bool] = lambda job: True,
    *,
    every_kind: bool = False,
) -> Iterator[Snapshot]:
    """Yield snapshots of one random state as it changes, some steps apart, with new jobs.

    In between, runtime estimates may be updated, a run may end early with its checkpoint kept,
    replicas are added and removed, queues change, nodes drain, and other programs use GPUs.
    """
    rng = stream(seed, "random walk")
    state = random_state(seed, accepts, every_kind=every_kind)
    moves_rng = stream(seed, "moves of a walk")
    cancels_rng = stream(seed, "cancelled tasks of a walk")
    outside_rng = stream(seed, "outside of a walk")
    for task in range(len(state.tasks.state)):
        state.tasks.checkpoint_s[task] = rng.choice((0.0, 0.5))
    for _ in range(steps):
        yield state.freeze()
        for _ in range(rng.choice((1, 1, 2, 5))):
            _step(state, range(len(state.names.jobs)), rng)
        for change in (
            _submit_any if every_kind else _submit,
            _record_runtime,
            _end_with_checkpoint,
            _change_replicas,
            _change_queue,
            _withhold,
        ):
            if rng.random() < 0.3:
                change(state, rng, accepts)
        if moves_rng.random() < 0.03:
            _drain_or_resume(state, moves_rng)
        use_outside(state, outside_rng, chance=0.1)
        _begin_moves(state, moves_rng, chance=0.05)
        if every_kind:
            _cancel_task(state, cancels_rng, chance=0.1)


def _step(state: State, jobs: Iterable[int], rng: Random) -> None:
    state.now += 1.0
    state.version += 1
    for job in jobs:
        _activate(state, job)
    rng.choice((_launch, _launch, _launch, _advance, _advance, _interrupt, _lose))(state, rng)


def _submit(state: State, rng: Random, accepts: Callable[[Job], bool]) -> None:
    job = random_job(rng, f"late{len(state.names.jobs)}", rng.choice(((), random_shards(rng))))
    if accepts(job):
        state.add_job(job)


def _submit_any(state: State, rng: Random, accepts: Callable[[Job], bool]) -> None:
    job = random_job(rng, f"late{len(state.names.jobs)}", every_kind=True)
    if accepts(job):
        state.add_job(job)


def _record_runtime(state: State, rng: Random, accepts: Callable[[Job], bool]) -> None:
    del accepts
    if running := _in(state, TaskState.RUNNING):
        state.record_runtime(rng.choice(running))


def _end_with_checkpoint(state: State, rng: Random, accepts: Callable[[Job], bool]) -> None:
    del accepts
    saved = [
        task
        for task in _in(state, TaskState.RUNNING)
        if not state.job(state.tasks.job[task]).gang
        and state.checkpoint_progress_s(task, state.now)
    ]
    if saved:
        state.release(rng.choice(saved), TaskState.WAITING)


def _change_replicas(state: State, rng: Random, accepts: Callable[[Job], bool]) -> None:
    del accepts
    nodes = state.live_nodes()
    if nodes and state.names.shards:
        change = rng.choice((state.add_replica, state.remove_replica))
        change(rng.randrange(len(state.names.shards)), rng.choice(nodes))


def _change_queue(state: State, rng: Random, accepts: Callable[[Job], bool]) -> None:
    del accepts
    state.set_queue(rng.choice(random_queues(rng)))


def _withhold(state: State, rng: Random, accepts: Callable[[Job], bool]) -> None:
    del accepts
    nodes = state.live_nodes()
    if nodes:
        node = rng.choice(nodes)
        state.ledger.withhold(node, [n for n in range(4) if rng.random() < 0.3])
        for task in moves.units_on_withheld(state, node):
            moves.give_up(state, task)


def _drain_or_resume(state: State, rng: Random) -> None:
    nodes = state.live_nodes()
    if nodes:
        node = rng.choice(nodes)
        for task in moves.units_to(state, node):
            moves.give_up(state, task)
        state.ledger.drain(node, draining=not state.nodes.draining[node])


def _begin_moves(state: State, rng: Random, chance: float = 0.3) -> None:
    """Stop some units to move to free places; of some gangs, runs have ended then."""
    for task in _in(state, TaskState.RUNNING):
        unit = moves.unit_of(state, task)
        whole = all(state.tasks.state[t] in (TaskState.STARTING, TaskState.RUNNING) for t in unit)
        if not whole or rng.random() >= chance:
            continue
        mover, node = rng.choice(unit), rng.choice(state.live_nodes())
        gpus = _room(state, mover, node, ceiling=False)
        used = {state.tasks.node[member] for member in unit if member != mover}
        if gpus is None or (state.job(state.tasks.job[task]).distinct_nodes and node in used):
            continue
        if moves.stays(state, mover, node, gpus) or any(
            set(state.held_gpus(t)) & set(state.withheld_gpus_of(state.tasks.node[t])) for t in unit
        ):
            continue
        for member in unit:
            own = state.tasks.node[member], state.held_gpus(member)
            target = (node, gpus) if member == mover else own
            moves.hold_target(state, member, *target)
            state.move_task(member, TaskState.STOPPING)
        for member in unit[: rng.randrange(len(unit))]:
            moves.vacate(state, member)


def _activate(state: State, job: int) -> None:
    queue = state.jobs.queue[job]
    limit = state.queue(queue).max_jobs_in_flight
    if state.jobs.state[job] != JobState.QUEUED:
        return
    if limit is not None and state.queues.in_flight[queue] >= limit:
        return
    activate(state, job)


def _launch(state: State, rng: Random) -> None:
    """Launch a random waiting task, with all others of its gang, where they fit."""
    waiting = _in(state, TaskState.WAITING)
    if not waiting:
        return
    job = state.tasks.job[rng.choice(waiting)]
    tasks = state.waiting_of(job).tolist()
    gang = state.job(job).gang
    if gang and len(tasks) < state.jobs.task_count[job]:
        return
    placed: list[int] = []
    apart = state.job(job).distinct_nodes
    for task in tasks if gang else [rng.choice(tasks)]:
        used = {state.tasks.node[other] for other in placed} if apart else set()
        rooms = [
            n for n in state.live_nodes() if n not in used and _room(state, task, n) is not None
        ]
        if not rooms:
            break
        node = rng.choice(rooms)
        gpus = _room(state, task, node) or ()
        state.launch(task, node, gpus, attempt=state.tasks.next_attempt[task])
        placed.append(task)
    else:
        return
    for task in placed:  # the gang did not fit as a whole
        state.release(task, TaskState.WAITING)


def _room(state: State, task: int, node: int, *, ceiling: bool = True) -> tuple[int, ...] | None:
    tasks, queue = state.tasks, state.jobs.queue[state.tasks.job[task]]
    need, limit = tasks.gpus[task], state.queue(queue).max_gpus
    demand = tasks.demand[task]
    if ceiling and limit is not None and need and state.gpus_of_queues()[queue] + need > limit:
        return None
    if state.names.demands[demand].in_part:
        return state.ledger.best_gpus(demand, node)
    first = state.nodes.first_gpu[node]
    room = state.ledger.gpu_room(demand, first, first + state.nodes.gpu_count[node])
    free = room.nonzero()[0].tolist()
    if len(free) < need or state.ledger.lacks(demand, node):
        return None
    return tuple(free[:need])


def _advance(state: State, rng: Random) -> None:
    """Start, finish or stop a random run."""
    held = [t for s in RUNS for t in _in(state, s)]
    if not held:
        return
    task = rng.choice(held)
    job, task_state = state.tasks.job[task], state.tasks.state[task]
    if task_state == TaskState.STARTING:
        state.tasks.started_at[task] = state.now
        state.move_task(task, TaskState.RUNNING)
    elif state.tasks.target[task] >= 0:
        _end_to_move(state, task)
    elif task_state == TaskState.STOPPING:
        ending = state.jobs.state[job] == JobState.STOPPING or is_cancelled(state, task)
        state.release(task, TaskState.CANCELLED if ending else TaskState.WAITING)
    else:
        state.release(task, TaskState.FINISHED)
        if task in state.results:
            for shard in state.results[task]:
                state.add_replica(shard, state.tasks.node[task])
        for later in state.dependents.get(task, ()):
            state.tasks.blockers[later] -= 1
            if not state.tasks.blockers[later]:
                unblock(state, later)
    release_held(state, job)
    _close(state, job)


def _end_to_move(state: State, task: int) -> None:
    moves.vacate(state, task)
    unit = moves.unit_of(state, task)
    if all(state.tasks.state[member] == TaskState.MOVING for member in unit):
        for member in unit:
            moves.arrive(state, member)


def _close(state: State, job: int) -> None:
    end = end_of_job(state, job)
    if end is not None:
        state.move_job(job, end)


def _cancel_task(state: State, rng: Random, *, chance: float) -> None:
    """Cancel a random task, perhaps, if it can be cancelled alone."""
    if rng.random() >= chance or not len(state.tasks.state):
        return
    task = rng.randrange(len(state.tasks.state))
    job, ordinal = state.tasks.job[task], state.ordinal(task)
    event = TaskCancelled(at=state.now, job=state.job(job).id, ordinal=ordinal, by="ada")
    if cancel_task(state, event) is not None:
        release_held(state, job)
        _close(state, job)


def _interrupt(state: State, rng: Random) -> None:
    """Cancel the job of a random run; or, of a gang, end that run and stop the others."""
    running = _in(state, TaskState.RUNNING)
    if not running:
        return
    chosen = rng.choice(running)
    job = state.tasks.job[chosen]
    again = state.job(job).gang and rng.random() < 0.7
    if not again:
        for task in state.tasks_of(job):
            moves.give_up(state, task)
        state.move_job(job, JobState.STOPPING, "cancelled by ada")
    for task in state.tasks_of(job):
        task_state = state.tasks.state[task]
        if again and task == chosen:
            state.release(task, TaskState.WAITING)
        elif task_state in (TaskState.STARTING, TaskState.RUNNING):
            state.move_task(task, TaskState.STOPPING)
        elif again and task_state == TaskState.FINISHED:
            state.move_task(task, TaskState.WAITING)
        elif not again and task_state in (TaskState.HELD, TaskState.BLOCKED, TaskState.WAITING):
            state.move_task(task, TaskState.CANCELLED)
    _close(state, job)


def _lose(state: State, rng: Random) -> None:
    """Take a random node down if nothing runs on it, or bring one back with other GPUs."""
    node = rng.randrange(len(state.nodes.alive))
    grants = state.grants
    held = {grants.node[g] for g in range(len(grants.task)) if grants.task[g] >= 0}
    if not state.nodes.alive[node]:
        state.add_node(random_node(rng, int(state.node(node).id[1:])))
    elif node not in held and rng.random() < 0.5:
        state.remove_node(node)


def _in(state: State, wanted: TaskState) -> list[int]:
    return [t for t, s in enumerate(state.tasks.state.array().tolist()) if s == wanted]
