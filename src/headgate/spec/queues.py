"""Queues of a file: a tree, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from headgate.base.text import one_of
from headgate.base.units import format_seconds
from headgate.model import BASE_KINDS, WHOLE, Queue
from headgate.model.queue import (
    DEFAULT,
    GPUS_KIND,
    QueueAmounts,
    above,
    amount_text,
    guaranteed_of,
    limits_of,
)
from headgate.spec.document import Document, Place, read_document
from headgate.spec.grace import Grace
from headgate.spec.needs import Amount
from headgate.spec.shape import Count, FileShape, Memory, Name, Positive, RunTime, parse, shown
from headgate.spec.where import Selector

_OF_JOBS = ("types", "max_jobs_in_flight", "estimate", "yield_ratio")


class LimitShape(FileShape):
    """Amounts by kind of resource; custom kinds beside these."""

    gpus: Count | None = None
    cpus: Amount | None = None
    memory: Memory | None = None


class QueueShape(FileShape):
    name: Name = "?"
    queues: list[Any] = Field(default_factory=list)
    weight: Annotated[float, Field(ge=1e-6, le=1e6)] = 1.0
    limit: Any = None
    per_user: Any = None
    elastic_limit: Annotated[float, Field(ge=0, le=1)] = 1.0
    yield_ratio: Annotated[float, Field(ge=0, le=1)] = 1.0
    max_gpus: Positive | None = None
    guaranteed: Any = None
    borrow_limit: Any = None
    lend: bool = True
    users: list[Name] = Field(default_factory=list)
    admins: list[Name] = Field(default_factory=list)
    max_time: RunTime = None
    grace: Grace = None
    min_run: RunTime = None
    labels: Selector
    types: list[Name] = Field(default_factory=list)
    max_jobs_in_flight: Positive | None = None
    state: Literal["open", "closed", "stopped"] = "open"
    estimate: Literal["corrected", "declared"] = "corrected"
    must: ClassVar = ("name",)


def build_queues(document: Document, raw: Any, place: Place) -> dict[str, Queue]:
    """Return the queues by name, each after the one above it; adds problems to the document."""
    builder = _TreeBuilder(document)
    builder.add(raw, place, parent="")
    builder.check_guarantees()
    builder.check_users()
    return builder.queues


def with_default(queues: dict[str, Queue]) -> dict[str, Queue]:
    """Return queues with `default`, which always exists."""
    return queues if DEFAULT in queues else {**queues, DEFAULT: Queue(name=DEFAULT)}


def load_queues(source: Path | str) -> tuple[Queue, ...]:
    """Return the queues of a file or of text, parents first; SpecError with every problem."""
    document = read_document(source, name="queues")
    for key in document.data:
        if key != "queues":
            document.add((key,), f"unknown key '{key}'", "a queues file has one key, 'queues'")
    listed = document.data.get("queues")
    if not isinstance(listed, list) or not listed:
        document.add(("queues",), "must be a list of queues", "such as - {name: team, weight: 2}")
        listed = []
    found = build_queues(document, listed, ("queues",))
    document.raise_problems()
    return tuple(found.values())


def queue_of_type(queues: Mapping[str, Queue], wanted: str) -> str | None:
    """Return the name of the queue that takes jobs of a type, None if none does."""
    return next((name for name, queue in queues.items() if wanted in queue.types), None)


def types_of(queues: Mapping[str, Queue]) -> list[str]:
    """Return all types of jobs that queues take."""
    return [wanted for queue in queues.values() for wanted in queue.types]


def not_for_user(queues: Mapping[str, Queue], name: str, user: str) -> str | None:
    """Return the problem of a user who may have no jobs in a queue, None if there is none."""
    for queue in above(queues, name):
        if queue.users and user not in (*queue.users, *queue.admins):
            return f"permission denied: queue '{queue.name}' is for {one_of(queue.users)}"
    return None


def with_time_limit(
    queues: Mapping[str, Queue], name: str, limit_s: float | None
) -> tuple[float | None, str | None]:
    """Return the time limit of a job's runs in a queue, and the problem of one that is too long."""
    most_s, queue = min(
        ((q.max_time_s, q.name) for q in above(queues, name) if q.max_time_s is not None),
        default=(None, name),
    )
    if most_s is None or (limit_s is not None and limit_s <= most_s):
        return limit_s, None
    if limit_s is None:
        return most_s, None
    most = format_seconds(most_s)
    return most_s, f"is {format_seconds(limit_s)}; queue '{queue}' allows {most}"


def not_for_jobs(queues: Mapping[str, Queue], name: str) -> tuple[str, str] | None:
    """Return the problem, with a hint, of a queue that takes no jobs now; None if it does."""
    below = [queue.name for queue in queues.values() if queue.parent == name]
    if below:
        return f"queue '{name}' is divided, and takes no jobs", f"name one of {', '.join(below)}"
    for queue in above(queues, name):
        if queue.state == "closed":
            return f"queue '{queue.name}' is closed, and takes no new jobs", "use another queue"
    return None


