"""Verbs about jobs: jobs, get, cancel."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headgate.base.errors import Problem, SpecError, nearest
from headgate.base.states import job_word, task_word, tasks_by_word
from headgate.base.text import visible_values
from headgate.base.units import format_compact, format_seconds
from headgate.cli.common import output, tables
from headgate.cli.common.overs import over_text
from headgate.cli.common.settings import (
    DryRunOption,
    FormatOption,
    ProgramSettings,
    StateOption,
    YesOption,
    settle,
)
from headgate.cli.common.several import answers, as_one
from headgate.cli.common.stops import stop_lines
from headgate.cli.common.times import in_local_time, local_time
from headgate.cli.data import fetch, kept_files
from headgate.cli.jobs.units import progress_cell, units_of, units_text, unneeded_of
from headgate.cli.jobs.why import job_and_task

if TYPE_CHECKING:
    from headgate.api.client import Client

Job = Mapping[str, Any]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")]
_DEFAULT_QUEUE = "default"
_WATCHED = ("running", "stopping", "preempted", "pending")
"""The states of jobs that are active, in the order in which they are watched."""

_COMMAND_LINES, _COMMAND_COLUMNS = 5, 200
_MOST_NODES = 8
_MOST_OVERS = 4


def jobs(
    status: Annotated[
        str | None,
        typer.Option(
            "--state",
            "--status",
            metavar="STATE",
            help="Only jobs in this state: pending, running, ...",
        ),
    ] = None,
    user: Annotated[
        str | None, typer.Option(metavar="USER", help="Only jobs of this user.")
    ] = None,
    queue: Annotated[
        str | None, typer.Option(metavar="QUEUE", help="Only jobs in this queue.")
    ] = None,
    all_jobs: Annotated[bool, typer.Option("--all", help="Also list archived jobs.")] = False,
    limit: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="List at most this many jobs.")
    ] = 50,
    cursor: Annotated[
        str | None,
        typer.Option(metavar="CURSOR", help="Show the next page: the cursor of the last one."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show every change, until Ctrl-C.")
    ] = False,
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """List jobs, newest first, with the reasons of pending ones.

    TIME is how long a job has run or, before its first run, waited. -o wide shows whole reasons.
    """
    _need_no_directory(status)
    settings = settle(state, fmt)
    query = {"state": status, "user": user, "queue": queue, "limit": limit, "cursor": cursor}
    query |= {"all": all_jobs or None}
    with settings.client() as client:
        page = client.jobs(**query)
        if watch:
            with suppress(KeyboardInterrupt):  # how it is left
                _watch(client, query, settings)
        elif settings.as_json:
            output.print_json(page)
        else:
            for line in _lines(page["jobs"], settings):
                output.write(f"{line}\n")
            if not page["jobs"]:
                _note_unknown(client, user, queue)
            if next_ := page["next"]:
                output.print_note(
                    f"there are more than {limit} jobs; see --limit or --cursor {next_}"
                )


def _need_no_directory(status: str | None) -> None:
    """Raise SpecError `usage` for a path in place of the state of jobs."""
    if status is not None and "/" in status:
        text, hint = f"'{status}' is not a state of jobs", "a Headgate is chosen by --state-dir"
        raise SpecError([Problem(path="--state", problem=text, hint=hint)], code="usage")


def _note_unknown(client: Client, user: str | None, queue: str | None) -> None:
    """Print a note if the list is empty for a user or queue that is unknown."""
    if user is not None and not client.jobs(user=user, limit=1, all=True)["jobs"]:
        output.print_note(f"no job of user '{user}' is known")
    if queue is not None:
        known = [held["name"] for held in client.queues()]
        if queue not in known:
            output.print_note(f"there is no queue '{queue}'; {nearest(queue, known)}")


def _watch(client: Client, query: dict[str, str | int | None], settings: ProgramSettings) -> None:
    if settings.as_json:
        for _ in client.events():
            output.print_json_line(visible_values(client.jobs(**query)))
        return
    from rich.live import Live
    from rich.text import Text

    with Live(console=output.stdout(), auto_refresh=False) as live:
        for _ in client.events():
            page = {"jobs": _active_first(client, query)}
            text = Text("\n".join(_lines(page["jobs"], settings)), no_wrap=True)
            live.update(text, refresh=True)


def _active_first(client: Client, query: dict[str, str | int | None]) -> list[Job]:
    """Return jobs of a query, those that run before those that wait, and ended ones last."""
    states = [query["state"]] if query["state"] else [*_WATCHED, None]
    found: dict[str, Job] = {}
    for state in states:
        for job in client.jobs(**{**query, "state": state})["jobs"]:
            found.setdefault(job["id"], job)
    return list(found.values())[: int(query["limit"] or 0)]


def _lines(listed: Sequence[Job], settings: ProgramSettings) -> list[str]:
    if settings.wide:
        return tables.lines(*_wide(listed))
    return job_lines(listed, output.columns(), terminal=sys.stdout.isatty())


def job_lines(
    listed: Sequence[Job],
    width: int,
    *,
    terminal: bool = True,
    more: Mapping[str, Callable[[Job], object]] = MappingProxyType({}),
) -> list[str]:
    """Return the table of jobs; QUEUE is left out where all are in the queue `default`.

    Names are cropped on a terminal only. `more` are further columns, after GPUS.
    """
    columns: dict[str, Callable[[Job], object]] = {
        "JOB": lambda job: job["id"],
        "USER": lambda job: job["user"],
        "QUEUE": lambda job: job["queue"],
        "STATE": _state,
        "TASKS": progress_cell,
        "GPUS": lambda job: job["gpus"]["held"],
        **more,
        "TIME": _time,
        "REASON": _short_reason,
    }
    if all(job["queue"] == _DEFAULT_QUEUE for job in listed):
        del columns["QUEUE"]
    rows = [[cell(job) for cell in columns.values()] for job in listed]
    names = ("QUEUE", "USER", "JOB") if terminal else ()
    return tables.lines(tuple(columns), rows, width=width, text="REASON", names=names)


def _wide(listed: Sequence[Job]) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Return headings and rows of the table with all columns and whole reasons."""
    headings = (
        *("JOB", "NAME", "USER", "QUEUE", "PRIORITY", "STATE", "TASKS", "GPUS", "PEAK"),
        *("NODES", "WAITED", "RAN", "REASON"),
    )
    rows: list[tuple[object, ...]] = [
        (
            *(job["id"], job["name"], job["user"], job["queue"], job["priority"]),
            *(_state(job), progress_cell(job), job["gpus"]["held"], job["gpus"]["peak"]),
            *(_nodes(job), output.duration(job["wait_s"]), output.duration(job["run_s"])),
            output.sentence(job["reason"]) or _first_line(job["message"]),
        )
        for job in listed
    ]
    return headings, rows


