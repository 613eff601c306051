"""`headgate simulate`: the same scheduler on a scenario or a recorded trace, in virtual time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headgate.app import POLICIES
from headgate.base.errors import Problem, SpecError
from headgate.base.text import visible_values
from headgate.base.units import MOST_SECONDS, format_seconds, format_size
from headgate.cli.common import output
from headgate.cli.common.settings import POLICY_FORM, FormatOption, PlaceOption, settle
from headgate.cli.jobs.top import link_rows, print_links
from headgate.cli.jobs.why import WHERE
from headgate.cli.simulate.elastic_training import (
    DeadlinesOption,
    GpusPerServerOption,
    GpuTypeOption,
    RulesOption,
    ServersOption,
    ThroughputsOption,
    TrainingSettings,
)
from headgate.cli.simulate.trace_settings import (
    EstimatesOption,
    QueueColumnOption,
    ResumeOption,
    TraceSettings,
    VcOption,
)
from headgate.ports import PLACE_NAMES, Policy, capabilities, make_policy, read_policy
from headgate.ports.timed import TimedPolicy

if TYPE_CHECKING:
    from headgate.protocol import Command, Event
    from headgate.sim import run as sim
    from headgate.sim.forecasts import ForecastCheck
    from headgate.sim.report import Launches
    from headgate.spec import Scenario
    from headgate.traces import TraceFile

    _Prepared = tuple[TimedPolicy, sim.Simulation, TraceFile | None, Mapping[str, Sequence[str]]]

PolicyOption = Annotated[
    str | None,
    typer.Option(
        metavar=POLICY_FORM,
        help="Scheduling policy; required with --trace, default: the scenario's.",
    ),
]
ForecastsOption = Annotated[
    float | None,
    typer.Option(metavar="SHARE", help="Forecast a start after this share of the rounds."),
]
TraceOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A recorded workload (Parquet), on identical GPUs."),
]
GpusOption = Annotated[int | None, typer.Option(metavar="N", help="With --trace: number of GPUs.")]
LatencyOption = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="Time that each decision takes.")
]
TopologyOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="With a scenario: how its nodes are connected (YAML)."),
]
JobsOutOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write one row per job to this Parquet file.")
]
TimingsOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write times measured on this machine to this file."),
]
_PROGRESS_EVERY_S = 0.2


def simulate(
    scenario: Annotated[
        Path | None,
        typer.Argument(metavar="SCENARIO", help="A scenario file (YAML).", show_default=False),
    ] = None,
    trace: TraceOption = None,
    gpus: GpusOption = None,
    policy: PolicyOption = None,
    place: PlaceOption = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Random seed.")] = None,
    decision_latency: LatencyOption = None,
    queue_column: QueueColumnOption = None,
    vc: VcOption = None,
    estimates: EstimatesOption = None,
    resume: ResumeOption = None,
    forecasts: ForecastsOption = None,
    topology: TopologyOption = None,
    jobs_out: JobsOutOption = None,
    timings: TimingsOption = None,
    deadlines: DeadlinesOption = False,
    throughputs: ThroughputsOption = None,
    servers: ServersOption = None,
    gpus_per_server: GpusPerServerOption = None,
    gpu_type: GpuTypeOption = None,
    rules: RulesOption = None,
    fmt: FormatOption = None,
) -> None:
    """Simulate a scenario or a trace in virtual time.

    Runs the same scheduler as the live system, and prints the figures.
    """
    as_json = settle(None, fmt).as_json
    training = TrainingSettings(throughputs, servers, gpus_per_server, gpu_type, rules)
    gpus = training.gpus(gpus)
    if deadlines:
        given = {
            "SCENARIO": scenario, "--place": place, "--seed": seed, "--resume": resume,
            "--decision-latency": decision_latency, "--queue-column": queue_column,
            "--estimates": estimates, "--forecasts": forecasts, "--topology": topology,
            "--jobs-out": jobs_out, "--timings": timings,
        }  # fmt: skip
        training.simulate(trace, gpus, policy, vc, other=given, as_json=as_json)
        return
    problems = training.problems() + _check_options(
        scenario, trace, gpus, policy, seed, decision_latency
    )
    problems += _check_share(forecasts) + _check_writable(jobs_out) + _check_writable(timings)
    of_trace = TraceSettings(queue_column=queue_column, vc=vc, estimates=estimates, resume=resume)
    problems += of_trace.problems(possible=True) + _check_topology(topology, scenario)
    if problems:
        raise SpecError(problems, code="usage")
    started = time.perf_counter()
    found = _prepare(scenario, trace, gpus, policy, place, seed, decision_latency, of_trace)
    launches = found[2] is None or (jobs_out is not None and scenario is not None)
    figures, decisions = _run(found, launches, topology, forecasts, jobs_out, as_json=as_json)
    if timings is not None:
        _write_timings(timings, decisions, time.perf_counter() - started)
    _print(figures, as_json=as_json)


def _run(
    prepared: _Prepared,
    with_launches: bool,
    topology: Path | None,
    forecasts: float | None,
    jobs_out: Path | None,
    *,
    as_json: bool,
) -> tuple[dict[str, Any], dict[str, float]]:
    """Run a prepared simulation, and write its jobs; return its figures, and times measured."""
    from headgate.sim import run as sim
    from headgate.sim.report import Launches, placements

    chosen, simulation, recorded, names = prepared
    simulation = _connected(simulation, topology)
    if not as_json:
        _warn_of_sizes(chosen.policy, simulation)
    launches = Launches()
    with _progress("Simulating", len(simulation.submissions), as_json=as_json) as step:
        observers: list[sim.Observer] = [_watch(step)]
        if with_launches:
            observers.append(launches)
        check = _forecast_check(chosen, forecasts, simulation.seed)
        outcome = sim.run(simulation, chosen, observe=observers, forecasts=check)
    decisions = _timings(chosen)
    if recorded is None:
        with _progress("Each job alone", len(simulation.submissions), as_json=as_json) as step:
            outcome = sim.with_fairness(simulation, chosen, outcome, step=lambda _: step(1))
        outcome.figures["placements"] = placements(launches.seen, names)
    if jobs_out is not None:
        integer_ids = recorded is not None and recorded.integer_ids
        _write_jobs(jobs_out, simulation, outcome, launches, integer_ids=integer_ids)
    return outcome.figures, decisions


def _prepare(
    scenario: Path | None,
    trace: Path | None,
    gpus: int | None,
    policy: str | None,
    place: str | None,
    seed: int | None,
    decision_latency_s: float | None,
    of_trace: TraceSettings,
) -> _Prepared:
    """Return the policy, the simulation, its trace where it has one, and the names of tasks."""
    from headgate.sim import run as sim
    from headgate.traces import open_trace

    placed = {} if place is None else {"place": place}
    if scenario is not None:
        file = _read_scenario(scenario, policy, seed, decision_latency_s)
        file = replace(file, parameters={**file.parameters, **placed})
        if problems := of_trace.problems(possible=file.trace is not None):
            raise SpecError(problems, code="usage")
        recorded = None if file.trace is None else open_trace(file.trace, of_trace.options)
        _note_left_out(recorded)
        chosen = TimedPolicy(make_policy(POLICIES, file.policy, file.parameters), time.perf_counter)
        simulation = sim.from_scenario(file, chosen, recorded, of_trace.model(file.seed))
        return chosen, simulation, recorded, file.task_names
    assert trace is not None, "checked by _check_options"
    assert gpus is not None, "checked by _check_options"
    name, parameters = read_policy(POLICIES, policy or "")
    chosen = TimedPolicy(make_policy(POLICIES, name, {**parameters, **placed}), time.perf_counter)
    recorded = open_trace(trace, of_trace.options)
    _note_left_out(recorded)
    simulation = sim.from_trace(
        recorded,
        chosen,
        gpus=gpus,
        seed=seed or 0,
        decision_latency_s=decision_latency_s or 0.0,
        model=of_trace.model(seed or 0),
    )
    return chosen, simulation, recorded, {}


def _warn_of_sizes(policy: Policy, simulation: sim.Simulation) -> None:
    """Warn of jobs of a scenario that the placer rounds up to a power of two GPUs."""
    jobs = simulation.submissions
    if not isinstance(jobs, tuple):
        return
    rounded_up = capabilities(policy).rounded_up
    rounded = [job for _, job in jobs if rounded_up(job)]
    if rounded:
        gangs = output.counted(len(rounded), "job")
        text = f"{gangs} (such as {rounded[0].id}) with a number of GPUs that is no power of two"
        hint = "it is rounded up where there is room; sizes=refuse rejects such jobs"
        output.warn(Problem(path="policy.sizes", problem=text, hint=hint))


def _read_scenario(
    path: Path, policy: str | None, seed: int | None, decision_latency_s: float | None
) -> Scenario:
    """Return a scenario, changed by the options given."""
    from headgate.spec import load_scenario

    known = {name: [p.name for p in info.parameters] for name, info in POLICIES.items()}
    name, parameters = (None, None) if policy is None else read_policy(POLICIES, policy)
    parts = {name: info.parts for name, info in POLICIES.items() if info.parts}
    file = load_scenario(
        path, known, policy=name, parameters=parameters, seed=seed, parts=parts, places=PLACE_NAMES
    )
    if decision_latency_s is not None:
        file = replace(file, decision_latency_s=decision_latency_s)
    return file


def _check_options(
    scenario: Path | None,
    trace: Path | None,
    gpus: int | None,
    policy: str | None,
    seed: int | None,
    decision_latency_s: float | None,
) -> list[Problem]:
    wrong = []
    if (scenario is None) == (trace is None):
        hint = "headgate simulate SCENARIO.yaml, or headgate simulate --trace FILE --gpus N ..."
        wrong.append(("SCENARIO", "give either a scenario file or --trace", hint))
    if trace is not None and scenario is None:
        if gpus is None:
            wrong.append(
                ("--gpus", "is required with --trace", "the number of GPUs of the cluster")
            )
        if policy is None:
            wrong.append(("--policy", "is required with --trace", f"one of {', '.join(POLICIES)}"))
    if scenario is not None and gpus is not None:
        wrong.append(("--gpus", "requires --trace", "a scenario file defines its GPUs"))
    if gpus is not None and not 1 <= gpus <= 1_000_000:
        wrong.append(("--gpus", f"must be from 1 to 1000000, not {gpus}", ""))
    if seed is not None and not 0 <= seed < 2**63:
        wrong.append(("--seed", f"must be from 0 to 2^63 - 1, not {seed}", ""))
    if decision_latency_s is not None and not 0 <= decision_latency_s <= MOST_SECONDS:
        problem = f"must be from 0 to {MOST_SECONDS:g} s, not {decision_latency_s}"
        wrong.append(("--decision-latency", problem, ""))
    return [Problem(path=path, problem=problem, hint=hint) for path, problem, hint in wrong]


def _timings(timed: TimedPolicy) -> dict[str, float]:
    """Return count, mean, maximum and total (s) of all decisions."""
    seconds = timed.seconds
    return {
        "count": len(seconds),
        "mean_s": sum(seconds) / len(seconds) if seconds else 0.0,
        "max_s": max(seconds, default=0.0),
        "total_s": sum(seconds),
    }


def _forecast_check(timed: TimedPolicy, share: float | None, seed: int) -> ForecastCheck | None:
    from headgate.sim.forecasts import ForecastCheck

    return None if share is None else ForecastCheck(timed.policy, share=share, seed=seed)


def _check_share(share: float | None) -> list[Problem]:
    """Return the problems of the share of rounds after which a forecast is made."""
    if share is None or 0 < share <= 1:
        return []
    text = f"must be above 0 and at most 1, not {share}"
    return [Problem(path="--forecasts", problem=text, hint="0.01: after one round in a hundred")]


def _check_topology(topology: Path | None, scenario: Path | None) -> list[Problem]:
    if topology is None or scenario is not None:
        return []
    text = "requires a scenario file, whose nodes it places"
    return [Problem(path="--topology", problem=text)]


def _connected(simulation: sim.Simulation, topology: Path | None) -> sim.Simulation:
    """Return the simulation with the topology of a file."""
    if topology is None:
        return simulation
    if simulation.topology is not None:
        problem, hint = "the scenario has the key 'topology' already", "leave out one of them"
        raise SpecError([Problem(path="--topology", problem=problem, hint=hint)], code="usage")
    from headgate.spec import load_topology

    return replace(simulation, topology=load_topology(topology, nodes=simulation.nodes))


def _check_writable(path: Path | None) -> list[Problem]:
    """Return the problems of an output file, before a long run instead of after it."""
    if path is None:
        return []
    if path.is_dir():
        return [Problem(path=str(path), problem="is a directory", hint="name a file")]
    if not path.absolute().parent.is_dir():
        hint = "create the directory first"
        return [Problem(path=str(path), problem="its directory does not exist", hint=hint)]
    return []


def _watch(step: Callable[[int], None]) -> sim.Observer:
    """Return an observer that calls `step` with the number of jobs submitted in each batch."""
    from headgate.protocol import JobSubmitted

    def see(batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        del commands
        step(sum(isinstance(event, JobSubmitted) for event in batch))

    return see


@contextmanager
def _progress(title: str, total: int, *, as_json: bool) -> Iterator[Callable[[int], None]]:
    """Show a progress bar; yield a function that advances it by a count."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with output.progress(TextColumn(title), *columns, as_json=as_json) as bar:
        task = bar.add_task("", total=total)
        pending, last = 0, 0.0

        def step(count: int) -> None:
            nonlocal pending, last
            pending += count
            if time.perf_counter() - last > _PROGRESS_EVERY_S:
                bar.advance(task, pending)
                pending, last = 0, time.perf_counter()

        yield step


