"""Contention among the jobs that run now, computed from where they run and what they declare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headgate.model import Job
from headgate.model.topology import Topology
from headgate.planning.links.contention import Contention
from headgate.planning.links.job_traffic import JobTraffic, communicates
from headgate.state import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowedJob:
    """A job that communicates: the seconds of its slowest step now, and in its best set alone.

    `diameter` is in hops; `shared_with` are the jobs that send over links of its own.
    """

    job: str
    slowdown: float
    step_s: float
    best_step_s: float
    diameter: int
    shared_with: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLink:
    """A directed link: its capacity, its mean load, and that of each job, greatest first."""

    link: str
    capacity_bytes_per_s: float
    load_bytes_per_s: float
    jobs: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkReport:
    """Jobs by slowdown, links by use, greatest first.

    `undeclared` are gangs on several nodes that declare no communication: they are left out.
    """

    jobs: tuple[SlowedJob, ...]
    links: tuple[LoadedLink, ...]
    undeclared: tuple[str, ...]


@dataclass(slots=True)
class _PlacedSender:
    """Tasks that communicate with each other, and where they run."""

    job: Job
    places: list[tuple[str, tuple[int, ...]]]
    best_step_s: float = 0.0


def link_report(snapshot: Snapshot) -> LinkReport:
    """Return the expected load of links, and slowdown of jobs, with the runs of a snapshot.

    All tasks of a job that run now are expected to communicate all the time. O(tasks), and the cost
    of `traffic_of` and `flow_rates`.
    """
    senders, undeclared = _senders(snapshot)
    traffic = JobTraffic(snapshot)
    shared = Contention(traffic.topology.capacity)
    for name, sender in senders.items():
        assert sender.job.communication is not None, "it communicates"
        sent = traffic.traffic(sender.job.communication, sender.places)
        shared.add(name, sent)
        alone_s = sent.step_alone_s(traffic.topology.capacity)
        sender.best_step_s = min(alone_s, traffic.best_step_s(sender.job, len(sender.places)))
    shared.changed()
    by_link: dict[int, dict[str, float]] = {}
    for name, sender in senders.items():
        links, rates = shared.load_of(name)
        for link, rate in zip(links.tolist(), rates.tolist(), strict=True):
            jobs = by_link.setdefault(link, {})
            jobs[sender.job.id] = jobs.get(sender.job.id, 0.0) + rate
    return LinkReport(
        jobs=_slowed(senders, traffic, shared, by_link),
        links=_loaded(traffic.topology, shared, by_link),
        undeclared=undeclared,
    )


def _loaded(
    topology: Topology, shared: Contention, by_link: Mapping[int, Mapping[str, float]]
) -> tuple[LoadedLink, ...]:
    """Return the links that carry anything, the most used for its capacity first."""
    load = shared.loads()
    use = load / topology.capacity
    return tuple(
        LoadedLink(
            link=topology.link_label(link),
            capacity_bytes_per_s=float(topology.capacity[link]),
            load_bytes_per_s=float(load[link]),
            jobs=tuple(sorted(by_link[link].items(), key=lambda item: (-item[1], item[0]))),
        )
        for link in sorted(by_link, key=lambda link: (-use[link], link))
    )


def _slowed(
    senders: Mapping[str, _PlacedSender],
    traffic: JobTraffic,
    shared: Contention,
    by_link: Mapping[int, Mapping[str, float]],
) -> tuple[SlowedJob, ...]:
    """Return the jobs that communicate, each with its slowest tasks, the slowest first."""
    met = _met(by_link)
    slowest: dict[str, SlowedJob] = {}
    for name, sender in senders.items():
        step_s, best_s, job = shared.step_s(name), sender.best_step_s, sender.job.id
        slowdown = max(1.0, step_s / best_s) if best_s else 1.0
        if job not in slowest or slowdown > slowest[job].slowdown:
            slowest[job] = SlowedJob(
                job=job,
                slowdown=slowdown,
                step_s=step_s,
                best_step_s=best_s,
                diameter=traffic.diameter(sender.places),
                shared_with=tuple(sorted(met.get(job, ()))),
            )
    return tuple(sorted(slowest.values(), key=lambda row: (-row.slowdown, row.job)))


def _senders(snapshot: Snapshot) -> tuple[dict[str, _PlacedSender], tuple[str, ...]]:
    """Return what runs together and communicates, and the gangs that do not say whether they do."""
    senders: dict[str, _PlacedSender] = {}
    undeclared: dict[str, set[str]] = {}
    for row in snapshot.holding():
        job = snapshot.job(snapshot.tasks.job[row])
        node = snapshot.node(snapshot.tasks.node[row]).id
        if communicates(job):
            name = job.id if job.gang else f"{job.id}/{snapshot.ordinal(row)}"
            sender = senders.setdefault(name, _PlacedSender(job, []))
            sender.places.append((node, snapshot.held_gpus(row)))
        elif job.gang and job.communication is None:
            undeclared.setdefault(job.id, set()).add(node)
    return senders, tuple(name for name, nodes in undeclared.items() if len(nodes) > 1)


def _met(by_link: Mapping[int, Mapping[str, float]]) -> dict[str, set[str]]:
    """Return which other jobs each job shares links with."""
    met: dict[str, set[str]] = {}
    for jobs in by_link.values():
        for job in jobs:
            met.setdefault(job, set()).update(other for other in jobs if other != job)
    return met
