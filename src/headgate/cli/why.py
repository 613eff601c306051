"""`headgate why`: why a job or a task waits, what its start depends on, when it may start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from headgate.base.errors import Problem, SpecError
from headgate.base.text import indented
from headgate.base.units import format_seconds, format_size
from headgate.cli import output
from headgate.cli.settings import FormatOption, StateOption, settle

View = dict[str, Any]
_MOST_DIGITS = 12
WHERE = {"node": "on the node", "rack": "in the rack", "cluster": "across racks"}


def why(
    target: Annotated[
        str, typer.Argument(metavar="JOB[/TASK]", help="A job's id, or one task of it: sort-3/17.")
    ],
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """Show the state of a job or a task, why it waits, and when it is expected to start."""
    settings = settle(state, fmt)
    job, task = _parsed(target)
    with settings.client() as client:
        explanation = client.why(job, task)
    if settings.as_json:
        output.print_json(explanation)
        return
    for line in _head(explanation, target, task):
        output.print_text(indented(line))
    facts = list(_facts(explanation, whole=task is None))
    if facts:
        output.print_text("")
        output.print_table(("WHAT", "AS THE POLICY SEES IT"), facts)
    if explanation["holders"]:
        output.print_text("")
        output.print_table(
            ("OTHERS", "GPUS", "SHARE", "WAITING TASKS"), map(_cells, explanation["holders"])
        )


def _parsed(target: str) -> tuple[str, int | None]:
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
    state = explanation["state"] + (" and archived" if explanation["archived"] else "")
    if task is None:
        counts = ", ".join(f"{n} {what}" for what, n in explanation["counts"].items())
        yield f"{target} is {state}: {counts}"
    else:
        yield f"{target} is {explanation['task']['state']}; its job is {state}"
    reason = explanation["reason"]
    if reason is not None:
        yield f"submitted {format_seconds(explanation['waits_s'])} ago"
        yield f"waits: {reason['text']}"
    else:
        yield explanation["message"] or ("no task waits" if task is None else "it does not wait")


def _facts(explanation: View, *, whole: bool) -> Iterator[tuple[str, str]]:
    run, share, task = explanation["run"], explanation["share"], explanation["task"]
    if run is not None:
        end = (
            "its end is not known yet"
            if run["ends"] is None
            else f"ends {_at(explanation, run['ends'])}"
        )
        yield "runs", f"on {run['node']} for {_since(explanation, run['since'])}; {end}"
        yield "reads", reads(run["read_bytes"])
    if share is not None and explanation["reason"] is not None:
        yield "share", _share(share)
    if task is not None and task["preempted"]:
        yield "last run", str(output.sentence(task["preempted"]))
    if task is not None and task["unfinished"]:
        yield "comes after", ", ".join(f"{explanation['job']}/{n}" for n in task["unfinished"][:8])
    if task is not None and task["state"] == "waiting":
        if whole:
            yield "task", f"{explanation['job']}/{task['ordinal']}, the first that waits"
        now, best, freed = (
            explanation["cheapest_now"],
            explanation["cheapest"],
            explanation["if_freed"],
        )
        yield "best placement now", "no place is free" if now is None else _place(explanation, now)
        yield (
            "best placement (any GPU)",
            "no node fits it" if best is None else _place(explanation, best),
        )
        if freed is not None:
            yield f"if {freed['ends']} ended now", _freed(explanation, freed)
    if explanation["start"] is not None:
        yield "expected", expected_start(explanation, explanation["start"])


def _share(share: View) -> str:
    of = "" if share["share_gpus"] is None else f" of the {share['share_gpus']} GPUs of its share"
    wait = "" if share["wait_s"] is None else f"; waiting costs {format_seconds(share['wait_s'])}"
    return f"holds {share['held_gpus']}{of}; eligible for {share['may_win_gpus']} more{wait}"


def _place(explanation: View, place: View) -> str:
    memory = place["gpu_memory_bytes"]
    gpu = "" if memory is None else f" ({place['gpu_model'] or 'GPU'}, {format_size(memory)})"
    held = ""
    if place["held_by"] is not None:
        until = place["held_until"]
        end = "" if until is None else f", which ends {_at(explanation, until)}"
        held = f"; held by {place['held_by']}{end}"
    read = reads(place["read_bytes"])
    return f"{place['node']}{gpu} at {format_seconds(place['cost_s'])}: {read}{held}"


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
        text = f"{taken} would take that GPU" if taken else "no task would take that GPU"
        on = freed["starts_on"]
        text += "; it would still wait" if on is None else f"; it would start on {on}"
    price = freed["price_s"]
    return f"{text}; the GPU would be worth {format_seconds(price)}" if price else text


def expected_start(explanation: View, start: View) -> str:
    """Return the text of an expected start."""
    if start["at"] is None:
        if start["unknown_runs"]:
            runs = output.counted(start["unknown_runs"], "running task")
            return f"unknown: no run-time history yet for {runs}"
        return f"not within the next {format_seconds(start['until'] - explanation['now'])}"
    after = "" if start["after"] is None else f", when {start['after']} has ended"
    return f"{start['task']} starts {_between(explanation, start)} on {start['node']}{after}"


def _between(explanation: View, start: View) -> str:
    """Return the interval of an expected start, or its time where that says as much."""
    now = explanation["now"]
    soonest = format_seconds(max(0.0, start["earliest"] - now))
    latest = start["latest"]
    until = "or later" if latest is None else f"to {format_seconds(max(0.0, latest - now))}"
    if until == f"to {soonest}":
        return _at(explanation, start["at"])
    likely = format_seconds(max(0.0, start["at"] - now))
    return f"in {soonest} {until} (80 %), most likely {likely},"


def _at(explanation: View, at: float) -> str:
    ahead_s = at - explanation["now"]
    return "any moment now" if ahead_s < 0.05 else f"in about {format_seconds(ahead_s)}"


def _since(explanation: View, since: float) -> str:
    return format_seconds(max(0.0, explanation["now"] - since))


def _cells(holder: View) -> tuple[object, ...]:
    return holder["job"], holder["held_gpus"], holder["share_gpus"], holder["waiting_tasks"]
