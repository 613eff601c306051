"""The flow paper's test bed and its 37 jobs, for the simulator.

The paper's shards and their sizes, forms, counts, nodes, racks and links are used unchanged. The
details that it leaves open are fixed here and nowhere else:

- computing time: proportional to the bytes of a task's own shards, at
  `SimulatorConstants.gpu_bytes_per_s` divided by a weight per kind of work. The weights are assumed
  (a prime test is "GPU heavy"). The one speed is calibrated: with it the jobs in turn take `gs`
  825.6 s, as published, in the mean of seeds 1 to 5 (`bench/flow_calibration.py` finds it). Nothing
  else is fitted;
- disks: `SimulatorConstants.disk_bytes_per_s`, assumed, that of a SATA solid-state disk;
- intermediate results: a product of square blocks, taken literally, would not fit a 10 GB card;
  here it leaves 100 MB, one of thin blocks 60 MB (its smaller operand), and any other task 10 MB
  for its reduce. Sorted runs too: moving all 238 GB of them to range-partitioned merges takes
  1,610 s with GPUs of infinite speed, twice the published total, so that cannot contain it;
- images of 100 kB (they are not part of the 1,259.6 GB of the other inputs);
- reduces, merges and updates run on CPU slots, hold no GPU and take only the time of reading;
- three replicas of every shard, on random nodes drawn for each seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headgate.base.rng import stream
from headgate.model import WHOLE, Demand, Gpu, Job, Node, Queue, Shard, Task
from headgate.sim.run import Simulation
from headgate.spec import Links
from headgate.spec.cluster import expected
from headgate.spec.forms import iterated, mapped, merged

GB, MB = 10**9, 10**6

RACKS = (4, 4, 4, 3)
GPUS_PER_NODE = 2
GPU_MEMORY_BYTES = 10 * GB
NODE_LINK_BYTES_PER_S = 125 * MB
UPLINK_BYTES_PER_S = {"constrained": 125 * MB, "unconstrained": 1250 * MB}
REPLICAS = 3
RESULT_BYTES = 10 * MB
ITERATIONS = 10
QUEUE = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """Jobs that run the same program on different amounts of data: `counts` of shards, by job.

    A task reads one shard of each of `sizes_bytes`, computes for `weight` times their bytes at the
    speed of the GPUs, and has a result of `result_bytes`.
    """

    name: str
    sizes_bytes: tuple[int, ...]
    counts: tuple[int, ...]
    weight: float = 1.0
    result_bytes: int = RESULT_BYTES


JOB_KINDS = (
    JobKind(name="matmul", sizes_bytes=(GB, GB), counts=(6, 10, 15, 20), result_bytes=100 * MB),
    JobKind(
        name="matmul-thin", sizes_bytes=(GB, 60 * MB), counts=(8, 10, 20, 30), result_bytes=60 * MB
    ),
    JobKind(name="occurrence", sizes_bytes=(3 * GB,), counts=(5, 6, 8, 10, 15, 20, 30, 60)),
    JobKind(
        name="primes", sizes_bytes=(2 * GB,), counts=(4, 8, 10, 15, 20, 30, 40, 60), weight=4.0
    ),
    JobKind(name="sort", sizes_bytes=(2 * GB,), counts=(5, 6, 8, 10, 30, 60)),
    JobKind(name="kmeans", sizes_bytes=(500 * MB,), counts=(5, 8, 10)),
    JobKind(name="detection-2000", sizes_bytes=(200 * MB,), counts=(5,), weight=10.0),
    JobKind(name="detection-1000", sizes_bytes=(100 * MB,), counts=(10,), weight=10.0),
    JobKind(name="detection-500", sizes_bytes=(50 * MB,), counts=(20,), weight=10.0),
    JobKind(name="sparse", sizes_bytes=(28 * MB,), counts=(3,)),
)
"""J1 to J37, in their order; the last one is the supplement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorConstants:
    """The simulator's free constants."""

    disk_bytes_per_s: float = 500 * MB
    gpu_bytes_per_s: float = 1574 * MB


def nodes() -> tuple[Node, ...]:
    """Return the test bed: 15 nodes of two GPUs in four racks."""
    gpus = (Gpu(memory_bytes=GPU_MEMORY_BYTES),) * GPUS_PER_NODE
    return tuple(
        Node(id=f"r{rack}-n{number}", rack=f"r{rack}", gpus=gpus, cpus=8)
        for rack, count in enumerate(RACKS, 1)
        for number in range(1, count + 1)
    )


def links(network: str, speeds: SimulatorConstants) -> Links:
    """Return the bandwidths of the `constrained` or the `unconstrained` network."""
    return Links(
        disk_bytes_per_s=speeds.disk_bytes_per_s,
        node_link_bytes_per_s=NODE_LINK_BYTES_PER_S,
        rack_uplink_bytes_per_s=UPLINK_BYTES_PER_S[network],
    )


