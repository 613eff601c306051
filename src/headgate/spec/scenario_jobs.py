"""The `jobs` of a scenario: tasks with the shards they read, checked against the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from headgate.base.errors import nearest
from headgate.base.rng import stream
from headgate.model import (
    Demand,
    Elastic,
    Job,
    Node,
    Queue,
    Shard,
    Task,
    Training,
    amount_of,
    result_id,
)
from headgate.model.queue import DEFAULT
from headgate.model.scaling import Scaling
from headgate.planning.place.submission_check import ordered_nodes
from headgate.planning.units.fit import infeasible_demand, infeasible_gang, members_that_fit
from headgate.spec.communication import (
    CommunicationShape,
    check_communication,
    communication_of,
)
from headgate.spec.document import Document, Place, clipped
from headgate.spec.elastic import ElasticWork, check_alone, check_units
from headgate.spec.needs import Needs
from headgate.spec.queues import (
    not_for_jobs,
    not_for_user,
    queue_of_type,
    types_of,
    with_time_limit,
)
from headgate.spec.scenario_forms import FORMS, NeedShape, parse_form, shards_of, tasks_of
from headgate.spec.sequence import After, MaxRunning, check_after, check_max_running
from headgate.spec.shape import (
    Count,
    FileShape,
    Name,
    Positive,
    Priority,
    RunSeconds,
    Seconds,
    Size,
    parse,
    shown,
)
from headgate.spec.training import TrainingShape, check_training, is_training, training_of
from headgate.spec.where import Exclude, Nodes, Selector, check_where, unknown_nodes


def _task_ref(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int):
        problem = "must be the name of a task or its index, not {value}"
        raise PydanticCustomError("task_ref", problem, {"value": shown(value)})
    return value


_MEMBERS = 1024  # most nodes of a shape that count when gangs are checked

TaskRef = Annotated[str | int, BeforeValidator(_task_ref)]


class ShardShape(FileShape):
    name: Name | None = None
    size_bytes: Size = 0
    replicas: list[str] = Field(default_factory=list)
    must: ClassVar = ("size_bytes",)


class TaskShape(NeedShape):
    name: Name | None = None
    shards: list[Any] = Field(default_factory=list)
    after: list[TaskRef] = Field(default_factory=list)
    reads_results: bool = False
    must: ClassVar = ("compute_s",)


class JobShape(FileShape):
    name: Name = "?"
    user: Name = "user"
    queue: str = DEFAULT
    type: Name | None = None
    priority: Priority = 0
    kind: str = ""
    submit_s: Seconds = 0.0
    gang: bool = False
    num_nodes: Positive | None = None
    retries: Count = 2
    estimated_s: RunSeconds = None
    time_limit_s: RunSeconds = None
    max_running: MaxRunning = None
    after: After
    wait_for_node: bool = False
    communication: CommunicationShape | None = None
    nodes: Nodes
    exclude: Exclude
    node_selector: Selector
    tasks: list[Any] | None = None
    for_each: Any = None
    wavefront: Any = None
    elastic: Any = None
    work: Any = None
    throughput: Any = None
    deadline_s: RunSeconds = None
    must: ClassVar = ("name",)


_NOT_ELASTIC = ("gang", "num_nodes", "max_running", "communication", "time_limit_s")
"""The keys that an elastic job does not have, beside those of other tasks."""


@dataclass(slots=True, kw_only=True)
class JobsBuilder:
    """Builds the jobs one by one, and collects their shards and the nodes of replicas."""

    document: Document
    nodes: tuple[Node, ...]
    scaling: Scaling | None = None  # whose nodes could hold tasks as well
    queues: Mapping[str, Queue]
    seed: int
    submissions: list[tuple[float, Job]] = field(default_factory=list)
    task_names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    replicas: dict[tuple[str, str], Shard] = field(default_factory=dict)
    _shards: dict[str, Shard] = field(default_factory=dict)
    _known: dict[str, None] = field(init=False)
    _possible: tuple[Node, ...] = field(init=False)
    _waits_for_node: bool = False  # of the job that is being built
    _accepts: dict[str, tuple[str, ...]] = field(default_factory=dict)  # nodes, likewise
    _names_nodes: tuple[Place, ...] = ()
    _misfits: dict[Demand, str] = field(default_factory=dict)
    _ordered: list[tuple[Place, Job, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._known = {node.id: None for node in self.nodes}
        scaling = self.scaling
        ordered = () if scaling is None else ordered_nodes(scaling, self.nodes, _MEMBERS)
        self._possible = (*self.nodes, *ordered)

    def add_all(self, raw: Iterable[Any]) -> None:
        """Add the jobs of a file, and check their order."""
        for number, job in enumerate(raw):
            self.add(job, ("jobs", number))
        self.check_order()

    def add(self, raw: Any, place: Place) -> None:
        """Build one job, adding its problems to the document."""
        document = self.document
        shape = parse(document, JobShape, raw, place)
        if shape is None:
            return
        if shape.name in self.task_names and "name" in raw:
            document.add((*place, "name"), f"the job '{shape.name}' exists already")
        queue = self._queue(shape, raw, place)
        self._waits_for_node = shape.wait_for_node
        self._accept(shape, place)
        elastic, training = self._elastic(raw, place)
        names, tasks, last = self._tasks(shape, raw, place, elastic, training)
        if "num_nodes" in raw:
            names, tasks = self._processes(shape, raw, tasks, place)
        self.task_names[shape.name] = names
        gang = shape.gang or shape.num_nodes is not None or training is not None
        if gang and training is None:
            self._check_gang(shape, tasks, place)
        check_max_running(document, raw, place, gang=gang)
        compute_s = max((task.compute_s for task in tasks), default=0.0)
        if "communication" in raw:
            check_communication(
                document,
                raw["communication"],
                (*place, "communication"),
                communicates=gang or any(task.demand.gpus > 1 for task in tasks),
                compute_s=compute_s,
            )
        check_after(document, shape.after, (*place, "after"))
        reads = dict.fromkeys(shard for task in tasks for shard in task.reads)
        job = Job(
            id=shape.name,
            name=shape.name,
            user=shape.user,
            queue=queue,
            tasks=tasks,
            shards=tuple(self._shards[shard] for shard in reads if shard in self._shards),
            priority=shape.priority,
            gang=gang,
            distinct_nodes=shape.num_nodes is not None,
            retries=shape.retries,
            runtime_class=shape.kind,
            estimated_s=shape.estimated_s,
            time_limit_s=self._time_limit_s(shape, queue, place),
            after=tuple(shape.after),
            max_running=shape.max_running,
            wait_for_node=shape.wait_for_node,
            communication=communication_of(shape.communication, compute_s=compute_s),
            elastic=None
            if elastic is None
            else Elastic(minimum=elastic.min, work_s=elastic.work_s),
            training=None if training is None else training[0],
            deadline_s=shape.deadline_s,
            limited_tasks=len(tasks) - last if shape.max_running is not None and last else None,
        )
        self.submissions.append((shape.submit_s, job))
        if job.after:
            self._ordered.append(((*place, "after"), job, shape.submit_s))

    def _queue(self, shape: JobShape, raw: Mapping[str, Any], place: Place) -> str:
        """Return the queue that a job names, or that takes its type; adds problems."""
        document, wanted = self.document, shape.type
        if wanted is None:
            if shape.queue not in self.queues:
                hint = partial(nearest, shape.queue, self.queues)
                document.add((*place, "queue"), f"unknown queue '{shape.queue}'", hint)
            elif problem := not_for_jobs(self.queues, shape.queue):
                document.add((*place, "queue"), *problem)
            return shape.queue
        if "queue" in raw:
            text = "is for jobs that name no queue"
            document.add((*place, "type"), text, "leave out one of both")
        found = queue_of_type(self.queues, wanted)
        if found is None:
            known = partial(nearest, wanted, types_of(self.queues))
            document.add((*place, "type"), f"no queue takes jobs of type '{wanted}'", known)
        return found or DEFAULT

    def _time_limit_s(self, shape: JobShape, queue: str, place: Place) -> float | None:
        """Return the time limit of a job's runs in its queue; adds a problem if it is too long."""
        if queue not in self.queues:
            return shape.time_limit_s
        limit_s, problem = with_time_limit(self.queues, queue, shape.time_limit_s)
        if problem is not None:
            self.document.add((*place, "time_limit_s"), problem)
        denied = not_for_user(self.queues, queue, shape.user)
        if denied is not None:
            self.document.add((*place, "user"), denied)
        return limit_s

    def _accept(self, shape: JobShape, place: Place) -> None:
        """Store which nodes a job accepts, adding problems."""
        self._accepts = {
            "nodes": tuple(shape.nodes),
            "exclude": tuple(shape.exclude),
            "selector": tuple(shape.node_selector),
        }
        keys = ("nodes", "exclude", "node_selector")
        self._names_nodes = tuple((*place, key) for key in keys)
        self._check_where(shape, place)

    def check_order(self) -> None:
        """Check, once all jobs are built, that each is submitted after those it comes after."""
        number = {job.id: n for n, (_, job) in enumerate(self.submissions)}
        for place, job, submit_s in self._ordered:
            for position, name in enumerate(job.after):
                after_place = (*place, position)
                if name == job.id:
                    self.document.add(after_place, "a job cannot come after itself")
                elif name not in number:
                    named = partial(nearest, name, number)
                    self.document.add(after_place, f"unknown job '{clipped(name)}'", named)
                elif (self.submissions[number[name]][0], number[name]) > (submit_s, number[job.id]):
                    problem = f"'{name}' is submitted later: nothing is known of it yet"
                    hint = "submit it earlier; of jobs submitted together, list it first"
                    self.document.add(after_place, problem, hint)

    # Tasks.

    def _elastic(
        self, raw: Any, place: Place
    ) -> tuple[ElasticWork | None, tuple[Training, Needs] | None]:
        """Return the units of an elastic job, or how a job trains; adds problems."""
        document, here = self.document, (*place, "elastic")
        if is_training(raw):
            check_alone(document, raw, _NOT_ELASTIC, place)
            widths = None
            if "elastic" in raw:
                widths = parse(document, TrainingShape, raw["elastic"], here)
            if not check_training(document, raw, widths, place) or widths is None:
                return None, None
            how = training_of(raw["work"], raw["throughput"], widths, widths.restart_s)
            return None, (how, widths.unit)
        if "elastic" not in raw:
            return None, None
        check_alone(document, raw, _NOT_ELASTIC, place)
        if raw["elastic"] is None:
            document.add(here, "must not be empty")
            return None, None
        elastic = parse(document, ElasticWork, raw["elastic"], here)
        if elastic is not None:
            check_units(document, elastic, here)
        return elastic, None

    def _tasks(
        self,
        shape: JobShape,
        raw: Any,
        place: Place,
        elastic: ElasticWork | None,
        training: tuple[Training, Needs] | None,
    ) -> tuple[tuple[str, ...], tuple[Task, ...], int]:
        """Return the names and tasks of a job, which it gives in exactly one form.

        The last number is that of the reduce tasks, which come last.
        """
        given = [key for key in ("tasks", *FORMS, "elastic") if key in raw]
        if not given and is_training(raw):
            return (), (), 0
        if not given:
            hint = "a job has tasks, or for_each, wavefront or elastic to make them"
            self.document.add((*place, "tasks"), "is missing", hint)
        for key in given[1:]:
            problem = f"a job has {given[0]} or {key}, not both"
            self.document.add((*place, key), problem)
        for key in given:
            if key == "elastic":
                return *self._units(shape, raw, place, _units(elastic, training)), 0
            if key in FORMS:
                return self._formed(shape, key, (*place, key))
        return *self._listed(shape, (*place, "tasks")), 0

    def _listed(self, shape: JobShape, place: Place) -> tuple[tuple[str, ...], tuple[Task, ...]]:
        """Return the names and tasks of a job that lists its tasks."""
        if not shape.tasks:
            if self.document.is_clean(place):
                self.document.add(place, "must not be empty")
            return (), ()
        taken = [parse(self.document, TaskShape, r, (*place, i)) for i, r in enumerate(shape.tasks)]
        names = self._names(shape.name, taken, place)
        after = self._after(taken, names, place)
        tasks = []
        for number, task in enumerate(taken):
            if task is None:
                continue
            reads = self._reads(task, (shape.name, number), (*place, number))
            if task.reads_results and not task.after:
                problem = "there is nothing to read: the task comes after no other"
                self.document.add(
                    (*place, number, "reads_results"), problem, "name them in 'after'"
                )
            if task.reads_results:
                reads += [result_id(shape.name, earlier) for earlier in after[number]]
            needs = self._task(task, (*place, number))
            tasks.append(replace(needs, reads=tuple(reads), after=after[number]))
        return tuple(names), tuple(tasks)

    def _units(
        self, shape: JobShape, raw: Any, place: Place, units: tuple[NeedShape | None, int, int]
    ) -> tuple[tuple[str, ...], tuple[Task, ...]]:
        """Return the names and tasks of an elastic job, and check its first ones like a gang."""
        (unit, most, together), here = units, (*place, "elastic")
        if unit is None:
            return (), ()
        tasks = (self._task(unit, (*here, "unit")),) * most
        if 1 < together <= most:
            key = "min" if "work" not in raw else "gpus"
            self._check_together(tasks[:together], (*here, key), shape.queue)
        return tuple(f"{shape.name}/{number}" for number in range(len(tasks))), tasks

    def _processes(
        self, shape: JobShape, raw: Any, tasks: tuple[Task, ...], place: Place
    ) -> tuple[tuple[str, ...], tuple[Task, ...]]:
        """Return the names and tasks of a job with `num_nodes`: its one task, on each node."""
        document, starts = self.document, "'num_nodes' starts one process per node"
        if shape.num_nodes is None and document.is_clean((*place, "num_nodes")):
            document.add((*place, "num_nodes"), "must not be empty")
        if "gang" in raw and not shape.gang and document.is_clean((*place, "gang")):
            problem = "the processes of 'num_nodes' start together: they are a gang"
            document.add((*place, "gang"), problem, "remove 'gang', or write 'gang: true'")
        for key in FORMS:
            if key in raw:
                problem = f"{starts}: it does not go with '{key}'"
                document.add((*place, key), problem, "remove one of them")
        listed = shape.tasks or ()
        if len(listed) > 1:
            hint = "list one task, which all of them run"
            document.add((*place, "tasks"), f"{starts}, but there are {len(listed)} tasks", hint)
        elif any(isinstance(task, dict) and "name" in task for task in listed):
            problem = f"{starts}, and their names are {shape.name}/0, {shape.name}/1, ..."
            document.add((*place, "tasks", 0, "name"), problem, "remove it")
        tasks = tasks[:1] * (shape.num_nodes or 1)
        return tuple(f"{shape.name}/{number}" for number in range(len(tasks))), tasks

    def _names(self, job: str, tasks: list[TaskShape | None], place: Place) -> list[str]:
        names: dict[str, None] = {}
        for number, task in enumerate(tasks):
            name = task.name if task and task.name is not None else f"{job}/{number}"
            if name in names:
                self.document.add((*place, number, "name"), f"the task '{name}' exists already")
                name = f"{job}/{number}"
            names[name] = None
        return list(names)

    def _task(self, shape: NeedShape, place: Place) -> Task:
        """Return a task with these needs; add a problem if they are valid and no node fits them."""
        task = Task(
            demand=shape.demand(**self._accepts),
            compute_s=shape.compute_s,
            checkpoint_s=shape.checkpoint_s,
            output_bytes=shape.output_bytes,
        )
        shape.check(self.document, place)
        places = [("cluster",), *((*place, key) for key in Needs.model_fields), *self._names_nodes]
        if all(map(self.document.is_clean, places)):
            need = task.demand
            if need not in self._misfits:
                self._misfits[need] = infeasible_demand(need, self._possible)
            if self._misfits[need] and not self._waits_for_node:
                self.document.add(place, self._misfits[need])
        return task

    def _check_where(self, shape: JobShape, place: Place) -> None:
        """Check that a job accepts some node, and names only nodes that may be there."""
        document = self.document
        check_where(document, shape.nodes, shape.exclude, place)
        if shape.wait_for_node or not document.is_clean(("cluster",)):
            return
        for key, number, problem, hint in unknown_nodes(shape.nodes, shape.exclude, self._known):
            document.add((*place, key, number), problem, hint)

    def _after(
        self, tasks: list[TaskShape | None], names: list[str], place: Place
    ) -> list[tuple[int, ...]]:
        """Return the ordinals that every task waits for; of a cycle, note the cycle."""
        ordinals = {name: number for number, name in enumerate(names)}
        after: list[tuple[int, ...]] = []
        for number, task in enumerate(tasks):
            earlier: dict[int, None] = {}
            for i, ref in enumerate(task.after if task else ()):
                ordinal = ordinals.get(ref) if isinstance(ref, str) else ref
                if ordinal is None:
                    named = partial(_nearest_task, str(ref), names)
                    self.document.add((*place, number, "after", i), f"unknown task '{ref}'", named)
                elif not 0 <= ordinal < len(names):
                    problem = f"there is no task {shown(ref)}"
                    hint = f"tasks have indices 0 to {len(names) - 1}"
                    self.document.add((*place, number, "after", i), problem, hint)
                else:
                    earlier[ordinal] = None
            after.append(tuple(earlier))
        if cycle := find_cycle(after):
            walk = " -> ".join(names[ordinal] for ordinal in cycle)
            problem = f"tasks wait for each other in a cycle: {walk}"
            self.document.add((*place, cycle[0], "after"), problem, "take one of these out")
        return after

    def _check_gang(self, shape: JobShape, tasks: tuple[Task, ...], place: Place) -> None:
        apart = shape.num_nodes is not None
        gang_place = (*place, "num_nodes" if apart else "gang")
        if any(task.after for task in tasks):
            self.document.add(
                gang_place, "a gang starts all its tasks together, yet some come after others"
            )
        if self.document.is_clean(place):
            self._check_together(tasks, gang_place, shape.queue, apart=apart)

    def _check_together(
        self, tasks: tuple[Task, ...], gang_place: Place, queue: str, *, apart: bool = False
    ) -> None:
        """Check that tasks which start together fit the nodes, and their queue."""
        most = self.queues[queue].most_gpus() if queue in self.queues else None
        gpus = amount_of(sum(task.demand.gpus_milli for task in tasks))
        if not self.document.is_clean(gang_place) or not self.document.is_clean(("cluster",)):
            return
        if self._waits_for_node:
            return
        if problem := infeasible_gang(tasks, self._possible, distinct_nodes=apart):
            largest = members_that_fit(tasks, self._possible, distinct_nodes=apart)
            self.document.add(gang_place, problem, f"the largest gang that fits has {largest}")
        elif most is not None and gpus > most:
            problem = f"the gang can never start: it needs {gpus} GPUs, queue {queue} may"
            self.document.add(gang_place, f"{problem} use {most}", "raise max_gpus of the queue")

    # Shards.

    def _reads(self, task: TaskShape, owner: tuple[str, int], place: Place) -> list[str]:
        reads: dict[str, None] = {}
        for position, raw in enumerate(task.shards):
            shard_place = (*place, "shards", position)
            shape = parse(self.document, ShardShape, raw, shard_place)
            if shape is None:
                continue
            shard = Shard(
                id=shape.name or f"{owner[0]}/{owner[1]}/{position}", size_bytes=shape.size_bytes
            )
            if shard.id in reads:
                self.document.add(
                    (*shard_place, "name"), f"the task reads the shard '{shard.id}' twice"
                )
                continue
            reads[shard.id] = None
            first = self._shards.setdefault(shard.id, shard)
            if first != shard and self.document.is_clean((*shard_place, "size_bytes")):
                self.document.add(
                    (*shard_place, "size_bytes"),
                    f"the shard '{shard.id}' has {first.size_bytes} bytes elsewhere in the file, "
                    f"not {shard.size_bytes}",
                    "shards of one name are one shard",
                )
            self._place(first, shape.replicas, (*shard_place, "replicas"))
        return list(reads)

    def _place(self, shard: Shard, nodes: list[str], place: Place) -> None:
        named: set[str] = set()
        for number, node in enumerate(nodes):
            if node in named:
                self.document.add((*place, number), f"the node '{node}' is named twice")
            elif node in self._known:
                self.replicas[(shard.id, node)] = shard
            elif self.document.is_clean(("cluster",)):
                hint = partial(_nearest_node, node, self._known)
                self.document.add((*place, number), f"unknown node '{node}'", hint)
            named.add(node)

    # Forms.

    def _formed(
        self, shape: JobShape, key: str, place: Place
    ) -> tuple[tuple[str, ...], tuple[Task, ...], int]:
        """Return names and tasks of a form, and how many of these reduce.

        The nodes of replicas are drawn from the seed.
        """
        form = parse_form(self.document, key, getattr(shape, key), place)
        if form is None:
            return (), (), 0
        replicas = form.shape.replicas
        if replicas > len(self._known):
            if self.document.is_clean(("cluster",)):
                problem = f"{replicas} replicas do not fit on {len(self._known)} nodes"
                self.document.add((*place, "replicas"), problem)
            return (), (), 0
        rng = stream(self.seed, "replicas", shape.name)
        nodes = list(self._known)
        shards = shards_of(form, shape.name)
        for shard in (shard for row in shards for shard in row):
            self._shards[shard.id] = shard
            for node in rng.sample(nodes, replicas):
                self.replicas[(shard.id, node)] = shard
        tasks = tasks_of(form, shape.name, shards, self._task)
        names = tuple(f"{shape.name}/{number}" for number in range(len(tasks)))
        return names, tasks, form.reduce.tasks if form.reduce is not None else 0


