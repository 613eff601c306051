"""Throughput of the journal and the machine, in events per second.

    python bench/journal_events.py [--events 20000] [--rounds 3] [--seed 1] [--directory DIR]

A busy simulated cluster is run once, without measurement: jobs of one to eight tasks arrive and are
started by `fifo`, some are cancelled, some runs fail, nodes are lost and return. Its events are
then made durable and applied, as by the controller: `Journal.append` with one fsync per batch, then
the machine. Batches of 1 are typical of a quiet cluster, of 16 and 256 of storms. `machine` is the
same without a journal, `replay` a restart without a snapshot: every event is read, checked and
applied. Times are wall times, since a small batch mostly waits for the disk;
`cpu` is the processor's share of it. The journal is in a temporary folder below `--directory`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from headgate.base.rng import stream
from headgate.engine import Engine, drive
from headgate.journal import Journal
from headgate.model import Demand, Gpu, Job, Node, Queue, Task
from headgate.planning.links.fluid_network import FluidNetwork
from headgate.policies.ordered.fifo import FirstInFirstOut
from headgate.protocol import (
    Event,
    JobCancelled,
    JobSubmitted,
    LaunchTask,
    NodeJoined,
    NodeLost,
    QueueChanged,
)
from headgate.sim.world import SimulatedWorld

NODES, GPUS_PER_NODE, GPU_BYTES = 64, 8, 80 * 10**9
EVENTS_PER_JOB = 11
"""Events that follow from each job, about: determines the number of submitted jobs."""
MEAN_TASKS, MEAN_RUN_S, LOAD = 4.5, 3600.0, 0.9
CANCELLED, FAILED, LOSSES_PER_JOB, AWAY_S = 0.03, 0.02, 0.01, 600.0
LINKS = {
    "disk_bytes_per_s": 2e9,
    "node_link_bytes_per_s": 1.25e9,
    "rack_uplink_bytes_per_s": 5e9,
    "aggregation_bytes_per_s": 2e10,
}
BATCHES = (1, 16, 256)
MOST_BATCHES = 2000
"""Batches measured at most; further events are left out."""


def storm(events: int, seed: int) -> list[Event]:
    """Return the first events of a simulated busy cluster, in the order they were applied."""
    rng = stream(seed, "events")
    facts: list[Event] = [QueueChanged(at=0.0, queue=Queue(name="default"))]
    nodes = [
        Node(id=f"n{n}", rack=f"r{n // 16}", gpus=(Gpu(memory_bytes=GPU_BYTES),) * GPUS_PER_NODE)
        for n in range(NODES)
    ]
    facts += [NodeJoined(at=0.0, node=node) for node in nodes]
    now, gap_s = 0.0, MEAN_TASKS * MEAN_RUN_S / (LOAD * NODES * GPUS_PER_NODE)
    for number in range(events // EVENTS_PER_JOB + 1):
        now += rng.expovariate(1 / gap_s)
        tasks = tuple(
            Task(demand=Demand(gpus=1), compute_s=rng.expovariate(1 / MEAN_RUN_S))
            for _ in range(rng.randint(1, 8))
        )
        job = Job(
            id=f"job-{number}",
            name=f"job-{number}",
            user=f"u{rng.randrange(20)}",
            queue="default",
            tasks=tasks,
            retries=3,
        )
        facts.append(JobSubmitted(at=now, job=job))
        if rng.random() < CANCELLED:
            at = now + rng.expovariate(1 / MEAN_RUN_S)
            facts.append(JobCancelled(at=at, job=job.id, by=job.user))
        if rng.random() < LOSSES_PER_JOB:
            node = rng.choice(nodes)
            facts.append(NodeLost(at=now, node=node.id))
            facts.append(NodeJoined(at=now + AWAY_S, node=node))

    def fails_after_s(launch: LaunchTask) -> float | None:
        draw = stream(seed, "fails", *launch.run)
        return draw.expovariate(1 / MEAN_RUN_S) if draw.random() < FAILED else None

    world = SimulatedWorld(
        facts,
        network=FluidNetwork({}, **LINKS),
        policy=FirstInFirstOut(),
        seed=seed,
        fails_after_s=fails_after_s,
    )
    applied: list[Event] = []
    drive(Engine(), world, observe=(lambda batch, commands: applied.extend(batch),))
    return applied[:events]


def batches(events: Sequence[Event], size: int) -> Iterator[tuple[Event, ...]]:
    """Yield the events in batches of one size, the last one perhaps smaller."""
    for start in range(0, len(events), size):
        yield tuple(events[start : start + size])


def durable(folder: Path, events: Sequence[Event], size: int, number: int) -> None:
    """Make every batch durable, then apply it, in the journal of this size and round."""
    journal, engine = Journal.open(folder / f"{size}-{number}"), Engine()
    try:
        for batch in batches(events, size):
            journal.append(batch)
            engine.replay(batch)
    finally:
        journal.close()


def machine(events: Sequence[Event]) -> None:
    """Apply every event to a state without a journal."""
    Engine().replay(events)


def replay(path: Path) -> None:
    """Rebuild an engine from a journal alone."""
    journal, engine = Journal.open(path), Engine()
    try:
        for _, batch in journal.batches():
            engine.replay(batch)
    finally:
        journal.close()


def row(name: str, count: int, rounds: int, work: Callable[[int], None]) -> None:
    """Measure `work(round)` on `count` events, and print the medians over rounds."""
    wall, cpu = [], []
    for number in range(rounds):
        started, used = time.perf_counter(), time.process_time()
        work(number)
        wall.append(time.perf_counter() - started)
        cpu.append(time.process_time() - used)
    took_s, used_s = statistics.median(wall), statistics.median(cpu)
    print(f"{name:>12} {count:>7} {count / took_s:>9,.0f} {1e6 * used_s / count:>13.0f}")


def main() -> None:
    """Print the mix of events and one row per measurement."""
    parser = argparse.ArgumentParser(description="events per second through journal and machine")
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", help="on the disk to measure; else that of temporary files")
    given = parser.parse_args()
    events = storm(given.events, given.seed)
    mix = Counter(type(event).__name__ for event in events)
    print(", ".join(f"{count} {name}" for name, count in mix.most_common()))
    print(f"{'batches of':>12} {'events':>7} {'per s':>9} {'cpu us/event':>13}")
    with tempfile.TemporaryDirectory(dir=given.directory, prefix="journal-") as folder:
        for size in BATCHES:
            some = events[: size * MOST_BATCHES]
            row(str(size), len(some), given.rounds, partial(durable, Path(folder), some, size))
        row("machine", len(events), given.rounds, lambda _: machine(events))
        whole = Path(folder) / f"{BATCHES[-1]}-0"
        row("replay", len(events), given.rounds, lambda _: replay(whole))


if __name__ == "__main__":
    main()