def _state(job: Job) -> str:
    # archives of earlier releases have no number of preempted tasks
    return job_word(job["state"], job["tasks"], job.get("preempted_tasks", 0))


def _nodes(job: Job) -> str | None:
    """Return the nodes of a job's last runs as a cell."""
    more = len(job["nodes"]) - _MOST_NODES
    shown = ", ".join(job["nodes"][:_MOST_NODES])
    return shown + (f" and {more} more" if more > 0 else "") or None


def _time(job: Job) -> str:
    """Return for how long a job has run, or has waited for its first run."""
    return format_compact(job["wait_s"] if job["run_s"] is None else job["run_s"])


def _short_reason(job: Job) -> str | None:
    """Return in one clause what a job waits for, or how it ended."""
    brief = job.get("brief_reason")
    return in_local_time(brief) if brief else _first_line(job["message"])


def _first_line(message: str | None) -> str | None:
    """Return the first line of a message, with an ellipsis if there are more."""
    first, _, rest = (message or "").partition("\n")
    return f"{first} ..." if rest else first or None


def get(
    job: JobArgument,
    task: Annotated[int | None, typer.Option(min=0, metavar="N", help="Only this task.")] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--output",
            metavar="FILE|DIR",
            help="Write the result to this file, or those of all tasks into this directory.",
        ),
    ] = None,
    files: Annotated[
        Path | None,
        typer.Option("--files", metavar="DIR", help="Write what its runs have left into DIR."),
    ] = None,
    yes: YesOption = False,
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """Show a job and its tasks, or fetch its results or its files."""
    settings = settle(state, fmt)
    kept_files.need_one_target(target, files)
    with settings.client() as client:
        if files is not None:
            kept_files.fetch(client, job, task, files, settings, yes=yes)
            return
        if target is not None:
            fetch.fetch(client, job, task, target, settings)
            return
        view = client.job(job)
        tasks = client.tasks(job) if task is None else [client.task(job, task)]
    if settings.as_json:
        output.print_json({**view, "task_list": tasks})
        return
    output.print_facts(_facts(view, tasks, task))
    output.print_text("")
    columns = _TASK_COLUMNS if units_of(view) is not None else _TASK_COLUMNS_OF_OTHERS
    rows = [[cell(each) for cell in columns.values()] for each in tasks]
    output.print_table(tuple(columns), rows, names=("NODE", "GPU IDS"))