def jobs(speeds: SimulatorConstants) -> tuple[Job, ...]:
    """Return J1 to J37."""
    found: list[Job] = []
    for kind in JOB_KINDS:
        for count in kind.counts:
            found.append(_job(f"J{len(found) + 1}", kind, count, speeds))
    return tuple(found)


def _job(name: str, kind: JobKind, count: int, speeds: SimulatorConstants) -> Job:
    columns = len(kind.sizes_bytes)
    reads = [tuple(f"{name}/{i}/{c}" for c in range(columns)) for i in range(count)]
    shards = tuple(
        Shard(id=shard, size_bytes=size_bytes)
        for row in reads
        for shard, size_bytes in zip(row, kind.sizes_bytes, strict=True)
    )
    task = Task(
        demand=Demand(gpus=1, gpu_memory_bytes=sum(kind.sizes_bytes) + kind.result_bytes),
        compute_s=kind.weight * sum(kind.sizes_bytes) / speeds.gpu_bytes_per_s,
        output_bytes=kind.result_bytes,
    )
    merge = Task(demand=Demand(cpus_milli=WHOLE), output_bytes=kind.result_bytes)
    if kind.name == "kmeans":
        tasks = iterated(name, reads, ITERATIONS, task=task, update=merge)
    elif kind.name.startswith("matmul"):
        # Sums are tasks of the cluster's GPUs too: tasks are twice the shards.
        add = Task(
            demand=Demand(gpus=1, gpu_memory_bytes=2 * kind.result_bytes),
            compute_s=kind.result_bytes / speeds.gpu_bytes_per_s,
            output_bytes=kind.result_bytes // count,
        )
        tasks = merged(name, mapped(reads, task=task), count=count, task=add, partitioned=True)
    elif kind.name == "sort":
        tasks = merged(name, mapped(reads, task=task), count=count, task=merge, partitioned=True)
    else:
        tasks = merged(name, mapped(reads, task=task), count=1, task=merge)
    return Job(
        id=name,
        name=name,
        user="user",
        queue=QUEUE,
        tasks=tasks,
        shards=shards,
        runtime_class=kind.name,
    )


def replicas(of: Sequence[Job], seed: int) -> tuple[tuple[Shard, str], ...]:
    """Return the replicas: each shard on three random nodes, drawn by job and seed."""
    names = [node.id for node in nodes()]
    shards: dict[str, dict[Shard, None]] = {}
    for shard in (shard for job in of for shard in job.shards):
        shards.setdefault(shard.id.partition("/")[0], {})[shard] = None
    return tuple(
        (shard, node)
        for owner, own in shards.items()
        for rng in [stream(seed, "replicas", owner)]
        for shard in own
        for node in rng.sample(names, REPLICAS)
    )


def in_parallel(
    network: str,
    seed: int,
    speeds: SimulatorConstants,
    *,
    parallel: int,
    supplement: bool = False,
    max_gpus: int | None = None,
) -> Simulation:
    """Return J1 to J36 (and J37) in order, all submitted at time 0, `parallel` in flight."""
    stream_of = jobs(speeds) if supplement else jobs(speeds)[:-1]
    queue = Queue(name=QUEUE, max_jobs_in_flight=parallel, max_gpus=max_gpus)
    return _simulation(network, seed, speeds, stream_of, (queue,))


def by_users(
    network: str, seed: int, speeds: SimulatorConstants, *, users: int = 10, each: int = 6
) -> Simulation:
    """Return `each` jobs of each user, drawn from the 36, in a queue per user.

    Two users may draw the same job; both then read the same shards.
    """
    choice = jobs(speeds)[:-1]
    submitted = [
        _owned(job, f"u{user}")
        for user in range(1, users + 1)
        for job in stream(seed, "users", user).sample(choice, each)
    ]
    queues = tuple(Queue(name=f"u{user}") for user in range(1, users + 1))
    return _simulation(network, seed, speeds, submitted, queues)


def _owned(job: Job, user: str) -> Job:
    """Return a user's copy of a job, reading the same shards."""
    name = f"{job.id}-{user}"
    shards = {shard.id for shard in job.shards}
    tasks = tuple(
        replace(
            task, reads=tuple(r if r in shards else name + r[len(job.id) :] for r in task.reads)
        )
        for task in job.tasks
    )
    return replace(job, id=name, name=name, user=user, queue=user, tasks=tasks)


def _simulation(
    network: str,
    seed: int,
    speeds: SimulatorConstants,
    of: Sequence[Job],
    queues: tuple[Queue, ...],
) -> Simulation:
    cluster, carried = nodes(), links(network, speeds)
    return Simulation(
        nodes=cluster,
        links=carried,
        bandwidth=expected(carried, cluster),
        queues=queues,
        replicas=replicas(of, seed),
        submissions=tuple((0.0, job) for job in of),
        seed=seed,
    )
