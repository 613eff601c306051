"""`headgate why`: where a job or a task stands, what decides about it, and when it may start."""

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
WHERE = {"node": "on the node", "rack": "in the rack", "cluster": "across racks"}


def why(
    target: Annotated[
        str, typer.Argument(metavar="JOB[/TASK]", help="A job's id, or one task of it: sort-3/17.")
    ],
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """Say where a job or a task stands, why it waits, and when it is expected to start."""
    settings = settle(state, fmt)
    job, task = _parsed(target)
    with settings.client() as client:
        told = client.explanation(job, task)
    if settings.as_json:
        output.print_json(told)
        return
    for line in _head(told, target, task):
        output.say(indented(line))
    facts = list(_facts(told, whole=task is None))
    if facts:
        output.say("")
        output.print_table(("WHAT", "AS THE POLICY SEES IT"), facts)
    if told["holders"]:
        output.say("")
        output.print_table(
            ("OTHERS", "GPUS", "SHARE", "WAITING TASKS"), map(_cells, told["holders"])
        )


def _parsed(target: str) -> tuple[str, int | None]:
    job, slash, ordinal = target.rpartition("/")
    if not slash:
        return target, None
    if not (ordinal.isascii() and ordinal.isdigit()):
        hint = "write JOB, or JOB/TASK with the task's number"
        problem = Problem(path=target, problem=f"'{ordinal}' is no number of a task", hint=hint)
        raise SpecError([problem], code="usage")
    return job, int(ordinal)


def _head(told: View, target: str, task: int | None) -> Iterator[str]:
    state = told["state"] + (" and archived" if told["archived"] else "")
    if task is None:
        counts = ", ".join(f"{n} {what}" for what, n in told["counts"].items())
        yield f"{target} is {state}: {counts}"
    else:
        yield f"{target} is {told['task']['state']}; its job is {state}"
    reason = told["reason"]
    if reason is not None:
        yield f"submitted {format_seconds(told['waits_s'])} ago"
        yield f"{reason['code']}: {reason['text']}"
    else:
        yield told["message"] or ("nothing of it waits" if task is None else "it does not wait")


def _facts(told: View, *, whole: bool) -> Iterator[tuple[str, str]]:
    run, share, task = told["run"], told["share"], told["task"]
    if run is not None:
        end = (
            "its end is not known yet" if run["ends"] is None else f"ends {_at(told, run['ends'])}"
        )
        yield "runs", f"on {run['node']} for {_since(told, run['since'])}; {end}"
        yield "reads", reads(run["read_bytes"])
    if share is not None and told["reason"] is not None:
        yield "share", _share(share)
    if task is not None and task["preempted"]:
        yield "last run", task["preempted"]
    if task is not None and task["unfinished"]:
        yield "comes after", ", ".join(f"{told['job']}/{n}" for n in task["unfinished"][:8])
    if task is not None and task["state"] == "waiting":
        if whole:
            yield "task", f"{told['job']}/{task['ordinal']}, the first that waits"
        now, best, freed = told["cheapest_now"], told["cheapest"], told["if_freed"]
        yield "cheapest now", "no place is free" if now is None else _place(told, now)
        yield "cheapest ever", "no node fits it" if best is None else _place(told, best)
        if freed is not None:
            yield f"if {freed['ends']} ended now", _freed(told, freed)
    if told["start"] is not None:
        yield "expected", _start(told, told["start"])


def _share(share: View) -> str:
    of = "" if share["share_gpus"] is None else f" of the {share['share_gpus']} GPUs of its share"
    wait = "" if share["wait_s"] is None else f"; waiting costs {format_seconds(share['wait_s'])}"
    return (
        f"holds {share['held_gpus']}{of}; may win {share['may_win_gpus']} more where they are free"
        f"{wait}"
    )


def _place(told: View, place: View) -> str:
    memory = place["gpu_memory_bytes"]
    gpu = "" if memory is None else f" ({place['gpu_model'] or 'GPU'}, {format_size(memory)})"
    held = ""
    if place["held_by"] is not None:
        until = place["held_until"]
        end = "" if until is None else f", which ends {_at(told, until)}"
        held = f"; held by {place['held_by']}{end}"
    read = reads(place["read_bytes"])
    return f"{place['node']}{gpu} at {format_seconds(place['cost_s'])}: {read}{held}"


def reads(read_bytes: View) -> str:
    """Return bytes by where they lie, in words."""
    parts = [f"{format_size(size)} {WHERE[where]}" for where, size in read_bytes.items() if size]
    return ", ".join(parts) or "nothing to read"


def _freed(told: View, freed: View) -> str:
    mine = f"{told['job']}/{told['task']['ordinal']}"
    if freed["taken_by"] == mine:
        text = "it would start there"
    else:
        taken = freed["taken_by"]
        text = f"{taken} would take that GPU" if taken else "nobody would take that GPU"
        on = freed["starts_on"]
        text += "; it would wait on" if on is None else f"; it would start on {on}"
    price = freed["price_s"]
    return text if price is None else f"{text}; the GPU would be worth {format_seconds(price)}"


def _start(told: View, start: View) -> str:
    if start["at"] is None:
        unknown = output.counted(start["unknown_runs"], "run")
        if start["unknown_runs"]:
            return f"cannot be told: nobody knows yet when {unknown} will end"
        return f"not within the next {format_seconds(start['until'] - told['now'])}"
    after = "" if start["after"] is None else f", when {start['after']} has ended"
    return f"{start['task']} starts {_at(told, start['at'])} on {start['node']}{after}"


def _at(told: View, at: float) -> str:
    ahead_s = at - told["now"]
    return "any moment now" if ahead_s < 0.05 else f"in about {format_seconds(ahead_s)}"


def _since(told: View, since: float) -> str:
    return format_seconds(max(0.0, told["now"] - since))


def _cells(holder: View) -> tuple[object, ...]:
    return holder["job"], holder["held_gpus"], holder["share_gpus"], holder["waiting_tasks"]