def _note_left_out(recorded: TraceFile | None) -> None:
    for note in () if recorded is None else recorded.notes:
        output.print_note(note)


def _write_jobs(
    path: Path,
    simulation: sim.Simulation,
    outcome: sim.Outcome,
    launches: Launches,
    *,
    integer_ids: bool,
) -> None:
    import pyarrow.parquet as pq

    from headgate.sim.report import jobs_table

    table = jobs_table(simulation, outcome, starts=launches.seen, integer_ids=integer_ids)
    try:
        # Given a path instead of a file, pyarrow would remove it after a failure, even a device.
        with path.open("wb") as file:
            pq.write_table(table, file)
    except OSError as error:
        if path.is_file():  # devices stay
            path.unlink()
        raise output.cannot_write(path, error) from error


def _write_timings(path: Path, decisions: dict[str, float], wall_s: float) -> None:
    measured = {"wall_s": wall_s, "decisions": decisions}
    try:
        path.write_text(json.dumps(measured, indent=2) + "\n")
    except OSError as error:
        raise output.cannot_write(path, error) from error


def _print(figures: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        output.print_json_line(visible_values(figures))
        return
    output.print_text(f"Policy {figures['policy']}, seed {figures['seed']}", "")
    output.print_table(("FIGURE", "VALUE"), _rows(figures))
    shared = [link for link in figures["links"] if link["jobs"]]
    if shared:
        output.print_text("")
        print_links(shared)
    placed = figures.get("placements")
    if placed:
        output.print_text("")
        output.print_table(
            ("AT", "TASK", "NODE", "LOCALITY"),
            ((f"{p['at_s']:.1f} s", p["task"], p["node"], p["locality"]) for p in placed[:50]),
            names=("TASK", "NODE"),
        )
        if len(placed) > 50:
            output.print_note(f"and {len(placed) - 50} more; -o json lists all")


def _rows(figures: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "makespan", format_seconds(figures["makespan_s"])
    for key, name in (
        ("finished", "completed"), ("failed", "failed"), ("cancelled", "cancelled"),
        ("unfinished", "not ended"), ("rejected", "rejected"),
    ):  # fmt: skip
        yield f"jobs {name}", str(figures[f"jobs_{key}"])
    for code, count in figures["rejected"].items():
        yield f"  {code}", str(count)
    for key, name in (
        ("mean_jct_s", "mean completion time"), ("median_jct_s", "median completion time"),
        ("p99_jct_s", "p99 completion time"), ("mean_wait_s", "mean wait"),
    ):  # fmt: skip
        yield name, "-" if figures[key] is None else format_seconds(figures[key])
    yield "GPU utilisation", f"{figures['gpu_utilisation']:.1%}"
    if figures["fairness"] is not None and figures["fairness"]["mean"] is not None:
        mean, deviation = figures["fairness"]["mean"], figures["fairness"]["deviation"]
        yield "fairness", f"{mean:.3f} (deviation {deviation:.3f})"
    yield from _trace_rows(figures)
    yield from link_rows(figures)
    yield from _deadline_rows(figures)
    yield from _loan_rows(figures)
    yield from _forecast_rows(figures.get("forecasts"))
    for locality, size in figures["bytes"].items():
        yield f"read {WHERE[locality]}", format_size(size)
    decisions = figures["decisions"]
    took = format_seconds(decisions["mean_s"])
    yield "scheduling decisions", f"{decisions['count']}, each modelled as {took}"


def _trace_rows(figures: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the rows of waits by size, finish-time fairness and reservations."""
    for row in figures["wait_by_size"] or ():
        if row["jobs"]:
            mean, p99 = format_seconds(row["mean_wait_s"]), format_seconds(row["p99_wait_s"])
            name = f"wait, {row['gpus_at_least']} GPUs or more"
            yield name, f"mean {mean}, p99 {p99}, {row['jobs']} jobs"
    rho = figures["finish_time_fairness"]
    if rho is not None and rho["mean"] is not None:
        text = f"mean {rho['mean']:.2f}, p95 {rho['p95']:.2f}, worst {rho['worst']:.2f}"
        yield "finish-time fairness", text
    reserved = figures["reservations"]
    if reserved["made"]:
        delay_s = reserved["mean_delay_s"]
        late = "" if delay_s is None else f", by {format_seconds(delay_s)} in the mean"
        kept = reserved["kept_ratio"]
        held = "" if kept is None else f"; {100 * kept:.0f} % of announcements held"
        if reserved["superseded"]:
            held += f", without {reserved['superseded']} superseded by better claims"
        yield (
            "reservations",
            f"{reserved['made']}, of which {reserved['broken']} broken{late}{held}",
        )
    if reserved["hardened"]:
        longest = format_seconds(reserved["longest_hardened_wait_s"])
        yield "hardened", f"{reserved['hardened']}, longest wait on kept places {longest}"


def _deadline_rows(figures: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the rows of deadlines, and of training jobs that are stopped to be wider."""
    if figures["deadline_ratio"] is not None:
        yield "ended by deadline", f"{figures['deadline_ratio']:.1%} of the jobs with one"
    if figures["resizes"]:
        yield "changes of width", str(figures["resizes"])


def _loan_rows(figures: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the rows of what queues borrowed of each other, and took back."""
    if figures["borrowed_gpu_s"]:
        yield "borrowed by queues", f"{figures['borrowed_gpu_s'] / 3600:.1f} GPU hours"
    back = figures["reclaimed"]
    if back["count"]:
        lost, wait = format_seconds(back["lost_gpu_s"]), format_seconds(back["longest_wait_s"])
        yield "reclaimed", f"{back['count']} runs, {lost} of GPU time lost, longest wait {wait}"


def _forecast_rows(forecasts: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Yield the rows of how forecasts of starts came out."""
    if forecasts is None:
        return
    yield "forecasts", f"{forecasts['answered']} of {forecasts['asked']} answered"
    if forecasts["waits_over_1_s"]:
        yield "  waits over 1 s", str(forecasts["waits_over_1_s"])
        yield "  within max(2 s, 20 %)", f"{forecasts['within']:.0%}"
    if forecasts["median_abs_error_s"] is not None:
        yield "  in their 80 % interval", f"{forecasts['coverage_80']:.0%}"
        if forecasts["median_width_s"] is not None:
            yield "  median width of it", format_seconds(forecasts["median_width_s"])
        yield "  median error", format_seconds(forecasts["median_abs_error_s"])
        yield "  on the same node", f"{forecasts['same_node']:.0%}"
