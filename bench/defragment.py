"""Moves that make room: what they take to find, and what they save a stream of jobs.

`--quick` measures small trees only, and one seed.
"""

from __future__ import annotations

import argparse
import heapq
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from headgate.app import POLICIES
from headgate.model.topology import Tree
from headgate.planning.moves.defrag import Held, Relocations, least_moves
from headgate.planning.moves.price import MovePrice
from headgate.planning.moves.ranked_tree import RankedTree
from headgate.ports import make_policy
from headgate.sim.run import from_scenario, run
from headgate.spec import load_scenario

CHECKPOINT_S = 1800.0
SIZES, SHARES = (1, 2, 4, 8, 16, 32), (0.45, 0.15, 0.15, 0.15, 0.06, 0.04)
PRICE = MovePrice(state_bytes=10e9, bytes_per_s=1e9, resume_s=30.0)


@dataclass
class Run:
    """A job that holds leaves."""

    leaves: np.ndarray
    began: float
    spread: bool


def filled(
    tree: RankedTree, rng: np.random.Generator, used: float
) -> tuple[list[Held], np.ndarray]:
    """Return units at random places of best rank, and what they leave idle."""
    idle, held = np.ones(tree.leaves, bool), list[Held]()
    for _ in range(4 * tree.leaves):
        size = int(rng.choice(SIZES[:4], p=(0.5, 0.2, 0.15, 0.15)))
        if idle.sum() - size < (1 - used) * tree.leaves:
            break
        vertices = tree.containers(tree.best_rank(size) or 0)
        vertices = vertices[tree.counts(idle)[vertices] >= size]
        if len(vertices):
            vertex = int(rng.choice(vertices))
            first = int(tree.first_leaf[vertex])
            leaves = np.flatnonzero(idle[first : tree.end_leaf[vertex]])[:size] + first
            idle[leaves] = False
            held.append(Held(leaves, int(rng.integers(1, 1800)) * 1000 * size))
    return held, idle


def times(fan_out: tuple[int, ...], used: float) -> None:
    """Print what searches on a tree take."""
    tree, rng = RankedTree.of(Tree.uniform(fan_out)).halved(), np.random.default_rng(1)
    held, idle = filled(tree, rng, used)
    for count in (8, 16, 64, 256):
        if count > idle.sum():
            continue
        for work in (0, 2_000):
            began = time.process_time()
            found = least_moves(tree, held, idle, count, work=work)
            ms = 1e3 * (time.process_time() - began)
            what = "none"
            if isinstance(found, Relocations):
                what = (
                    f"{len(found.moves):3d} moves, {found.phases} phases, {found.cost / 1e6:9.1f}"
                )
                what += " thousand GPU s, " + ("proven" if found.proven else "not proven")
            print(
                f"{tree.leaves:6d} leaves {used:.0%} need {count:3d} work {work:5d}: "
                f"{ms:8.1f} ms  {what}"
            )


def stream(seed: int, load: float, *, migrate: bool, jobs: int) -> dict[str, float]:
    """Return the counts of a stream of jobs on 512 GPUs: 8 racks of 8 nodes with 8 GPUs.

    A job without enough idle GPUs is turned away; without a good placement it is spread, or others
    move. Arrivals and run times do not depend on what is placed how.
    """
    plain, rng = RankedTree.of(Tree.uniform((8, 8, 8))), np.random.default_rng(seed)
    tree = plain.halved() if migrate else plain
    size = rng.choice(SIZES, jobs, p=SHARES)
    run_s = rng.lognormal(8.5, 1.2, jobs)
    every = float((size * run_s).mean()) / (load * tree.leaves)
    at = np.cumsum(rng.exponential(every, jobs))
    idle, runs, ends = np.ones(tree.leaves, bool), dict[int, Run](), list[tuple[float, int]]()
    counts = dict.fromkeys(
        ("turned away", "full", "spread", "moves", "needs", "gpu_s", "work"), 0.0
    )
    for job in range(jobs):
        now = float(at[job])
        while ends and ends[0][0] <= now:
            idle[runs.pop(heapq.heappop(ends)[1]).leaves] = True
        if idle.sum() < size[job]:
            counts["turned away"] += 1
            continue
        names = [name for name, run in runs.items() if not run.spread] if migrate else []
        held = [
            Held(
                runs[n].leaves,
                round(
                    1e3
                    * PRICE.move_cost_s(len(runs[n].leaves), (now - runs[n].began) % CHECKPOINT_S)
                ),
            )
            for n in names
        ]
        found = least_moves(tree, held, idle, int(size[job]), work=500)
        if isinstance(found, Relocations):
            counts["full"] += 1
            counts["needs"] += bool(found.moves)
            counts["moves"] += len(found.moves)
            counts["gpu_s"] += found.cost / 1e3
            for move in found.moves:
                idle[runs[names[move.unit]].leaves] = True
                runs[names[move.unit]].leaves = np.array(move.leaves)
            for move in found.moves:
                idle[list(move.leaves)] = False
            leaves = np.array(found.leaves)
        else:
            counts["spread"] += 1
            leaves = np.flatnonzero(idle)[: size[job]]
        idle[leaves] = False
        runs[job] = Run(leaves, now, not isinstance(found, Relocations))
        heapq.heappush(ends, (now + float(run_s[job]), job))
        counts["work"] += float(run_s[job] * size[job])
    return counts


