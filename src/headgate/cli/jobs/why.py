"""`headgate why`: why a job or a task waits, what its start depends on, when it may start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from headgate.base.errors import Problem, SpecError
from headgate.base.states import job_word, task_word, tasks_by_word
from headgate.base.units import format_seconds, format_size
from headgate.cli.cluster.show import stand_in_lines
from headgate.cli.common import output
from headgate.cli.common.settings import FormatOption, StateOption, settle
from headgate.cli.common.stops import stop_text
from headgate.cli.common.times import in_local_time
from headgate.cli.jobs.sizing import sizing_facts
from headgate.cli.jobs.units import unneeded_of

View = dict[str, Any]
_MOST_DIGITS = 12
_MOVES_SHOWN = 4
WHERE = {"node": "on the node", "rack": "in the rack", "cluster": "across racks"}


def why(
    target: Annotated[
        str, typer.Argument(metavar="JOB[/TASK]", help="A job, or one of its tasks: sort-3/17.")
    ],
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """Show why a job or a task is pending, and its expected start."""
    settings = settle(state, fmt)
    job, task = job_and_task(target)
    with settings.client() as client:
        explanation = client.why(job, task)
    if settings.as_json:
        output.print_json(explanation)
        return
    for line in (*_head(explanation, target, task), *stand_in_lines(explanation)):
        output.print_wrapped(line)
    output.print_facts((*_facts(explanation, whole=task is None), *sizing_facts(explanation)))
    if explanation["holders"]:
        output.print_text("")
        output.print_table(
            ("OTHER JOBS", "GPUS", "FAIR SHARE", "PENDING TASKS"),
            map(_cells, explanation["holders"]),
            names=("OTHER JOBS",),
        )


def job_and_task(target: str) -> tuple[str, int | None]:
    """Return the job and the number of the task of `JOB/TASK`; SpecError `usage`."""
    job, slash, ordinal = target.rpartition("/")
    if not slash:
        return target, None
    if not (ordinal.isascii() and ordinal.isdigit() and len(ordinal) <= _MOST_DIGITS):
        hint = "write JOB, or JOB/TASK with the task's number"
        problem = Problem(
            path=target, problem=f"'{ordinal}' is not the number of a task", hint=hint
        )
        raise SpecError([problem], code="usage")
    return job, int(ordinal)


def _head(explanation: View, target: str, task: int | None) -> Iterator[str]:
    counts, preempted = explanation["counts"], explanation["preempted_tasks"]
    state = job_word(explanation["state"], counts, preempted)
    archived = ", archived" if explanation["archived"] else ""
    if task is None:
        words = tasks_by_word(counts, preempted, unneeded_of(explanation))
        yield f"{target}: {state}{archived} ({_tasks(words, state)})"
    else:
        named = explanation["task"]
        word = task_word(
            named["state"],
            preempted=named["preempted"] is not None,
            needed=named.get("needed", True),  # not of earlier releases
        )
        surplus = ", surplus" if named.get("surplus") else ""
        yield f"{target}: {word}{surplus} (job: {state}{archived})"
    reason = explanation["reason"]
    if reason is not None:
        yield f"Submitted: {format_seconds(explanation['waits_s'])} ago"
        yield f"Reason: {in_local_time(reason['text'])}"
    elif explanation["message"]:
        yield f"Message: {explanation['message']}"


def _tasks(counts: dict[str, int], state: str) -> str:
    """Return numbers of tasks by state as text; without the state where all are as their job."""
    if set(counts) == {state}:
        return output.counted(counts[state], "task")
    return "tasks: " + ", ".join(f"{count} {word}" for word, count in counts.items())


def _facts(explanation: View, *, whole: bool) -> Iterator[tuple[str, str]]:
    run, share, task = explanation["run"], explanation["share"], explanation["task"]
    if run is not None:
        ends = "unknown" if run["ends"] is None else _at(explanation, run["ends"])
        yield "Runs", f"on {run['node']} for {_since(explanation, run['since'])}"
        yield "Expected end", ends
        yield "Reads", reads(run["read_bytes"])
    if share is not None and explanation["reason"] is not None:
        yield "Share", _share(share, explanation)
    if task is not None and task.get("stopped"):
        yield "Last stop", stop_text(task["stopped"])
    if task is not None and task["unfinished"]:
        yield "Depends on", ", ".join(f"{explanation['job']}/{n}" for n in task["unfinished"][:8])
    if task is not None and task["state"] == "waiting":
        if whole:
            yield "Task", f"{explanation['job']}/{task['ordinal']}, the first pending one"
        now, best, freed = (
            explanation["cheapest_now"],
            explanation["cheapest"],
            explanation["if_freed"],
        )
        yield "Best free place", "none" if now is None else _place(explanation, now)
        yield "Best place", "none: no node fits it" if best is None else _place(explanation, best)
        if freed is not None:
            yield f"If {freed['ends']} ended now", _freed(explanation, freed)
    if explanation["room_by_moves"] is not None:
        yield "Moves", _moves(explanation["room_by_moves"])
    if explanation["start"] is not None:
        yield "Expected start", expected_start(explanation, explanation["start"])


def _share(share: View, explanation: View) -> str:
    of = "" if share["share_gpus"] is None else f", fair share {share['share_gpus']}"
    wait = "" if share["wait_s"] is None else f"; waiting costs {format_seconds(share['wait_s'])}"
    held = output.counted(share["held_gpus"], "GPU")
    may_win: int = share["may_win_gpus"]
    until = "" if may_win else f" {_until(explanation)}"
    return f"{held} allocated{of}; eligible for {may_win} more{until}{wait}"


def _until(explanation: View) -> str:
    """Return until when a job is eligible for no more GPUs: the end of a run, where it is known."""
    start = explanation["start"]
    if start is not None and start["after"] is not None:
        return f"until {start['after']} has ended, expected {_at(explanation, start['at'])}"
    return f"now: {explanation['reason']['way_out']}"


def _place(explanation: View, place: View) -> str:
    memory = place["gpu_memory_bytes"]
    gpu = "" if memory is None else f" ({place['gpu_model'] or 'GPU'}, {format_size(memory)})"
    held = ""
    if place["held_by"] is not None:
        until = place["held_until"]
        end = "" if until is None else f", which ends {_at(explanation, until)}"
        held = f"; allocated to {place['held_by']}{end}"
    read = reads(place["read_bytes"])
    return f"{place['node']}{gpu}, cost {format_seconds(place['cost_s'])}: {read}{held}"


def reads(read_bytes: View) -> str:
    """Return bytes by locality as text."""
    parts = [f"{format_size(size)} {WHERE[where]}" for where, size in read_bytes.items() if size]
    return ", ".join(parts) or "nothing to read"


def _freed(explanation: View, freed: View) -> str:
    mine = f"{explanation['job']}/{explanation['task']['ordinal']}"
    if freed["taken_by"] == mine:
        text = "it would start there"
    else:
        taken = freed["taken_by"]
        text = f"{taken} would get that GPU" if taken else "no task would get that GPU"
        on = freed["starts_on"]
        text += "; it would stay pending" if on is None else f"; it would start on {on}"
    price = freed["price_s"]
    return f"{text}; the GPU would be worth {format_seconds(price)}" if price else text


def _moves(room: View) -> str:
    more = len(room["tasks"]) - _MOVES_SHOWN
    return ", ".join(room["tasks"][:_MOVES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def expected_start(explanation: View, start: View) -> str:
    """Return the text of an expected start."""
    if start["at"] is None:
        return _no_start(start, start["until"] - explanation["now"])
    after = "" if start["after"] is None else f", when {start['after']} has ended"
    runs = output.counted(start["unknown_runs"], "running task")
    guess = f"; no run-time history yet for {runs}" if start["unknown_runs"] else ""
    return f"{start['task']} {_between(explanation, start)} on {start['node']}{after}{guess}"


def _no_start(start: View, ahead_s: float) -> str:
    """Return why no start is expected within the time that is foreseen."""
    still = f": {start['still']['text']}" if start["still"] else ""
    if not start["ends"]:
        return f"unknown, as no run ends before{still}"
    ended = f"{output.counted(start['ends'], 'run')} will have ended"
    return f"not within the next {format_seconds(ahead_s)}, when {ended}{still}"


def _between(explanation: View, start: View) -> str:
    """Return the interval of an expected start, or its time where that says as much."""
    now = explanation["now"]
    soonest = format_seconds(max(0.0, start["earliest"] - now))
    latest = format_seconds(max(0.0, start["latest"] - now))
    if latest == soonest:
        return _at(explanation, start["at"])
    likely = format_seconds(max(0.0, start["at"] - now))
    return f"in {soonest} to {latest} (80 %; most likely {likely})"


def _at(explanation: View, at: float) -> str:
    ahead_s = at - explanation["now"]
    return "now" if ahead_s < 0.05 else f"in about {format_seconds(ahead_s)}"


def _since(explanation: View, since: float) -> str:
    return format_seconds(max(0.0, explanation["now"] - since))


def _cells(holder: View) -> tuple[object, ...]:
    return holder["job"], holder["held_gpus"], holder["share_gpus"], holder["waiting_tasks"]