class _TreeBuilder:
    """The queues so far; of each its place."""

    def __init__(self, document: Document) -> None:
        self.queues: dict[str, Queue] = {}
        self._places: dict[str, Place] = {}
        self._document = document
        self._types: dict[str, str] = {}  # type -> queue

    def add(self, raw: Sequence[Any], place: Place, *, parent: str) -> None:
        """Add the queues of a list, and those below them."""
        for number, item in enumerate(raw):
            here = (*place, number)
            shape = parse(self._document, QueueShape, item, here)
            if shape is not None:
                self._add(shape, item, here, parent)

    def _add(self, shape: QueueShape, raw: Mapping[str, Any], place: Place, parent: str) -> None:
        document = self._document
        if shape.name in self.queues:
            document.add((*place, "name"), f"the queue '{shape.name}' exists already")
        max_gpus, limit = self._limit(shape, place)
        per_user = self._amounts(shape.per_user, (*place, "per_user"))
        guaranteed = self._amounts(shape.guaranteed, (*place, "guaranteed"))
        borrow_limit = self._amounts(shape.borrow_limit, (*place, "borrow_limit"))
        for wanted in shape.types:
            if wanted in self._types:
                text = f"queue '{self._types[wanted]}' takes jobs of type '{wanted}' already"
                document.add((*place, "types"), text, "each type has one queue")
            self._types.setdefault(wanted, shape.name)
        if shape.queues:
            self._check_inner(shape, raw, place)
        self._places.setdefault(shape.name, place)
        queue = Queue(
            name=shape.name,
            parent=parent,
            weight=shape.weight,
            max_gpus=max_gpus,
            limit=limit,
            per_user=per_user,
            elastic_limit=shape.elastic_limit,
            yield_ratio=shape.yield_ratio,
            guaranteed=guaranteed,
            borrow_limit=borrow_limit,
            lend=shape.lend,
            users=tuple(dict.fromkeys(shape.users)),
            admins=tuple(dict.fromkeys(shape.admins)),
            max_time_s=shape.max_time,
            grace_s=shape.grace,
            min_run_s=shape.min_run or 0.0,
            labels=tuple(dict.fromkeys(shape.labels)),
            types=tuple(dict.fromkeys(shape.types)),
            max_jobs_in_flight=shape.max_jobs_in_flight,
            state=shape.state,
            estimate=shape.estimate,
        )
        self.queues.setdefault(shape.name, queue)  # a second one is a problem, and no cycle
        self.add(shape.queues, (*place, "queues"), parent=shape.name)

    def check_guarantees(self) -> None:
        """Add what is wrong with guarantees, given those of other queues, and limits."""
        queues = [*self.queues.values()]
        for row, queue in enumerate(queues):
            place = (*self._places[queue.name], "guaranteed")
            own = dict(queue.guaranteed)
            limits = limits_of(queue)
            for kind in dict.fromkeys([*own, *limits]):
                below = guaranteed_of(
                    [replace(each, guaranteed=()) if each is queue else each for each in queues],
                    row,
                    kind,
                )
                has = amount_text(kind, own.get(kind, below))
                if kind in own and below > own[kind]:
                    text = f"is {has}, less than the {amount_text(kind, below)} of those below it"
                    self._document.add(place, text, "raise it, or leave it out for their sum")
                elif kind in limits and max(below, own.get(kind, 0)) > limits[kind]:
                    most = amount_text(kind, limits[kind])
                    self._document.add(place, f"is {has}, above the limit of {most}")

    def check_users(self) -> None:
        """Add where each user is allowed more than the queue may hold in all."""
        for queue in self.queues.values():
            limits = limits_of(queue)
            for kind, amount in queue.per_user:
                if amount > limits.get(kind, amount):
                    most = amount_text(kind, limits[kind])
                    text = f"is {amount_text(kind, amount)}, above the limit of {most}"
                    self._document.add((*self._places[queue.name], "per_user"), text)

    def _check_inner(self, shape: QueueShape, raw: Mapping[str, Any], place: Place) -> None:
        """Add what is wrong with a queue that has others below it, and so no jobs."""
        document = self._document
        for key in _OF_JOBS:
            if key in raw:
                text = "is for queues that jobs wait in, which have no queues below them"
                document.add((*place, key), text, f"give it to the queues below {shape.name}")
        if shape.name == DEFAULT:
            text = "takes the jobs that name no queue, so it has no queues below it"
            document.add((*place, "queues"), text)

    def _limit(self, shape: QueueShape, place: Place) -> tuple[int | None, QueueAmounts]:
        """Return the limit of GPUs, and that of other kinds."""
        place = (*place, "limit")
        limit = dict(self._amounts(shape.limit, place))
        gpus = limit.pop(GPUS_KIND, None)
        if gpus is not None and shape.max_gpus is not None:
            text = "is given by max_gpus already"
            self._document.add((*place, GPUS_KIND), text, "leave out one of both")
        most = shape.max_gpus if gpus is None else gpus // WHOLE
        return most, tuple(sorted(limit.items()))

    def _amounts(self, raw: Any, place: Place) -> QueueAmounts:
        """Return amounts by kind."""
        document = self._document
        if raw is None:
            return ()
        if not isinstance(raw, dict):
            text = f"must be amounts by kind, not {shown(raw)}"
            document.add(place, text, "such as {gpus: 8, cpus: 64}")
            return ()
        known = {key: value for key, value in raw.items() if key in (GPUS_KIND, *BASE_KINDS)}
        found = parse(document, LimitShape, known, place) or LimitShape()
        cpus = None if found.cpus is None else round(WHOLE * found.cpus)
        gpus = None if found.gpus is None else WHOLE * found.gpus
        amounts = {GPUS_KIND: gpus, "cpus": cpus, "memory": found.memory}
        for key, value in raw.items():
            if key not in known:
                amounts[str(key)] = self._custom(value, (*place, key))
        some = [(name, amount) for name, amount in amounts.items() if amount is not None]
        return tuple(sorted(some))

    def _custom(self, value: Any, place: Place) -> int | None:
        """Return the amount of a custom kind in thousandths."""
        shape = parse(self._document, _OneAmount, {"amount": value}, place)
        return None if shape is None else round(WHOLE * shape.amount)


class _OneAmount(FileShape):
    amount: Amount = 1.0
