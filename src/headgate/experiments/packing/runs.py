"""Runs of policies on recorded pods, and what they reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headgate.base.rng import Random, stream
from headgate.experiments.frame.experiment import need_policies
from headgate.experiments.packing.reading import read
from headgate.experiments.packing.workload import ARRIVED, Workload
from headgate.planning.packing import (
    BestFit,
    DotProduct,
    Fgd,
    FreeNodes,
    GpuClustering,
    GpuPacking,
    Learnt,
    Mix,
    Packer,
    PodDemand,
    Scorer,
    Uniform,
    fragment_milli,
    typical,
)

HEADGATE, RANDOM = "headgate", "random"

SCORERS: Mapping[str, Callable[[Mix], Scorer]] = {
    RANDOM: lambda mix: Uniform(),
    "dot-product": lambda mix: DotProduct(),
    "gpu-clustering": lambda mix: GpuClustering(),
    "gpu-packing": lambda mix: GpuPacking(),
    "best-fit": lambda mix: BestFit(),
    "fgd": Fgd,
}
"""Published policies, for the mix of all pods; only `fgd` uses that."""

POLICIES = (*SCORERS, HEADGATE)

_POINTS = 100  # of the curve, per load of all GPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingOutcome:
    """What a policy reaches; ratios are relative to all GPUs, and read at an arrived load of 1.

    `curve` has [arrived, allocated] for each percent of arrived load.
    """

    policy: str
    seed: int
    gpu_allocated_ratio: float
    fragmentation_ratio: float
    curve: tuple[tuple[float, float], ...]

    def as_json(self) -> dict[str, Any]:
        """Return the outcome as JSON."""
        return {**asdict(self), "curve": [[*point] for point in self.curve]}


@dataclass(frozen=True, slots=True)
class PackingRun:
    """One run."""

    policy: str
    seed: int


def check(policy: str, path: str = "--policy") -> None:
    """Raise SpecError `unknown_policy`."""
    need_policies([policy], POLICIES, path, " for packing")


def pack(
    workload: Workload,
    run: PackingRun,
    progress: Callable[[float], None] = lambda arrived: None,
) -> PackingOutcome:
    """Place pods as they arrive; `progress` is called with the arrived load, for each percent.

    What is read at a load is the state after the last pod that does not exceed it.
    """
    mix = Mix.of(typical(workload.counts()))
    stream_of = _Stream(workload, run, mix)
    all_milli, room = workload.gpu_milli, stream_of.room
    arrived = allocated = 0
    fragments, points = 0.0, 0
    curve: list[tuple[float, float]] = []

    def read_up_to(load: int) -> None:
        nonlocal fragments, points
        while points * all_milli < load * _POINTS and points <= round(ARRIVED * _POINTS):
            curve.append((points / _POINTS, allocated / all_milli))
            if points == _POINTS:
                fragments = float(fragment_milli(room, mix).sum()) / all_milli
            progress(points / _POINTS)
            points += 1

    for number in workload.arrivals(run.seed):
        demand = workload.demands[number]
        arrived += demand.gpu_milli
        read_up_to(arrived)
        if stream_of.place(number, demand):
            allocated += demand.gpu_milli
    read_up_to(2 * arrived + all_milli * 2)
    return PackingOutcome(
        policy=run.policy,
        seed=run.seed,
        gpu_allocated_ratio=curve[_POINTS][1],
        fragmentation_ratio=fragments,
        curve=tuple(curve),
    )


class _Stream:
    """The nodes of a run and its policy."""

    def __init__(self, workload: Workload, run: PackingRun, mix: Mix) -> None:
        self.room: FreeNodes = workload.room(run.seed)
        self._learnt = Learnt(self.room) if run.policy == HEADGATE else None
        scorer = Uniform() if self._learnt else SCORERS[run.policy](mix)
        ties: Random | None = None
        if run.policy == RANDOM:
            ties = stream(run.seed, "packing", "ties")
        self._packer = Packer(self.room, workload.demands, scorer, ties=ties)

    def place(self, number: int, demand: PodDemand) -> bool:
        """Place a pod that arrives; return whether a node had room for it."""
        if self._learnt is not None and (scorer := self._learnt.arrived(demand)) is not None:
            self._packer.use(scorer)
        return self._packer.place(number) is not None


def pack_files(run: PackingRun, files: tuple[Path, Path]) -> PackingOutcome:
    """Return the outcome of a run on files of pods and nodes, for a process of its own."""
    return pack(read(*files), run)
