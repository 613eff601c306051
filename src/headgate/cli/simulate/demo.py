"""`headgate demo`: real jobs on a cluster on this machine, and their simulation."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headgate.app import POLICIES
from headgate.base.errors import WorldError
from headgate.base.text import visible, visible_values
from headgate.base.units import format_compact, format_seconds, format_size
from headgate.cli.cluster.cluster import DEFAULT_POLICY
from headgate.cli.common import output, tables
from headgate.cli.common.settings import POLICY_FORM, FormatOption, settle
from headgate.cli.jobs.jobs import job_lines
from headgate.cli.jobs.why import expected_start
from headgate.ports import make_policy, read_policy

if TYPE_CHECKING:
    from headgate.api.client import Client
    from headgate.cli.simulate.demo_jobs import DemoJob
    from headgate.state import State

View = dict[str, Any]

_NODES, _GPUS, _RACKS = 8, 2, 2
_REPLICAS = 2
_LONGEST_S = 600.0
_LOOK_S = 0.5
_WHY_S = 2.0  # between two explanations of the jobs that wait
_OWN_REASONS = ("Undecided", "WaitsForTasks")  # those that name no other job, nor any GPU
_SEED = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One job in the demo's report, live and simulated.

    `why` and `expected` are from `headgate why` when it had waited for `why_after_s` seconds, "" if
    it never waited for another job.
    """

    job: str
    what: str
    tasks: int
    wait_s: float
    run_s: float
    simulated_s: float
    fairness: float | None
    read_bytes: tuple[int, int, int]
    verdict: str
    why_after_s: float | None
    why: str
    expected: str


def demo(
    policy: Annotated[
        str, typer.Option(metavar=POLICY_FORM, help="Scheduling policy.")
    ] = DEFAULT_POLICY,
    fmt: FormatOption = None,
) -> None:
    """Run jobs of three users on virtual nodes, and simulate them.

    Starts 8 virtual nodes, runs a plain Ray program, a gang and four maps on them, checks their
    results, shows why each job was pending, and simulates the same.
    """
    from rich.console import Console

    read_policy(POLICIES, policy)
    as_json = settle(None, fmt).as_json
    console = Console(stderr=as_json, markup=False)
    base = Path(tempfile.mkdtemp(prefix="headgate-demo-"))
    try:
        rows, facts = _run(base, policy, console)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    if as_json:
        jobs = [{name: getattr(row, name) for name in _Row.__slots__} for row in rows]
        output.print_json_line(visible_values({**facts, "jobs": jobs}))
    else:
        _show(console, rows, facts)
    if any(row.verdict for row in rows):
        raise typer.Exit(100)


def _run(base: Path, policy: str, console: Any) -> tuple[list[_Row], dict[str, Any]]:
    """Run the demo in a directory; all processes are stopped at the end, also after a failure."""
    from headgate.api.client import Client
    from headgate.cli.cluster.cluster import start_cluster, stop_cluster
    from headgate.cli.simulate.demo_jobs import USERS, make_jobs
    from headgate.model import Queue

    state, inputs = base / "state", base / "inputs"
    inputs.mkdir()
    started = time.monotonic()
    try:
        with console.status(f"Starting {_NODES} virtual nodes with {_GPUS} GPUs each"):
            start_cluster(
                state,
                nodes=_NODES,
                gpus=_GPUS,
                racks=_RACKS,
                policy=policy,
                seed=_SEED,
                queues=tuple(Queue(name=user) for user in USERS),
                spares=0,
            )
        console.print(f"{_NODES} nodes up after {format_seconds(time.monotonic() - started)}")
        with Client(_socket(state)) as client:
            with console.status("Generating the inputs"):
                jobs = make_jobs(inputs, _SEED)
            _put(client, jobs, console)
            ids = {client.submit(job.job): job for job in jobs}
            waits = _watch(client, list(ids), console)
            with console.status("Checking the results against NumPy"):
                verdicts = {i: _verdict(client, i, job, base) for i, job in ids.items()}
    finally:
        with console.status("Stopping all processes"):
            stop_cluster(state)
    with console.status("Simulating the same jobs on the same cluster"):
        return _compare(state, policy, ids, verdicts, waits)