def _facts(
    view: dict[str, Any], tasks: Sequence[dict[str, Any]], task: int | None
) -> Sequence[tuple[str, str | None]]:
    """Return names and values of what is shown of a job, or of one task of it."""
    reason = (task is not None and tasks[0].get("reason")) or view["reason"]
    return (
        ("Job", f"{view['id']} ({view['name']})"),
        ("Command", _shortened(view["command"])),
        ("User", view["user"]),
        ("Queue", f"{view['queue']}, priority {view['priority']}"),
        ("State", _state(view) + (", archived" if view["archived"] else "")),
        ("Tasks", _tasks(view) + _gang(view) + _limit(view)),
        ("Elastic", units_text(view)),
        ("GPUs", f"{view['gpus']['held']} allocated (peak {view['gpus']['peak']})"),
        ("Nodes", places(view)),
        ("Submitted", local_time(view["submitted_at"])),
        ("Started", _at(view["started_at"])),
        ("Ended", _at(view["ended_at"])),
        ("Deadline", _at(view["deadline_at"])),
        ("Waited", output.duration(view["wait_s"])),
        ("Ran", output.duration(view["run_s"])),
        ("Exit", _exit(tasks[0]["exit"] if task is not None else view["exit"])),
        ("Log", _log(tasks, task)),
        ("Run time", _run_times(view)),
        ("Runs in", _directory(view.get("working_dir"))),
        ("After", ", ".join(view.get("after", ())) or None),
        ("Results", _results(view["results"])),
        ("Files", _files(view)),
        ("Reason", output.sentence(reason)),
        ("Uses more", "\n".join(_overs(tasks)) or None),
        ("Stopped", "\n".join(stop_lines(tasks, every=task is not None)) or None),
        ("Message", view["message"]),
    )


def _overs(tasks: Sequence[Job]) -> Iterator[str]:
    """Yield a line for each run that uses more than it holds, of the first ones."""
    over = [task for task in tasks if task.get("over")]  # not of earlier releases
    for task in over[:_MOST_OVERS]:
        yield f"task {task['ordinal']} on {task['node']} {over_text(task['over'])}"
    if len(over) > _MOST_OVERS:
        yield f"and {len(over) - _MOST_OVERS} more tasks"


def _at(at: float | None) -> str | None:
    return None if at is None else local_time(at)


def _exit(how: int | str | None) -> str | None:
    """Return an exit code, or the signal that ended a program, as text."""
    if how is None:
        return None
    return f"code {how}" if isinstance(how, int) else how


