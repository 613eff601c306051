"""The verb queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from headgate.base.errors import Problem, SpecError, nearest
from headgate.base.units import format_seconds, format_size
from headgate.cli.common import output
from headgate.cli.common.settings import (
    DryRunOption,
    FormatOption,
    ProgramSettings,
    StateOption,
    YesOption,
    settle,
)
from headgate.model.queue import GPUS_KIND

_ACTIONS = {"apply": ("FILE",), "assign": ("JOB", "QUEUE")}
_HEADINGS = (
    "QUEUE",
    "STATE",
    "WEIGHT",
    "GPUS",
    "GUARANTEED",
    "MAX GPUS",
    "JOBS IN FLIGHT",
    "QUEUED",
)
_MORE = (
    "BORROWED",
    "LENT",
    "RECLAIMED",
    "MAX JOBS",
    "GUARANTEED BESIDE",
    "LIMIT",
    "PER USER",
    "BORROWS",
    "LENDS",
    "LABELS",
    "TYPES",
)


def queues(
    action: Annotated[
        str | None, typer.Argument(metavar="[ACTION]", help="apply FILE, or assign JOB QUEUE.")
    ] = None,
    names: Annotated[list[str] | None, typer.Argument(metavar="...", hidden=True)] = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """List the queues, change them, or move a job to another one.

    apply FILE shows what would change, asks, and has the queues of the file and no others; for
    administrators. assign JOB QUEUE moves a job; its runs continue.
    """
    settings = settle(state, fmt)
    given = names or []
    if action is None:
        _show(settings)
        return
    if action not in _ACTIONS:
        text, hint = f"there is no action '{action}'", nearest(action, _ACTIONS)
        raise SpecError([Problem(path="queues", problem=text, hint=hint)], code="usage")
    wanted = _ACTIONS[action]
    if len(given) != len(wanted):
        text = f"takes {' and '.join(wanted)}"
        raise SpecError([Problem(path=f"queues {action}", problem=text)], code="usage")
    if action == "apply":
        _apply(settings, Path(given[0]), yes=yes, dry_run=dry_run)
    else:
        _assign(settings, *given, dry_run=dry_run)


def _apply(settings: ProgramSettings, file: Path, *, yes: bool, dry_run: bool) -> None:
    """Show what a file changes, and put it in force."""
    from headgate.spec.document import read_text
    from headgate.spec.queues import load_queues

    load_queues(file)
    text = read_text(file)
    with settings.client() as client:
        found = client.set_queues(text, dry_run=True)
        lines = _difference(found)
        if lines and not dry_run:
            if not settings.as_json:
                for line in lines:
                    output.print_text(line)
            output.confirm("change the queues so?", yes=yes)
            found = client.set_queues(text)
            lines = []
    done = ["the queues are those of the file"]
    output.print_result(found, *(lines or done), as_json=settings.as_json)


def _assign(settings: ProgramSettings, job: str, queue: str, *, dry_run: bool) -> None:
    with settings.client() as client:
        found = client.assign(job, queue, dry_run=dry_run)
    does = "would be" if dry_run else "is"
    output.print_result(found, f"{job} {does} in queue {queue}", as_json=settings.as_json)


def _difference(found: Mapping[str, Any]) -> list[str]:
    """Return what changes, a line for each queue."""
    lines = [f"+ {name}" for name in found["added"]]
    for name, keys in found["changed"].items():
        changes = [f"{key} {_value(old)} -> {_value(new)}" for key, (old, new) in keys.items()]
        lines.append(f"~ {name}: {', '.join(changes)}")
    return lines + [f"- {name}" for name in found["removed"]]


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return _amounts(value) or "none"
    if value in (None, "", [], ()):
        return "none"
    if isinstance(value, list):
        return " ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _show(settings: ProgramSettings) -> None:
    with settings.client() as client:
        found = client.queues()
    if settings.as_json:
        output.print_json({"queues": found})
        return
    rows = [(name, *_cells(queue)) for name, queue in zip(names_in_tree(found), found, strict=True)]
    if settings.wide:
        wide = [(*row, *_more(queue)) for row, queue in zip(rows, found, strict=True)]
        output.print_table((*_HEADINGS, *_MORE), wide)
    else:
        output.print_table(_HEADINGS, rows)


def names_in_tree(queues: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of queues, each indented by how many are above it."""
    depth: dict[str, int] = {}
    for queue in queues:
        depth[queue["name"]] = depth.get(queue["parent"], -1) + 1
    return ["  " * depth[queue["name"]] + queue["name"] for queue in queues]


def _cells(queue: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        *(queue["state"], f"{queue['weight']:g}", queue["held_gpus"]),
        queue["guaranteed"].get(GPUS_KIND),
        *(queue["max_gpus"], queue["in_flight"], queue["queued"]),
    )


def _more(queue: Mapping[str, Any]) -> tuple[object, ...]:
    guaranteed = {kind: each for kind, each in queue["guaranteed"].items() if kind != GPUS_KIND}
    return (
        loan_text(queue["borrowed_gpus"], "from"),
        loan_text(queue["lent_gpus"], "to"),
        _reclaimed(queue["reclaimed"]),
        queue["max_jobs_in_flight"],
        *(_amounts(each) for each in (guaranteed, queue["limit"], queue["per_user"])),
        _amounts(queue["borrow_limit"]),
        "yes" if queue["lend"] else "no",
        *(", ".join(queue[key]) or None for key in ("labels", "types")),
    )


def _reclaimed(back: Mapping[str, Any]) -> str | None:
    """Return how many runs of borrowers it had stopped, and the GPU time that these lost."""
    if not back["count"]:
        return None
    return (
        f"{output.counted(back['count'], 'run')}, {format_seconds(back['lost_gpu_s'])} of GPUs lost"
    )


def loan_text(gpus: Mapping[str, float], word: str) -> str | None:
    """Return the text of GPUs by the queues that they are from, or went to."""
    return ", ".join(f"{count:g} {word} {name}" for name, count in gpus.items()) or None


def _amounts(amounts: Mapping[str, float]) -> str | None:
    """Return the text of amounts by kind."""
    words = [
        f"{format_size(int(amount))} memory" if kind == "memory_bytes" else f"{amount:g} {kind}"
        for kind, amount in amounts.items()
    ]
    return ", ".join(words) or None
