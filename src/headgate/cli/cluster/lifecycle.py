"""The verbs up and down: start and stop Headgate on this machine."""

from __future__ import annotations

import math
import os
import pwd
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from headgate.base.errors import Problem, SpecError, WorldError
from headgate.base.text import visible
from headgate.base.units import BadQuantity, format_size, parse_duration
from headgate.cli.cluster import process
from headgate.cli.cluster.cluster import (
    DEFAULT_POLICY,
    ShowProgress,
    placed_by,
    start_cluster,
    stop_cluster,
)
from headgate.cli.cluster.label import labels_text
from headgate.cli.cluster.option_conflicts import config_of
from headgate.cli.common import output
from headgate.cli.common.settings import (
    POLICY_FORM,
    DryRunOption,
    FormatOption,
    PlaceOption,
    ProgramSettings,
    StateOption,
    YesOption,
    memory_bytes,
    parsed,
    settle,
    size_bytes,
)
from headgate.model import Queue

_ProbePeriodOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=86400,
        metavar="SECONDS",
        help="Time between bandwidth measurements; 0: only when nodes join.",
        show_default="15",
    ),
]
_NodesOption = Annotated[
    int | None,
    typer.Option(min=1, max=64, metavar="N", help="Virtual nodes to start.", show_default="8"),
]
_GpusOption = Annotated[
    int | None,
    typer.Option(min=0, max=64, metavar="N", help="Virtual GPUs per node.", show_default="2"),
]
_RacksOption = Annotated[
    int | None,
    typer.Option(min=1, max=64, metavar="N", help="Racks of the nodes.", show_default="2"),
]
_GpuMemoryOption = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Memory per GPU.", show_default="4GiB")
]
_GpuModelOption = Annotated[
    list[str] | None,
    typer.Option(
        "--gpu-model", metavar="MODEL", help="Model of the GPUs; several: for nodes in turn."
    ),
]
_PolicyOption = Annotated[
    str | None,
    typer.Option(metavar=POLICY_FORM, help="Scheduling policy.", show_default=DEFAULT_POLICY),
]
_AddressOption = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Join this Ray cluster instead of starting nodes."),
]
_TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="With --address: file with the cluster's token.",
        show_default="as Ray finds one",
    ),
]

_GroupOption = Annotated[
    str | None, typer.Option(metavar="GROUP", help="Group whose members may use this Headgate.")
]
_SharedAccountOption = Annotated[
    bool,
    typer.Option(
        "--shared-account",
        help="With --group, without root: run the jobs of all users as this user.",
    ),
]
_KeepOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Keep results and logs this long after a job's end, such as 30d, unless its file "
        "says otherwise.",
        show_default="forever",
    ),
]

_RetainOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Archive a job this long after its end; jobs --all lists archived jobs.",
        show_default="1d",
    ),
]

_LogLimitOption = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="Size of the log of a run; the middle of a larger one is dropped.",
        show_default="64MiB",
    ),
]

_MaxProcessesOption = Annotated[
    int | None,
    typer.Option(
        min=64,
        metavar="N",
        help="Most processes and threads of a run on a node.",
        show_default="4096",
    ),
]

_SparesOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=16,
        metavar="N",
        help="Processes kept ready on each node, for a quick start of jobs.",
        show_default="1",
    ),
]


_SeedOption = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="Random seed.", show_default="0")
]
_QueuesOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Queues with weights and limits (YAML).")
]
_TopologyOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="How nodes and GPUs are connected (YAML)."),
]
_LabelsOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The labels of nodes (YAML).")
]
_ScalingOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Nodes that can be ordered, and their provider (YAML)."),
]


