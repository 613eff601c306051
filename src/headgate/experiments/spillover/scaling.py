"""Pods for tasks that fit nowhere: the scaling experiment of the spillover paper, section 6."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.experiments.frame.claims import Claim, Numbers
from headgate.experiments.spillover.engine import LINKS, Policies
from headgate.model import WHOLE, Demand, Job, Node, Queue, Task
from headgate.model.scaling import Scaling, Shape
from headgate.ports import make_policy
from headgate.protocol import Command, Event, NodeJoined
from headgate.sim.run import Simulation, run
from headgate.state import JobState

_MIB: Final = 1 << 20
POD_S: Final = 10.0
"""Seconds until a pod that was ordered is up, as published: about 10 s."""

_TASK_S: Final = 0.5  # of computing: the paper gives none
_PODS: Final = tuple(
    Node(id=f"pod{n}", rack="r", gpus=(), cpus=1, memory_bytes=512 * _MIB) for n in range(4)
)
_DEMANDS: Final = {"Task1": (1, 512), "Task2": (2, 512), "Task3": (2, 1024)}
_COUNTS: Final = {"Task1": 7, "Task2": 2, "Task3": 1}
_CATALOGUE: Final = Scaling(
    shapes=tuple(
        Shape(name=f"Pod{n}", cpus=cpus, memory_bytes=mib * _MIB, ready_after_s=POD_S)
        for n, (cpus, mib) in enumerate(_DEMANDS.values(), 1)
    ),
    utilisation=1.0,
)

PUBLISHED_S: Final = {"Task1": 30.5, "Task2": 21.3, "Task3": 10.5}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """What became of the tasks: `plain` without scaling, else with it.

    `seconds` is from the submission of a kind of task, alone, to the end of its last one.
    """

    finished_plain: Mapping[str, int]
    finished: Mapping[str, int]
    pods: Mapping[str, int]
    pods_alone: Mapping[str, Mapping[str, int]]
    seconds: Mapping[str, float]


def measure_scaling(policies: Policies) -> Scaled:
    """Run all kinds of tasks together, without scaling and with it, and each kind alone."""
    kinds = tuple(_DEMANDS)
    finished_plain, _, _ = _run(policies, kinds, None)
    finished, pods, _ = _run(policies, kinds, _CATALOGUE)
    alone = {kind: _run(policies, (kind,), _CATALOGUE) for kind in kinds}
    return Scaled(
        finished_plain=finished_plain,
        finished=finished,
        pods=pods,
        pods_alone={kind: pods for kind, (_, pods, _) in alone.items()},
        seconds={kind: seconds for kind, (_, _, seconds) in alone.items()},
    )


def _run(
    policies: Policies, kinds: Sequence[str], scaling: Scaling | None
) -> tuple[dict[str, int], dict[str, int], float]:
    """Return the finished tasks by kind, the pods that joined by shape, and the makespan."""
    joined = Counter[str]()

    def see(batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        del commands
        for event in batch:
            if isinstance(event, NodeJoined) and event.order:
                joined[event.order.partition("-")[0]] += 1

    outcome = run(
        Simulation(
            nodes=_PODS,
            links=LINKS,
            queues=(Queue(name="q"),),
            submissions=tuple((0.0, _job(kind)) for kind in kinds),
            scaling=scaling,
        ),
        make_policy(policies, "headgate"),
        observe=(see,),
    )
    states = outcome.jobs.state.tolist()
    finished = {
        kind: _COUNTS[kind] * (state == JobState.FINISHED)
        for kind, state in zip(kinds, states, strict=True)
    }
    return finished, dict(sorted(joined.items())), float(outcome.figures["makespan_s"])


def _job(kind: str) -> Job:
    cpus, mib = _DEMANDS[kind]
    demand = Demand(cpus_milli=round(WHOLE * cpus), memory_bytes=mib * _MIB)
    task = Task(demand=demand, compute_s=_TASK_S)
    tasks = (task,) * _COUNTS[kind]
    return Job(id=kind, name=kind, user="u", queue="q", tasks=tasks, wait_for_node=True)


def as_rows(scaled: Scaled) -> list[dict[str, Any]]:
    """Return a row for each kind of task as JSON."""
    return [
        {
            "kind": kind,
            "tasks": _COUNTS[kind],
            "finished_without_scaling": scaled.finished_plain[kind],
            "finished": scaled.finished[kind],
            "seconds": scaled.seconds[kind],
            "pods": dict(scaled.pods_alone[kind]),
        }
        for kind in _DEMANDS
    ]


# --- claims --------------------------------------------------------------------------------------


def _never(scaled: Scaled) -> tuple[bool, Numbers]:
    ours = {kind: float(count) for kind, count in scaled.finished_plain.items()}
    return ours == {"Task1": _COUNTS["Task1"], "Task2": 0, "Task3": 0}, ours


def _pods(scaled: Scaled) -> tuple[bool, Numbers]:
    ours = {name: float(scaled.pods.get(name, 0)) for name in ("Pod2", "Pod3")}
    return ours == {"Pod2": 2, "Pod3": 1} and dict(scaled.finished) == _COUNTS, ours


def _one_after_the_other(scaled: Scaled) -> tuple[bool, Numbers]:
    ours = dict(scaled.seconds)
    holds = all(abs(ours[kind] / PUBLISHED_S[kind] - 1) <= 0.1 for kind in ours)
    return holds, ours


def _no_later(scaled: Scaled) -> tuple[bool, Numbers]:
    ours = dict(scaled.seconds)
    return all(ours[kind] <= PUBLISHED_S[kind] * 1.01 for kind in ours), ours


_POD_WORDS = (
    f"Four pods of 1 CPU and 512 MB; a pod is up {POD_S:g} s after its order. "
    f"{_COUNTS['Task1']} tasks of 1 CPU and 512 MB (Task1), 2 of 2 CPUs and 512 MB (Task2), 1 of "
    "2 CPUs and 1,024 MB (Task3); policy headgate. "
)

CLAIMS: tuple[Claim[Scaled], ...] = (
    Claim(
        id="scaling-plain",
        text="Without vertical scaling Task2 and Task3 never finish",
        reading=_POD_WORDS + "Finished tasks where no node is ordered.",
        unit="count",
        check=_never,
        published={"Task2": 0, "Task3": 0},
    ),
    Claim(
        id="scaling-pods",
        text="With it two pods are made for Task2 and one for Task3, and all tasks finish",
        reading=_POD_WORDS + "Pods made in one run of all tasks.",
        unit="count",
        check=_pods,
        published={"Pod2": 2, "Pod3": 1},
    ),
    Claim(
        id="scaling-times",
        text="Task1, Task2 and Task3 take 30.5, 21.3 and 10.5 s",
        reading=_POD_WORDS + "Each kind alone; within 10 %. The published times are of pods made "
        "one after the other; ours are ordered together.",
        unit="s",
        check=_one_after_the_other,
        published=PUBLISHED_S,
    ),
    Claim(
        id="goal-scaling-times",
        text="No kind of task takes longer than published",
        reading=_POD_WORDS + "Each kind alone.",
        unit="s",
        check=_no_later,
        is_goal=True,
        published=PUBLISHED_S,
    ),
)