def _socket(state: Path) -> Path:
    from headgate.api.address import socket_path

    return socket_path(state)


def _put(client: Client, jobs: Sequence[Any], console: Any) -> None:
    """Put all inputs, with replicas, as datasets."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    from headgate.live.node.split import split_files

    files = [(name, *data, job.lines) for job in jobs for name, data in job.data.items()]
    total = sum(path.stat().st_size for _, path, _, _ in files)
    bar = Progress(
        TextColumn("Putting {task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        console=console,
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=total)
        for name, path, shard_bytes, lines in files:
            bar.update(task, description=name)
            parts = split_files([path], shard_bytes, lines=lines)
            for index, (_, part) in enumerate(parts):
                client.put_shard(name, index, iter(part), replicas=_REPLICAS)
                bar.advance(task, part.size_bytes)
            client.commit_dataset(name, shards=len(parts))
    size = format_size(total)
    console.print(f"{size} of data on the nodes, {_REPLICAS} replicas of each shard")


def _watch(client: Client, ids: Sequence[str], console: Any) -> dict[str, View]:
    """Show the jobs until all have ended; return the last explanation of each that waited."""
    from rich.live import Live

    waits: dict[str, View] = {}
    until, explain_at = time.monotonic() + _LONGEST_S, 0.0
    with Live(console=console, transient=True, auto_refresh=False) as live:
        while True:
            views = [client.job(job) for job in ids]
            live.update(_table(views, console.width), refresh=True)
            if all(view["state"] in ("finished", "failed", "cancelled") for view in views):
                return waits
            if time.monotonic() >= explain_at:
                waits |= _explained(client, views)
                explain_at = time.monotonic() + _WHY_S
            if time.monotonic() > until:
                text = f"the jobs are unfinished after {format_seconds(_LONGEST_S)}"
                raise WorldError(text, code="not_finished")
            time.sleep(_LOOK_S)


def _explained(client: Client, views: Sequence[View]) -> dict[str, View]:
    """Return the explanations of those jobs that wait for others to end."""
    waiting = [view["id"] for view in views if view["reason"]]
    found = {job: client.why(job) for job in waiting}
    return {
        job: explanation
        for job, explanation in found.items()
        if explanation["reason"] and explanation["reason"]["code"] not in _OWN_REASONS
    }


def _table(views: Sequence[Mapping[str, Any]], width: int) -> Any:
    """Return the jobs now, as `headgate jobs` shows them."""
    from rich.text import Text

    title = f"A Ray program, a gang and four maps of three users share {_NODES * _GPUS} GPUs:"
    return Text("\n".join((title, *job_lines(views, width))), no_wrap=True)


def _verdict(client: Client, job_id: str, job: Any, base: Path) -> str:
    """Return how a job's result is wrong, "" if it is right."""
    view = client.job(job_id)
    if view["state"] != "finished":
        return f"{view['state']}: {view['message']}"
    total = view["tasks"]["total"]
    paths = []
    for task in range(total - job.results, total):
        path = base / f"{job_id}-{task}"
        with path.open("wb") as file:
            for piece in client.result(job_id, task):
                file.write(piece)
        paths.append(path)
    wrong: str = job.wrong(paths)
    return wrong


def _compare(
    state: Path,
    policy: str,
    jobs_of: Mapping[str, DemoJob],
    verdicts: Mapping[str, str],
    waits: Mapping[str, View],
) -> tuple[list[_Row], dict[str, Any]]:
    """Replay the journal, simulate its jobs, and return both results per job."""
    import numpy as np

    from headgate.live.controller.durable import DurableEngine
    from headgate.metrics.records import JobRecords
    from headgate.sim import run as sim
    from headgate.sim.replay import recorded

    durable = DurableEngine(state / "journal.db")
    durable.close()
    view = durable.engine.state
    simulation = recorded(view, seed=_SEED)
    decider = make_policy(POLICIES, *read_policy(POLICIES, policy))
    outcome = sim.run(simulation, decider)
    ideal_s = sim.ideal_times_s(simulation, decider, outcome)
    live_s = np.nan_to_num(JobRecords.of(view).run_s).tolist()
    simulated_s = sim.run_times_s(simulation, outcome)
    rows = []
    jobs = view.jobs
    for row, (job, took_s) in enumerate(zip(view.names.jobs, live_s, strict=True)):
        rows.append(
            _Row(
                job=job.id,
                what=jobs_of[job.id].what,
                tasks=len(job.tasks),
                wait_s=jobs.started_at[row] - jobs.submitted_at[row],
                run_s=took_s,
                simulated_s=simulated_s.get(job.id, 0.0),
                fairness=ideal_s[job.id] / took_s if took_s and job.id in ideal_s else None,
                read_bytes=(
                    jobs.read_node_bytes[row],
                    jobs.read_rack_bytes[row],
                    jobs.read_cluster_bytes[row],
                ),
                verdict=verdicts.get(job.id, "not checked"),
                **_wait(waits.get(job.id)),
            )
        )
    return rows, _facts(view, outcome, policy)