def up(
    nodes: _NodesOption = None,
    gpus: _GpusOption = None,
    racks: _RacksOption = None,
    gpu_memory: _GpuMemoryOption = None,
    gpu_model: _GpuModelOption = None,
    policy: _PolicyOption = None,
    place: PlaceOption = None,
    seed: _SeedOption = None,
    queues: _QueuesOption = None,
    group: _GroupOption = None,
    shared_account: _SharedAccountOption = False,
    address: _AddressOption = None,
    token_file: _TokenFileOption = None,
    probe_period: _ProbePeriodOption = None,
    keep_results: _KeepOption = None,
    retain: _RetainOption = None,
    log_limit: _LogLimitOption = None,
    max_processes: _MaxProcessesOption = None,
    spares: _SparesOption = None,
    topology: _TopologyOption = None,
    labels: _LabelsOption = None,
    scaling: _ScalingOption = None,
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """Start Headgate on virtual nodes or a Ray cluster.

    Starts virtual nodes on this machine, or joins a Ray cluster (--address), and starts the
    controller. Where nodes run without a controller, starts it; it continues from the journal.
    """
    settings = settle(state, fmt)
    keep_s = None if keep_results is None else parsed("--keep-results", _keep, keep_results)
    texts = _topology_text(topology), None if labels is None else labels_text(labels)
    with _progress(settings, "starting") as show_progress:
        facts = start_cluster(
            settings.state,
            nodes=nodes,
            gpus=gpus,
            racks=racks,
            gpu_memory_bytes=memory_bytes(gpu_memory, "--gpu-memory"),
            gpu_model=gpu_model,
            policy=placed_by(policy, place),
            seed=seed,
            queues=None if queues is None else _queues(queues),
            group=group,
            shared_account=shared_account,
            address=address,
            token_file=token_file,
            probe_period_s=probe_period,
            keep_results_s=keep_s,
            retain_s=None if retain is None else parsed("--retain", _keep, retain),
            log_limit_bytes=None if log_limit is None else _log_limit(log_limit),
            max_processes=max_processes,
            spares=spares,
            scaling=None if scaling is None else _scaling_text(scaling),
            show_progress=show_progress,
        )
    _put(settings, *texts)
    output.print_result(facts, *_is_up(facts, settings), as_json=settings.as_json)


def _is_up(facts: dict[str, Any], settings: ProgramSettings) -> list[str]:
    """Return what runs now, as lines."""
    verb = "is already running" if facts["already_running"] else "is up"
    text = f"Headgate {verb}: {output.counted(facts['nodes'], 'node')}, policy {facts['policy']}"
    return [text, f"State directory: {settings.state}", *facts["notes"]]


def _queues(file: Path) -> tuple[Queue, ...]:
    from headgate.spec.queues import load_queues

    return load_queues(file)


def _scaling_text(file: Path) -> str:
    """Return the text of a scaling file; raise SpecError with all its problems."""
    from headgate.spec.document import read_text
    from headgate.spec.live_scaling import load_live_scaling

    load_live_scaling(file)
    return read_text(file)


def _topology_text(file: Path | None) -> str | None:
    """Return the text of a topology file; raise SpecError with all its problems."""
    if file is None:
        return None
    from headgate.spec import load_topology
    from headgate.spec.document import read_text

    load_topology(file)
    return read_text(file)


def _put(settings: ProgramSettings, topology: str | None, labels: str | None) -> None:
    """Put the texts of a topology file and of a labels file in force, if there are any."""
    if topology is not None or labels is not None:
        with settings.client() as client:
            if topology is not None:
                client.set_topology(topology)
            if labels is not None:
                client.set_labels(labels)


def _log_limit(text: str) -> int:
    from headgate.live.base.log_limit import LEAST_LIMIT_BYTES

    found = size_bytes(text, "--log-limit")
    if found < LEAST_LIMIT_BYTES:
        problem = f"must be at least {format_size(LEAST_LIMIT_BYTES)}"
        raise SpecError([Problem(path="--log-limit", problem=problem)], code="usage")
    return found


def _keep(text: str) -> float:
    seconds = math.inf if text == "forever" else parse_duration(text)
    if not seconds:
        raise BadQuantity("must be more than 0", "write a duration such as 30d, or forever")
    return seconds


@contextmanager
def _progress(settings: ProgramSettings, text: str) -> Iterator[ShowProgress]:
    """Yield a function that shows progress: in place on a terminal, else line by line."""
    if settings.as_json:
        yield lambda _: None
    elif sys.stderr.isatty():
        from rich.text import Text  # text would be read as markup

        with output.stderr().status(text) as status:
            yield lambda line: status.update(Text(visible(line)))
    else:
        shown: list[str] = []

        def show(line: str) -> None:
            if line not in shown:
                shown.append(line)
                output.print_note(line)

        yield show


def down(
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """Stop Headgate: the controller, all runs, virtual nodes.

    A joined Ray cluster stays up. The journal of jobs is kept.
    """
    from headgate.live.cluster.ray_nodes import HEAD, local_cluster

    settings = settle(state, fmt)
    place = settings.state
    _need_own(place)
    cluster, running = local_cluster(place), len(process.controllers(place))
    nodes = 0 if cluster is None else len(set(cluster.sessions) - {HEAD})
    facts = {"state": str(place), "controllers": running, "nodes": nodes, "dry_run": dry_run}
    if not running and cluster is None and config_of(place) is None:
        output.print_result(facts, f"no Headgate is running in {place}", as_json=settings.as_json)
        return
    what = f"{output.counted(nodes, 'node')}, {_in_flight(settings)}"
    if not dry_run:
        output.confirm(f"stop the Headgate in {place} ({what})?", yes=yes)
        with _progress(settings, "stopping") as show_progress:
            stop_cluster(place, show_progress=show_progress)
    text = f"Headgate {'would be' if dry_run else 'is'} down ({what})"
    output.print_result(facts, text, as_json=settings.as_json)


def _need_own(state: Path) -> None:
    """Raise SpecError `forbidden` for the state directory of another user, unless root asks."""
    try:
        owner = state.stat().st_uid
    except OSError:
        return  # there is none, or it cannot be reached: reported when it is read
    if os.geteuid() in (0, owner):
        return
    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        name = f"user {owner}"
    who = name if owner == 0 else f"{name} or root"
    text = f"permission denied: only {who} may stop the Headgate in {state}, for all of its users"
    hint = f"ask {who}; headgate cancel JOB ends a job of yours"
    raise SpecError([Problem(path="down", problem=text, hint=hint)], code="forbidden")


def _in_flight(settings: ProgramSettings) -> str:
    try:
        with settings.client() as client:
            jobs = next(client.events())["jobs"]
    except (WorldError, StopIteration):
        return "a controller that does not respond"
    count = sum(jobs.get(state, 0) for state in ("queued", "active", "stopping"))
    return output.counted(count, "unfinished job")