def _shortened(command: str | None) -> str | None:
    """Return the first lines of a command, with an ellipsis if there are more."""
    if command is None:
        return None
    lines = command.splitlines()
    more = ["..."] if len(lines) > _COMMAND_LINES else []
    shown = [tables.cropped(line, _COMMAND_COLUMNS) for line in lines[:_COMMAND_LINES]]
    return "\n".join([*shown, *more])


def places(view: Job) -> str | None:
    """Return the nodes of a job's last runs with their GPUs: `n1 (GPUs 0, 1), n2 (GPU 3)`."""
    gpus = view["gpus"].get("by_node", {})
    parts = []
    for node in view["nodes"][:_MOST_NODES]:
        held = ", ".join(map(str, gpus.get(node, ())))
        plural = "s" if len(gpus.get(node, ())) > 1 else ""
        parts.append(f"{node} (GPU{plural} {held})" if held else str(node))
    more = len(view["nodes"]) - _MOST_NODES
    return ", ".join(parts) + (f" and {more} more" if more > 0 else "") or None


def _log(tasks: Sequence[dict[str, Any]], task: int | None) -> str | None:
    """Return where the log of the only task shown is, or of several the first one's."""
    logs = [f"{each['log']} on {each['node']}" for each in tasks if each["log"]]
    if not logs:
        return None
    more = len(logs) - 1 if task is None else 0
    return logs[0] + (f", and {more} more (-o json lists all)" if more else "")


def _tasks(view: Job) -> str:
    """Return the numbers of a job's tasks as text: `8 (3 PENDING, 5 RUNNING)`."""
    preempted = view.get("preempted_tasks", 0)
    counts = tasks_by_word(view["tasks"], preempted, unneeded_of(view))
    shown = ", ".join(f"{count} {word}" for word, count in counts.items())
    return f"{view['tasks']['total']} ({shown})"


def _run_times(view: dict[str, Any]) -> str | None:
    """Return what a job declares of its runs as text; None if it declares nothing."""
    parts = [
        text.format(format_seconds(view[key]))
        for key, text in (("estimated_s", "estimated {}"), ("time_limit_s", "limit {}"))
        if view.get(key) is not None  # archives of earlier releases have no such key
    ]
    return ", ".join(parts) or None


def _directory(working_dir: Mapping[str, str] | None) -> str | None:
    """Return where the runs of a job start; None for an empty directory, or one that is hidden."""
    if not working_dir:
        return None
    return working_dir.get("shared") or "a copy of the directory at submission"


def _gang(view: dict[str, Any]) -> str:
    if view.get("num_nodes") is not None:  # not in views archived by older releases
        return ", a gang, each on its own node"
    return ", a gang" if view["gang"] else ""


def _limit(view: dict[str, Any]) -> str:
    most = view.get("max_running")  # not in views archived by older releases
    return "" if most is None else f", max_running {most}"


def _results(kept: dict[str, Any]) -> str | None:
    """Return copies and retention of a job's results as text; None for the defaults."""
    if kept["expired_at"] is not None:
        return f"expired on {local_time(kept['expired_at'])}"
    parts = []
    if kept["replicas"] > 1:
        has = "none yet" if kept["copies"] is None else f"{kept['copies']} exist"
        parts.append(f"{kept['replicas']} copies on nodes ({has})")
    if kept["path"] is not None:
        parts.append(f"one below {kept['path']}" + ("" if kept["shared"] else " (not complete)"))
    if kept["expires_in_s"] is not None:
        parts.append(f"expire in {format_seconds(kept['expires_in_s'])}")
    elif kept["keep_s"] is not None:
        parts.append(f"kept for {format_seconds(kept['keep_s'])} after its end")
    return "; ".join(parts) or None


def _files(view: dict[str, Any]) -> str | None:
    """Return what the runs of a job have left as text; None if nothing, or it has expired."""
    if view["results"]["expired_at"] is not None:
        return None
    left = kept_files.left_warning(view)
    skipped = kept_files.skipped_text(view)
    parts = (kept_files.kept_text(view), skipped, None if left is None else left.problem)
    return "; ".join(filter(None, parts)) or None