def _wait(explanation: View | None) -> View:
    """Return why a job waited, and when it was expected to start."""
    if explanation is None:
        return {"why_after_s": None, "why": "", "expected": ""}
    start = explanation["start"]
    return {
        "why_after_s": explanation["waits_s"],
        "why": explanation["reason"]["text"],
        "expected": "" if start is None else expected_start(explanation, start),
    }


def _facts(view: State, outcome: Any, policy: str) -> dict[str, Any]:
    ended, submitted = view.jobs.ended_at.array(), view.jobs.submitted_at.array()
    live = {
        locality: int(getattr(view.jobs, f"read_{locality}_bytes").array().sum())
        for locality in ("node", "rack", "cluster")
    }
    return {
        "policy": policy,
        "makespan_s": float(ended.max() - submitted.min()),
        "bytes": live,
        "simulated": {
            "makespan_s": outcome.figures["makespan_s"],
            "bytes": outcome.figures["bytes"],
        },
    }


def _show(console: Any, rows: Sequence[_Row], facts: Mapping[str, Any]) -> None:
    cells = [
        (
            *(row.job, row.tasks, format_compact(row.wait_s), format_compact(row.run_s)),
            format_compact(row.simulated_s),
            None if row.fairness is None else f"{row.fairness:.2f}",
            "/".join(f"{size / 2**20:.0f}" for size in row.read_bytes),
            "correct" if not row.verdict else row.verdict.partition("\n")[0],
        )
        for row in rows
    ]
    headings = ("JOB", "TASKS", "WAIT", "RUN", "SIM", "FAIRNESS", "READ MIB", "RESULT")
    _print_lines(console, tables.lines(headings, cells, width=console.width, text="RESULT"))
    _show_waits(console, rows)
    simulated = facts["simulated"]
    both = [("makespan", *(format_seconds(each["makespan_s"]) for each in (facts, simulated)))]
    both += [
        (name, *(format_size(each["bytes"][locality]) for each in (facts, simulated)))
        for locality, name in (
            ("node", "read on the node"), ("rack", "read in the rack"),
            ("cluster", "read across racks"),
        )
    ]  # fmt: skip
    _print_lines(console, tables.lines(("ALL JOBS", "LIVE", "SIMULATED"), both))
    console.print(
        "\nRUN: from the first start to the last end. SIM: the same in the simulator, where\n"
        "tasks have their GPUs for the measured times and reading is simulated.\n"
        "FAIRNESS: the time of the job alone on its share of the GPUs, simulated, over RUN.\n"
        "READ MIB: on the node/in the rack/across racks."
    )


def _print_lines(console: Any, lines: Sequence[str]) -> None:
    console.print("\n".join(("", *lines)), no_wrap=True, crop=False)


def _show_waits(console: Any, rows: Sequence[_Row]) -> None:
    """Print why jobs were pending, as `headgate why` reported it then."""
    console.print("\nWhy they were pending:")
    for row in rows:
        if row.why_after_s is not None:
            after = format_seconds(row.why_after_s)
            lines = [f"  Reason: {row.why}"]
            lines += [f"  Expected start: {row.expected}"] if row.expected else []
            shown = [tables.wrapped(visible(line), console.width, indent="    ") for line in lines]
            head = f"$ headgate why {row.job}  # after {after}; {row.what}"
            _print_lines(console, (visible(head), *shown))