def simulated(
    seed: int, name: str, migrate: str, jobs: int, *, every_s: int = 60, **setting: str
) -> dict[str, float]:
    """Return figures of a simulation under a policy: 64 GPUs on 8 nodes in 2 racks.

    Tasks save a checkpoint every `every_s` seconds, 0 for never; they take 30 s to resume.
    """
    rng, lines = np.random.default_rng(seed), list[str]()
    for number, at in enumerate(np.cumsum(rng.exponential(60.0, jobs)).round(1).tolist()):
        gpus = int(rng.choice([1, 1, 1, 2, 4, 8]))
        task = (
            f"{{compute_s: {rng.exponential(1200.0):.1f}, gpus: {gpus}, checkpoint_s: {every_s}}}"
        )
        lines.append(f"  - {{name: j{number}, submit_s: {at}, tasks: [{task}]}}\n")
    node = "nodes: 4, node: {gpus: 8, gpu_memory: 1GB, cpus: 9}"
    text = (
        f"cluster:\n  racks: [{{name: r, {node}}}, {{name: s, {node}}}]\n"
        "  bandwidths: {disk_bytes_per_s: 1e9, node_link_bytes_per_s: 1e9, "
        "rack_uplink_bytes_per_s: 1e9}\npolicy: fifo\njobs:\n" + "".join(lines)
    )
    policy = make_policy(POLICIES, name, {"migrate": migrate, **setting})
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scenario.yaml"
        file.write_text(text)
        scenario = from_scenario(load_scenario(file, {"fifo": []}), policy)
        seen = run(replace(scenario, resume_s=PRICE.resume_s), policy)
    wanted = "mean_wait_s", "mean_jct_s", "migrations", "lost_gpu_s", "makespan_s"
    return {name: float(seen.figures[name]) for name in wanted}


def report(what: str, rows: list[dict[str, float]]) -> None:
    """Print the means of some rows, and the mean completion time of each."""
    means = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
    figures = ", ".join(f"{key} {value:.0f}" for key, value in means.items())
    print(f"{what}: {figures}; each {[round(row['mean_jct_s']) for row in rows]}", flush=True)


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    for load in (0.7, 0.9, 1.1):
        for migrate in (False, True):
            rows = [stream(s, load, migrate=migrate, jobs=2000) for s in range(1 if quick else 5)]
            mean = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
            print(
                f"load {load:.1f} {'moves' if migrate else 'stays'}: turned away "
                f"{mean['turned away']:.0f}, full bandwidth {mean['full']:.1f}, spread "
                f"{mean['spread']:.1f}; {mean['moves']:.1f} moves for {mean['needs']:.1f} jobs, "
                f"{mean['gpu_s'] / max(mean['moves'], 1):.0f} GPU s each, "
                f"{mean['gpu_s'] / mean['work']:.3%} of the work"
            )
    seeds = range(1 if quick else 5)
    for place in ("first-fit", "best-fit-subtree"):
        for setting in ("never", "when-cheaper"):
            rows = [simulated(s, "easy-backfill", setting, 300, place=place) for s in seeds]
            report(f"easy-backfill place={place} migrate={setting}", rows)
    for name in ("headgate", "fair-order", "fifo"):
        report(f"{name} migrate=never", [simulated(s, name, "never", 300) for s in seeds])
        for every_s in (60, 600, 0):
            rows = [simulated(s, name, "when-cheaper", 300, every_s=every_s) for s in seeds]
            report(f"{name} migrate=when-cheaper, checkpoint every {every_s} s", rows)
    shapes = [(4, 8, 2, 2, 2), (4, 4, 16, 8)] + ([] if quick else [(8, 16, 16, 2, 2, 2)])
    for shape in shapes:
        for used in (0.7, 0.9):
            times(shape, used)


if __name__ == "__main__":
    main()
