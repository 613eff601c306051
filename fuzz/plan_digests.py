"""Digests of every plan that policies make in many cases: does a change of the code change a plan?

    python fuzz/plan_digests.py write FILE [--storms 2000] [--first 0] [--policies a,b] [--jobs 2]
    python fuzz/plan_digests.py compare BEFORE AFTER
    python fuzz/plan_digests.py show POLICY CASE

`write` lets storms pass, each under some of the policies and their settings, and simulates the
examples and, with `--histories --traces DIR`, recorded histories. It writes a line of JSON for each
policy and case: digests of the case's input, of all steps and memos of its plans, and of their
refusals and reservations. Write a file before a change and one after it, and compare them. What
differs, `show` prints as lines, in both versions of the code, for `diff`. A policy is written as
for `headgate simulate --policy`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from headgate.app import POLICIES
from headgate.base.rng import stream
from headgate.engine import Engine, drive
from headgate.journal.codec import encode
from headgate.model import Gpu, Node, RunId
from headgate.planning.links.fluid_network import FluidNetwork
from headgate.ports import PLACE_NAMES, PLACES, Policy, make_policy, read_policy
from headgate.protocol import (
    Command,
    Event,
    JobSubmitted,
    Move,
    NodeJoined,
    Plan,
    PlanReady,
    Start,
    Step,
    StopTask,
    TaskStopped,
    TopologyChanged,
)
from headgate.sim import run as sim
from headgate.sim.trace_jobs import TraceJobs, TraceModel
from headgate.sim.world import SimulatedWorld
from headgate.spec import Links, load_scenario
from headgate.state import Snapshot
from headgate.testing.every_part import every_part
from headgate.testing.fragmented import fragmented
from headgate.testing.random_moves import RandomMoves
from headgate.testing.random_worlds import linked, random_topology
from headgate.testing.storms import Storm, storm
from headgate.traces import JobHistory, TraceJob, TraceOptions, open_trace

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
MOST_BATCHES = 5000
STORMS = 2000
HISTORY_JOBS = 3000

# ------------------------------------------------------------------------------------- policies

NAMES = (
    "headgate", "fifo", "easy-backfill", "conservative-backfill", "least-attained-service", "srtf",
    "fair-order", "fair-easy-backfill", "fair-conservative-backfill", "fs", "fsp", "fsu", "gs",
    "gsp", "gsd", "capacity", "fair", "new-capacity",
)  # fmt: skip
PLAIN = (
    *NAMES,
    "least-attained-service,threshold_gpu_s=5",
    "gsp,slack=0",
    "gsd,threshold1=1e6,threshold2=1e9",
    "fsp,slack=0",
    "headgate,slack=0",
    "headgate,memory_s=5,slack=0",
    "headgate,reservations=1",
    "conservative-backfill,reservations=2",
)
BACKFILLING = (*NAMES[:4], *NAMES[6:9])
MIGRATING = tuple(f"{name},migrate=when-cheaper" for name in BACKFILLING)
_OPTIONS = {
    "closed-minimum": ("", ",otherwise=wait", ",otherwise=enlarge,reserve=needed"),
    "best-fit-subtree": ("", ",sizes=refuse"),
    "block-cyclic": ("", ",block_size=3"),
}
SETTINGS = tuple(
    f"place={place}{option}" for place in PLACES for option in _OPTIONS.get(place, ("",))
)
PLACING = tuple(f"{name},{setting}" for setting in SETTINGS for name in NAMES)
MOVED = "moved-"
"""Before the name of a policy: its runs also move at random."""
OTHERS = (
    *MIGRATING,
    *(f"{text},place={place}" for text in MIGRATING for place in ("links", "best-fit-subtree")),
    *(MOVED + name for name in ("fifo", "headgate", "fsp", "gsp", "conservative-backfill", "srtf")),
)


def made(text: str) -> Policy:
    """Return a policy from the text that names it here."""
    if text.startswith(MOVED):
        return RandomMoves(made(text.removeprefix(MOVED)))
    return make_policy(POLICIES, *read_policy(POLICIES, text))


def base(text: str) -> str:
    """Return the name in the table of policies."""
    return text.removeprefix(MOVED).split(",", maxsplit=1)[0]


# ------------------------------------------------------------------------------------- recording


class Record:
    """Digests of the plans of a case and of their explanations; lines go to `show`, if given."""

    def __init__(
        self, *, explained: bool = True, show: Callable[[str], object] | None = None
    ) -> None:
        self.inputs, self.count = "", 0
        self._explained, self._show = explained, show
        self._plans, self._explanations = hashlib.sha256(), hashlib.sha256()

    def plan(self, snapshot: Snapshot, seen: int, plan: Plan) -> None:
        """Add a plan that was made on the snapshot of version `seen`."""
        self.count += 1
        self._add(self._plans, f"plan {seen} at {float(snapshot.now)!r}")
        for line in plan_lines(snapshot, plan):
            self._add(self._plans, "  " + line)
        if self._explained:
            self._explanations.update(f"plan {seen}\n".encode())
            for line in explanation_lines(snapshot, plan):
                self._add(self._explanations, "    " + line)

    def failed(self, error: Exception) -> None:
        """Add that the case ended with an error."""
        self._add(self._plans, plain(f"{type(error).__name__}: {error}"))

    def entry(self, policy: str, case: str) -> dict[str, Any]:
        """Return what is written of the case."""
        return {
            "policy": policy,
            "case": case,
            "inputs": self.inputs,
            "plans": self._plans.hexdigest()[:32],
            "explanations": self._explanations.hexdigest()[:32] if self._explained else None,
            "count": self.count,
        }

    def _add(self, digest: Any, line: str) -> None:
        digest.update(f"{line}\n".encode())
        if self._show is not None:
            self._show(line)


_NUMBER = re.compile(r"\bnp\.\w+\(([^()]*)\)")


def plain(text: str) -> str:
    """Return text without the types of NumPy's numbers."""
    return _NUMBER.sub(r"\1", text)