def _ran(task: Job) -> str | None:
    if task["ended_at"] is None or task["started_at"] is None:
        return None
    return output.duration(task["ended_at"] - task["started_at"])


def _task_state(task: Job) -> str:
    needed = task.get("needed", True)  # not of earlier releases
    return task_word(task["state"], preempted=task["preempted"] is not None, needed=needed)


_TASK_COLUMNS: dict[str, Callable[[Job], object]] = {
    "TASK": lambda task: task["ordinal"],
    "UNIT": lambda task: "surplus" if task["surplus"] else "minimum",
    "STATE": _task_state,
    "NODE": lambda task: task["node"],
    "GPU IDS": lambda task: ",".join(map(str, task["gpus"])) or None,
    "RUNS": lambda task: task["attempts"],
    "FAILURES": lambda task: task["failures"],
    "RAN": _ran,
}
_TASK_COLUMNS_OF_OTHERS = {
    heading: cell for heading, cell in _TASK_COLUMNS.items() if heading != "UNIT"
}
"""Those of tasks of jobs that are not elastic."""


def cancel(
    names: Annotated[
        list[str],
        typer.Argument(metavar="JOB[/TASK]...", help="Jobs, or single tasks of jobs: sort-3/17."),
    ],
    now: Annotated[
        bool, typer.Option("--now", help="Kill their runs without notice and grace period.")
    ] = False,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """Cancel jobs, or single tasks of jobs, whose others continue.

    Their runs get SIGTERM, and after the job's grace period SIGKILL. If one of them cannot be
    cancelled, none is.
    """
    settings = settle(state, fmt)
    targets = _targets(names)
    with settings.client() as client:
        # errors come before the question
        cancelled = answers(
            targets, lambda name: client.cancel(*targets[name], now=now, dry_run=True)
        )
        if not dry_run:
            _confirm_others(client, [answer["id"] for answer in cancelled], yes=yes)
            cancelled = answers(targets, lambda name: client.cancel(*targets[name], now=now))
    done = "would be cancelled" if dry_run else "cancelled"
    lines = [f"{answer['id']} {done}{_stopping(answer)}" for answer in cancelled]
    output.print_result(as_one("jobs", cancelled), *lines, as_json=settings.as_json)


def _targets(names: Sequence[str]) -> dict[str, tuple[str, int | None]]:
    """Return each job and task once; a task of a job that is named too ends with that."""
    problems, targets = list[Problem](), list[tuple[str, int | None]]()
    for name in dict.fromkeys(names):
        try:
            targets.append(job_and_task(name))
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(problems, code="usage")
    whole = {job for job, task in targets if task is None}
    return {
        job if task is None else f"{job}/{task}": (job, task)
        for job, task in targets
        if task is None or job not in whole
    }


def _confirm_others(client: Client, names: Sequence[str], *, yes: bool) -> None:
    """Request a confirmation for the jobs of other users and tasks of these, if there are any."""
    you, jobs = client.info()["you"], {name: name.partition("/")[0] for name in names}
    owners = {job: client.job(job)["user"] for job in dict.fromkeys(jobs.values())}
    theirs = [
        f"{name} is {owners[job]}'s {'job' if name == job else 'task'}"
        for name, job in jobs.items()
        if owners[job] != you
    ]
    if theirs:
        it = "it" if len(theirs) == 1 else "them"
        output.confirm(f"{', '.join(theirs)}; cancel {it}?", yes=yes)


def _stopping(cancelled: dict[str, Any]) -> str:
    """Return what happens to the runs of a cancelled job, or to the one of a task."""
    if cancelled["state"] != "stopping" or cancelled["dry_run"]:
        return ""
    one = "/" in cancelled["id"]
    runs, they, are = ("its run", "it", "is") if one else ("its runs", "they", "are")
    if not cancelled["grace_s"]:
        return f"; stopping: {runs} {are} killed"
    grace = format_seconds(cancelled["grace_s"])
    return f"; stopping: {runs} {'has' if one else 'have'} {grace} before {they} {are} killed"
