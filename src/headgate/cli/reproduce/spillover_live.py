"""`headgate reproduce spillover --live`: small calls on unlike nodes, beside Ray's scheduling."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import psutil

from headgate.api.client import Client
from headgate.api.executor import Executor
from headgate.base.errors import WorldError
from headgate.cli.reproduce.bed_controller import controller
from headgate.planning.balancers import BALANCERS
from headgate.planning.calls.dispatch import Lease, Pick, soonest
from headgate.planning.calls.picks import picks_by

if TYPE_CHECKING:
    from headgate.experiments.bed import Bed
    from headgate.experiments.spillover.live import LiveOptions, LiveResults, Rows
    from headgate.experiments.spillover.live_tables import Tables

_WARM_S = 90.0
_WARM_STEPS = 400_000
_NODES = "headgate-nodes"  # the family of their control groups
_IDLE_S = 3600.0  # processes must not end between rounds
ShowProgress = Callable[[str], None]
Call = Callable[[Any], Any]


class Calls(Protocol):
    """A way to execute many calls of a function."""

    def one_by_one(self, fn: Call, arguments: Iterable[Any]) -> list[Any]:
        """Execute one call after the other; return their results."""

    def together(self, fn: Call, arguments: Iterable[Any]) -> list[Any]:
        """Execute calls that are all in flight; return their results in order."""

    def mixed(self, fn: Call, arguments: Sequence[tuple[int, Any]]) -> list[Any]:
        """Like `together`, for pairs: the CPUs that a call requests, and its argument."""


class ExecutorCalls:
    """Calls in the slots of executors, by the CPUs of a slot."""

    def __init__(self, executors: Mapping[int, Executor]) -> None:
        """Calls without a demand are executed by the first executor."""
        self._executors = executors
        self._first = next(iter(executors.values()))

    def one_by_one(self, fn: Call, arguments: Iterable[Any]) -> list[Any]:
        """Execute one call after the other; return their results."""
        return [self._first.submit(fn, argument).result() for argument in arguments]

    def together(self, fn: Call, arguments: Iterable[Any]) -> list[Any]:
        """Execute calls that are all in flight; return their results in order."""
        futures = [self._first.submit(fn, argument) for argument in arguments]
        return [future.result() for future in futures]

    def mixed(self, fn: Call, arguments: Sequence[tuple[int, Any]]) -> list[Any]:
        """Like `together`, for pairs: the CPUs that a call requests, and its argument."""
        futures = [self._executors[cpus].submit(fn, argument) for cpus, argument in arguments]
        return [future.result() for future in futures]


@dataclass(frozen=True, slots=True)
class _Workload:
    """Calls, and how to execute them; `right` returns whether their results are."""

    name: str
    count: int
    run: Callable[[Calls], list[Any]]
    right: Callable[[list[Any]], bool]


class _Switch:
    """A balancer that is replaced between measurements, as slots take long to start."""

    def __init__(self) -> None:
        self.now: Pick = soonest

    def __call__(self, leases: Sequence[Lease]) -> int:
        return self.now(leases)


def run_live(options: LiveOptions, show_progress: ShowProgress) -> LiveResults:
    """Measure all; nodes, groups and files are removed at the end, also after a failure.

    Raises WorldError when Ray is not installed, or the nodes do not start.
    """
    from headgate.experiments.bed import Bed, remove_leftovers
    from headgate.experiments.spillover import live, live_tables
    from headgate.live.cluster.ray_nodes import connect

    end = time.monotonic() + options.most_s
    before = os.getloadavg()[0]
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="headgate-spillover-"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        show_progress(f"generating {options.megabytes:g} MB of sales")
        directory.chmod(0o755)  # the processes of calls may be of another user
        tables = live_tables.generate(
            directory, megabytes=options.megabytes, files=options.files, seed=options.seed
        )
        cpus = [node.cpus for node in options.nodes]
        show_progress(f"starting {len(cpus)} virtual nodes of {cpus} CPUs")
        remove_leftovers()  # before the groups that their processes are in
        meter = stack.enter_context(_meter(options))
        bed = stack.enter_context(Bed({"r0": len(cpus)}, gpus=0, cpus=cpus, network=False))
        client = stack.enter_context(controller(bed))
        connect(bed.cluster.address, token=bed.cluster.token)
        ray_calls = _ray_calls(stack)
        bench = _Bench(options, bed, client, meter, ray_calls, end, show_progress)
        bench.measure({1: sum(cpus)}, _alike(options, tables))
        large = max(1, sum(cpus) // 4)
        bench.measure({2: large, 1: sum(cpus) - 2 * large}, _mixed(options))
    return live.LiveResults(
        options=options,
        limited=meter.limited,
        rows=bench.rows.all(),
        wrong=tuple(bench.wrong),
        load=(before, os.getloadavg()[0]),
        cores=os.cpu_count() or 1,
    )


def _ray_calls(stack: ExitStack) -> Calls:
    from headgate.live.calls.ray_calls import RayCalls

    calls = RayCalls()
    stack.callback(calls.close)
    return calls


def _alike(options: LiveOptions, tables: Tables) -> list[_Workload]:
    """Return the workloads whose calls each request one CPU."""
    from headgate.experiments.spillover import live, live_tables

    def increases(count: int, found: list[Any]) -> bool:
        return found == list(range(1, count + 1))

    count = options.one_by_one
    some = [
        _Workload(
            "sync",
            count,
            lambda calls: calls.one_by_one(live.increased, range(count)),
            partial(increases, count),
        )
    ]
    for many in options.in_flight:

        def together(calls: Calls, many: int = many) -> list[Any]:
            return calls.together(live.increased, range(many))

        some.append(_Workload("async", many, together, partial(increases, many)))
    step_count = live.STEPS
    computed = [live.arithmetic(step_count)] * options.balance
    some.append(
        _Workload(
            "balance",
            options.balance,
            lambda calls: calls.together(live.arithmetic, [step_count] * options.balance),
            lambda found: found == computed,
        )
    )
    answers = live_tables.answers(tables)
    paths = tables.sales * options.passes
    pairs = [(path, tables.store) for path in paths]

    def answered(query: str, found: list[Any]) -> bool:
        files = len(tables.sales)
        parts = (found[start : start + files] for start in range(0, len(found), files))
        return all(live_tables.merged(part) == answers[query] for part in parts)

    return [
        *some,
        _Workload(
            "scan",
            len(paths),
            lambda calls: calls.together(live_tables.scan, paths),
            partial(answered, "scan"),
        ),
        _Workload(
            "join",
            len(pairs),
            lambda calls: calls.together(live_tables.join, pairs),
            partial(answered, "join"),
        ),
    ]


def _mixed(options: LiveOptions) -> list[_Workload]:
    """Return the workloads of calls with different demands."""
    from headgate.experiments.spillover import live

    ends = {cpus: live.arithmetic(cpus * live.STEPS) for cpus in (1, 2)}
    some = []
    for count in options.arithmetic:
        calls = live.demands(count)

        def run(by: Calls, calls: live.Demands = calls) -> list[Any]:
            return by.mixed(live.arithmetic, calls)

        def right(found: list[Any], calls: live.Demands = calls) -> bool:
            return found == [ends[cpus] for cpus, _ in calls]

        some.append(_Workload("arithmetic", count, run, right))
    return some


# --- measuring -----------------------------------------------------------------------------------


class _Meter(Protocol):
    """Limits the nodes of a bed, and counts their CPU seconds."""

    limited: bool

    def limit(self, bed: Bed, *, on: bool) -> None:
        """Let the processes of each node use its cores only, or as many as there are."""

    def used_s(self, bed: Bed) -> list[float]:
        """Return the CPU seconds that each node has used so far."""


class _Groups:
    """Nodes in control groups."""

    def __init__(self, options: LiveOptions, stack: ExitStack) -> None:
        """Make the groups; OSError or KeyError if they cannot limit or count."""
        from headgate.live.base.control_groups import NODE_KINDS, ControlGroup

        self.limited = True
        self._cores = [node.cores for node in options.nodes]
        self._groups: list[ControlGroup] = []
        for number in range(len(self._cores)):
            group = ControlGroup.make(_NODES, f"n{number}", kinds=NODE_KINDS)
            self._groups.append(group)
            stack.callback(group.remove)
            group.limit_cores(None)
            group.used_s()

    def limit(self, bed: Bed, *, on: bool) -> None:
        from headgate.live.cluster.ray_nodes import processes_by_node

        for _ in range(2):  # processes start while others are moved
            found = processes_by_node(bed.cluster)
            for group, node in zip(self._groups, bed.nodes, strict=True):
                group.add(found[node.id])
        for group, cores in zip(self._groups, self._cores, strict=True):
            group.limit_cores(cores if on else None)

    def used_s(self, bed: Bed) -> list[float]:
        del bed
        return [group.used_s() for group in self._groups]


class _Processes:
    """Nodes without limits: their processes are counted."""

    limited = False

    def limit(self, bed: Bed, *, on: bool) -> None:
        """Do nothing: this system has no control groups for us."""

    def used_s(self, bed: Bed) -> list[float]:
        from headgate.live.cluster.ray_nodes import processes_by_node

        found = processes_by_node(bed.cluster)
        return [sum(map(_cpu_s, found[node.id])) for node in bed.nodes]


def _cpu_s(process: int) -> float:
    try:
        times = psutil.Process(process).cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


@contextmanager
def _meter(options: LiveOptions) -> Iterator[_Meter]:
    from headgate.live.base.control_groups import sweep

    with ExitStack() as stack:
        meter: _Meter
        try:
            sweep(_NODES)
            meter = _Groups(options, stack)
        except (OSError, KeyError):
            meter = _Processes()
        yield meter


@dataclass(slots=True)
class _Bench:
    """Measures workloads on all sides, in turn."""

    options: LiveOptions
    bed: Bed
    client: Client
    meter: _Meter
    ray_calls: Calls
    end: float
    show_progress: ShowProgress
    rows: Rows = field(init=False)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        from headgate.experiments.spillover.live import Rows

        self.rows = Rows()

    def measure(self, slots: Mapping[int, int], workloads: Sequence[_Workload]) -> None:
        """Measure workloads with so many slots, by the CPUs of each, and with Ray.

        At least one round, and no further one after the end.
        """
        from headgate.experiments.spillover.live import in_turn

        switch = _Switch()
        with ExitStack() as stack:
            executors = {
                cpus: stack.enter_context(
                    Executor(
                        resources={"cpus": cpus},
                        slots=number,
                        name=f"calls-{cpus}",
                        idle_s=_IDLE_S,
                        balancer=switch,
                        client=self.client,
                    )
                )
                for cpus, number in slots.items()
            }
            self._warm(executors, slots)
            self.meter.limit(self.bed, on=True)
            stack.callback(self.meter.limit, self.bed, on=False)
            ours = ExecutorCalls(executors)
            for number in range(self.options.rounds):
                if number and time.monotonic() > self.end:
                    self.show_progress(f"no time for round {number + 1}")
                    break
                for workload in workloads:
                    for side in in_turn(self.options.sides, number):
                        self._round(number, workload, side, ours, switch)

    def _warm(self, executors: Mapping[int, Executor], slots: Mapping[int, int]) -> None:
        """Have all processes of both sides started."""
        from headgate.experiments.spillover.live import process_of

        for cpus, executor in executors.items():
            calls = ExecutorCalls({cpus: executor})
            self._started(calls, slots[cpus], f"slots of {cpus} CPUs")
        wanted = sum(node.cpus for node in self.options.nodes)
        self._started(self.ray_calls, wanted, "workers of Ray")
        self.ray_calls.mixed(process_of, [(cpus, 1) for cpus in (1, 2)])

    def _started(self, calls: Calls, wanted: int, what: str) -> None:
        from headgate.experiments.spillover.live import process_of

        until = time.monotonic() + _WARM_S
        while True:
            found = len(set(calls.together(process_of, [_WARM_STEPS] * (4 * wanted))))
            if found >= wanted:
                return
            if time.monotonic() > until:
                raise WorldError(f"after {_WARM_S:g} s {found} of {wanted} {what} have started")

    def _round(
        self, number: int, workload: _Workload, side: str, ours: Calls, switch: _Switch
    ) -> None:
        from headgate.experiments.spillover.live import RAY

        calls = ours
        if side == RAY:
            calls = self.ray_calls
        else:
            switch.now = picks_by(BALANCERS[side], seed=self.options.seed + number)
        used_s = self.meter.used_s(self.bed)
        started = time.perf_counter()
        found = workload.run(calls)
        seconds = time.perf_counter() - started
        cpu_s = [b - a for a, b in zip(used_s, self.meter.used_s(self.bed), strict=True)]
        self.rows.add(workload.name, workload.count, side, seconds, cpu_s)
        if not workload.right(found):
            self.wrong.append(f"{workload.name} {workload.count}, {side}")
        self.show_progress(
            f"round {number + 1}: {workload.name} {workload.count:,}, {side}: {seconds:.2f} s"
        )