def plan_lines(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Yield all that a plan decides, with names instead of rows."""
    for number, group in enumerate(plan.steps):
        for step in group.steps:
            yield f"{number}: {step_text(snapshot, step)}"
        if group.reason is not None:
            yield f"{number}: because {plain(repr(group.reason))}"
    for job, node, slots, reason, first in plan.resizes:
        at = f"{snapshot.job(job).id} on {snapshot.node(node).id}"
        tasks = [snapshot.task_id(task) for task in first]
        yield f"resize {at} to {int(slots)}, first {tasks}, because {plain(repr(reason))}"
    yield from memo_lines(snapshot, plan)
    if plan.again_at is not None:
        yield f"again at {float(plan.again_at)!r}"
    yield from (f"order {shape}" for shape in plan.orders)
    yield from (f"drain {snapshot.node(row).id}" for row in plan.drains)


def memo_lines(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Yield the numbers that a plan stores."""
    for column, by_job in sorted(plan.memo.items()):
        for row, value in sorted(by_job.items()):
            yield f"memo {column} of {snapshot.job(row).id}: {float(value)!r}"
    for column, by_node in sorted(plan.node_memo.items()):
        for row, value in sorted(by_node.items()):
            yield f"node memo {column} of {snapshot.node(row).id}: {float(value)!r}"


def step_text(snapshot: Snapshot, step: Step) -> str:
    """Return a step with names instead of rows."""
    text = f"{type(step).__name__.lower()} {snapshot.task_id(step.task)}"
    if isinstance(step, Start | Move):
        text += f" on {snapshot.node(step.node).id} {[int(gpu) for gpu in step.gpus]}"
    return text


def explanation_lines(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Yield the refusals and the reservations of a plan, which may be computed for this."""
    for refusal in plan.refusals:
        jobs = [snapshot.job(row).id for row in refusal.jobs]
        yield f"waits: {jobs}: {plain(repr(refusal.reason))}"
    for each in plan.reservations:
        gpus = []
        for row in each.gpus:
            node = int(snapshot.gpus.node[row])
            gpus.append(f"{snapshot.node(node).id}:{int(row - snapshot.nodes.first_gpu[node])}")
        job, at, until = snapshot.job(each.job).id, float(each.at), float(each.until)
        yield f"reserved: {job} {at!r} to {until!r} {gpus}"


class RecordedWorld(SimulatedWorld):
    """A simulated world whose plans are recorded, with the snapshots that they were made on."""

    def __init__(self, record: Record, facts: Sequence[Event], **more: Any) -> None:
        self._record = record
        self._seen: Snapshot | None = None
        super().__init__(facts, **more)

    def submit(self, commands: Sequence[Command], snapshot: Callable[[], Snapshot]) -> None:
        """Execute commands; keep the snapshot of a decision."""

        def kept() -> Snapshot:
            self._seen = snapshot()
            return self._seen

        super().submit(commands, kept)

    def events(self) -> Iterator[tuple[Event, ...]]:
        """Yield the events; record the plans among them."""
        for number, batch in enumerate(super().events()):
            for event in batch:
                if isinstance(event, PlanReady) and self._seen is not None:
                    self._record.plan(self._seen, event.seen, event.plan)
            if isinstance(self, LateStops) and number > MOST_BATCHES:
                raise RuntimeError("the storm does not end")
            yield batch


class LateStops(RecordedWorld):
    """The world of a storm: with `late`, runs end some time after their stops."""

    def __init__(self, record: Record, facts: Sequence[Event], *, late: bool, **more: Any) -> None:
        self._late = late
        self._noticed: dict[RunId, StopTask] = {}
        super().__init__(record, facts, **more)

    def _stop(self, command: StopTask) -> None:
        late_s = stream(self._seed, "notice", *command.run).choice((0.0, 0.5, 2.0, 8.0))
        if self._late and command.run in self._runs and not command.now and late_s:
            self._noticed[command.run] = command
            self._push(TaskStopped(at=self._now + late_s, run=command.run))
        else:
            super()._stop(command)

    def _apply(self, event: Event) -> bool:
        if isinstance(event, TaskStopped) and event.run in self._noticed:
            super()._stop(self._noticed.pop(event.run))
            return False
        return super()._apply(event)


def digest(*parts: object) -> str:
    """Return a digest of parts: of events as journals have them, of the texts of others."""

    def text(part: object) -> str:
        if isinstance(part, Event):  # the order of keys is no part of it
            return json.dumps(json.loads(encode(part)), sort_keys=True)
        return repr(part)

    texts = map(text, parts)
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:32]


# ------------------------------------------------------------------------------------- storms


def communicating(weather: Storm) -> Storm:
    """Return a storm on a topology, with jobs that communicate."""
    facts = [
        replace(fact, job=linked(fact.job)) if isinstance(fact, JobSubmitted) else fact
        for fact in weather.facts
    ]
    nodes = sum(isinstance(fact, NodeJoined) and not fact.at for fact in facts)
    put = TopologyChanged(at=0.0, topology=random_topology(weather.seed, nodes))
    return replace(weather, facts=(put, *facts))


WEATHERS: dict[str, Callable[[Storm], Storm]] = {
    "plain": lambda weather: weather,
    "links": communicating,
    "all": every_part,
    "scattered": fragmented,
    "scattered-links": lambda weather: communicating(fragmented(weather)),
}
"""What is made of the storm of a seed."""
_USUAL = ("plain", "plain", "links", "all", "all", "all")
_MOVING = ("scattered", "scattered", "scattered-links", "plain", "all", "all")


def storms_of(number: int) -> Iterator[tuple[str, str]]:
    """Yield the policies and the cases of a storm; all policies occur equally often."""
    rng = stream(number, "cases")
    for text in (*turn(PLAIN, number, 2), *turn(PLACING, number, 1), *turn(OTHERS, number, 1)):
        weather = rng.choice(_MOVING if "migrate" in text else _USUAL)
        yield text, f"storm-{weather}-{number:06}"


def turn(texts: Sequence[str], number: int, count: int) -> Iterator[str]:
    """Yield so many of the texts, at even distances from each other."""
    yield from (texts[(number + n * len(texts) // count) % len(texts)] for n in range(count))


def pass_storm(record: Record, policy: Policy, case: str) -> None:
    """Let a storm pass under a policy."""
    weather, _, number = case.removeprefix("storm-").rpartition("-")
    seed = int(number)
    rng = stream(seed, "how it passes")
    calm, late = rng.random() < 0.3, rng.random() < 0.4
    first = storm(seed, calm=calm, accepts=lambda job: policy.refuses(job) is None)
    drawn = WEATHERS[weather](first)
    record.inputs = digest(*drawn.facts, drawn.decision_latency_s, drawn.links, late)
    world = LateStops(
        record,
        drawn.facts,
        late=late,
        network=FluidNetwork({}, **drawn.links),  # type: ignore[arg-type]
        policy=policy,
        seed=seed,
        decision_latency_s=drawn.decision_latency_s,
        fails_after_s=drawn.fails_after_s,
        launch_delays_s=rng.choice(((), (), (0.0, 0.5, 3.0))),
    )
    drive(Engine(), world)


# ------------------------------------------------------------------------------------- simulations

_NODE_GPUS = 8
_LINKS = Links(disk_bytes_per_s=1, node_link_bytes_per_s=1, rack_uplink_bytes_per_s=1)
SCENARIOS = ("three-tasks", "links", "flow-paper-constrained")
LONG_SCENARIOS = ("flow-paper-unconstrained", "flow-paper-users")
HISTORIES = {"philly": "philly2017_jobs.parquet", "itp": "itp2021_jobs.parquet"}


class FirstJobs:
    """The first jobs of a history."""

    def __init__(self, history: JobHistory, count: int) -> None:
        self.integer_ids = history.integer_ids
        self._rows = [*islice(history.rows(), count)]

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self) -> Iterator[TraceJob]:
        """Yield the jobs."""
        return iter(self._rows)


def goldens() -> Iterator[tuple[str, str]]:
    """Yield the policies and the cases of the examples."""
    for text in NAMES:
        yield from ((text, f"philly-500-{gpus}") for gpus in (32, 64, 128))
        yield from ((text, f"example-{name}") for name in SCENARIOS)
    yield from ((text, "example-links") for text in (*PLACING, *MIGRATING))
    yield from ((text, "philly-500-nodes-64") for text in MIGRATING)
    for number, setting in enumerate(SETTINGS):
        yield f"{BACKFILLING[number % len(BACKFILLING)]},{setting}", "philly-500-nodes-64"


def histories(jobs: int) -> Iterator[tuple[str, str]]:
    """Yield the policies and the cases of recorded histories, and of examples that take long."""
    for text in NAMES:
        yield from ((text, f"history-{name}-{jobs}") for name in HISTORIES)
        yield from ((text, f"example-{name}") for name in LONG_SCENARIOS)
    for text in MIGRATING:
        yield from ((text, f"history-{name}-{jobs}") for name in HISTORIES)


def simulate(record: Record, policy: Policy, text: str, case: str, traces: Path | None) -> None:
    """Simulate an example or a history; jobs of histories start over when they are preempted."""
    kind, *rest = case.split("-")
    if kind == "example":
        simulation = _scenario(policy, text, case.removeprefix("example-"))
    elif kind == "philly":
        trace = open_trace(EXAMPLES / "philly-500.parquet", TraceOptions())
        if "nodes" in rest:
            simulation = _on_nodes(trace, policy, int(rest[-1]), TraceModel())
        else:
            simulation = sim.from_trace(trace, policy, gpus=int(rest[-1]), seed=0)
    else:
        if traces is None:
            raise SystemExit("histories need --traces DIR")
        history = open_trace(traces / HISTORIES[rest[0]], TraceOptions())
        head = FirstJobs(history, int(rest[-1]))
        simulation = _on_nodes(head, policy, 128, TraceModel(resume_s=10.0))
    record.inputs = digest(replace(simulation, submissions=()), *simulation.submissions)
    sim.SimulatedWorld = partial(RecordedWorld, record)  # type: ignore[assignment, misc]
    sim.run(simulation, policy)


def _scenario(policy: Policy, text: str, name: str) -> sim.Simulation:
    known = {each: [p.name for p in info.parameters] for each, info in POLICIES.items()}
    parts = {each: info.parts for each, info in POLICIES.items() if info.parts}
    named, parameters = read_policy(POLICIES, text)
    scenario = load_scenario(
        EXAMPLES / f"{name}.yaml",
        known,
        policy=named,
        parameters=parameters,
        parts=parts,
        places=PLACE_NAMES,
    )
    return sim.from_scenario(scenario, policy)


def _on_nodes(trace: JobHistory, policy: Policy, gpus: int, model: TraceModel) -> sim.Simulation:
    """Return the simulation of a history on nodes of some GPUs, four in a rack."""
    nodes = tuple(
        Node(
            id=f"n{n:03}",
            rack=f"r{n // 4}",
            gpus=(Gpu(memory_bytes=0),) * _NODE_GPUS,
            cpus=1 << 10,
        )
        for n in range(gpus // _NODE_GPUS)
    )
    jobs = TraceJobs(trace, queues=(), nodes=nodes, policy=policy, model=model)
    return sim.Simulation(
        nodes=nodes,
        links=_LINKS,
        queues=jobs.queues,
        submissions=jobs,
        rejected=jobs.rejected,
        resume_s=model.resume_s or 0.0,
    )


# ------------------------------------------------------------------------------------- commands


def cases(arguments: argparse.Namespace) -> list[tuple[str, str]]:
    """Return the requested policies and cases, those that take longest first."""
    found = [*histories(arguments.history_jobs)] if arguments.histories else []
    found += goldens() if arguments.goldens else []
    for number in range(arguments.first, arguments.first + arguments.storms):
        found += storms_of(number)
    chosen = arguments.policies.split(",") if arguments.policies else NAMES
    return [*dict.fromkeys(pair for pair in found if base(pair[0]) in chosen)]


def entry(
    pair: tuple[str, str],
    traces: Path | None = None,
    show: Callable[[str], object] | None = None,
) -> dict[str, Any]:
    """Return what is written of a policy and a case."""
    text, case = pair
    is_storm = case.startswith("storm-")
    record = Record(explained=is_storm or case.startswith("example-"), show=show)
    own_world = sim.SimulatedWorld
    policy = made(text)
    try:
        if is_storm:
            pass_storm(record, policy, case)
        else:
            simulate(record, policy, text, case, traces)
    except Exception as error:  # noqa: BLE001  # that it fails is a result, too
        record.failed(error)
        why = f"{type(error).__name__}: {error}" if show is None else traceback.format_exc()
        print(f"\n{text}  {case}: {why}", file=sys.stderr)
    finally:
        sim.SimulatedWorld = own_world  # type: ignore[misc]
    return record.entry(text, case)


def write(arguments: argparse.Namespace) -> int:
    """Write the digests of all cases to a file: each when it is found, sorted at the end."""
    file, pairs, started = arguments.file, cases(arguments), time.monotonic()
    found = _read(file) if arguments.resume and file.exists() else {}
    left = [pair for pair in pairs if pair not in found]
    work = partial(entry, traces=arguments.traces)
    file.write_text(_lines(found.values()))
    with multiprocessing.get_context("fork").Pool(arguments.jobs) as pool, file.open("a") as out:
        for done, each in enumerate(pool.imap_unordered(work, left, chunksize=2), start=1):
            found[each["policy"], each["case"]] = each
            out.write(_lines([each]))
            out.flush()
            if done % 50 == 0 or done == len(left):
                took_s = time.monotonic() - started
                text = f"{done:,} of {len(left):,} cases, {took_s:,.0f} s"
                print(f"\r{text} ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    file.write_text(_lines(found[pair] for pair in sorted(found)))
    plans = sum(each["count"] for each in found.values())
    print(f"{len(found):,} cases with {plans:,} plans in {file}")
    return 0


def _lines(entries: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(each) + "\n" for each in entries)


def compare(arguments: argparse.Namespace) -> int:
    """Print which cases differ between two files, and return 1 if any does."""
    before, after = _read(arguments.before), _read(arguments.after)
    equal, differ = Counter[str](), Counter[str]()
    lines = []
    for pair in sorted({*before, *after}):
        one, two = before.get(pair), after.get(pair)
        if one is None or two is None:
            what = ["only in the " + ("second file" if one is None else "first file")]
        else:
            what = [key for key in ("inputs", "plans", "explanations") if one[key] != two[key]]
        (differ if what else equal)[base(pair[0])] += 1
        if what:
            lines.append(f"{pair[0]}  {pair[1]}: {', '.join(what)}")
    for name in sorted({*equal, *differ}):
        print(f"{name}: {equal[name]:,} equal, {differ[name]:,} differ")
    print("\n".join(lines) if lines else f"all {len(before):,} cases are equal")
    return int(bool(lines))


def _read(file: Path) -> dict[tuple[str, str], dict[str, Any]]:
    found = [json.loads(line) for line in file.read_text().splitlines()]
    return {(each["policy"], each["case"]): each for each in found}


def show(arguments: argparse.Namespace) -> int:
    """Print the plans of a case; explanations are indented further."""
    found = entry((arguments.policy, arguments.case), arguments.traces, show=print)
    print(f"{found['count']} plans, inputs {found['inputs']}")
    return 0


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(required=True)
    each = commands.add_parser("write", help="write digests to a file")
    each.set_defaults(run=write)
    each.add_argument("file", type=Path)
    each.add_argument("--storms", type=int, default=STORMS)
    each.add_argument("--first", type=int, default=0, help="the number of the first storm")
    each.add_argument("--policies", help="names in the table; default: all")
    each.add_argument("--goldens", action=argparse.BooleanOptionalAction, default=True)
    each.add_argument("--histories", action="store_true", help="needs --traces")
    each.add_argument("--history-jobs", type=int, default=HISTORY_JOBS)
    each.add_argument("--traces", type=Path, help="the directory of the histories")
    each.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    each.add_argument("--resume", action="store_true", help="keep what the file has already")
    each = commands.add_parser("compare", help="compare two files")
    each.set_defaults(run=compare)
    each.add_argument("before", type=Path)
    each.add_argument("after", type=Path)
    each = commands.add_parser("show", help="print the plans of a case")
    each.set_defaults(run=show)
    each.add_argument("policy")
    each.add_argument("case")
    each.add_argument("--traces", type=Path)
    arguments = parser.parse_args()
    return int(arguments.run(arguments))


if __name__ == "__main__":
    sys.exit(main())