def _units(
    elastic: ElasticWork | None, training: tuple[Training, Needs] | None
) -> tuple[NeedShape | None, int, int]:
    """Return what each unit needs, how many there are, and how many start together at least."""
    if training is not None:
        how, needs = training
        unit = NeedShape.model_construct(**dict(needs), compute_s=how.narrowest_s)
        return unit, how.speeds.widths[-1], how.speeds.widths[0]
    if elastic is None:
        return None, 0, 0
    compute_s = elastic.work_s / elastic.min
    unit = NeedShape.model_construct(**dict(elastic.unit), compute_s=compute_s)
    return unit, elastic.max, elastic.min


def _nearest_task(ref: str, names: list[str]) -> str:
    return nearest(ref, [name for name in names if "/" not in name])


def _nearest_node(node: str, known: Mapping[str, None]) -> str:
    hint = nearest(node, known)
    return hint if hint.startswith("did") or len(known) <= 20 else f"there are {len(known)} nodes"


def find_cycle(after: list[tuple[int, ...]]) -> list[int]:
    """Return one cycle, its first ordinal again at its end; or nothing. O(tasks + arcs)."""
    state = [0] * len(after)  # 0 not seen, 1 on the path, 2 done
    for root in range(len(after)):
        if state[root]:
            continue
        path, pending = [root], [iter(after[root])]
        state[root] = 1
        while path:
            step = next(pending[-1], None)
            if step is None:
                state[path.pop()] = 2
                pending.pop()
            elif state[step] == 1:
                return [*path[path.index(step) :], step]
            elif state[step] == 0:
                state[step] = 1
                path.append(step)
                pending.append(iter(after[step]))
    return []
