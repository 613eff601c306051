"""Results of jobs, written to files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.base.errors import HeadgateError, Problem, SpecError, WorldError
from headgate.base.states import JOB_WORDS
from headgate.base.units import format_size
from headgate.cli.common import output
from headgate.cli.common.settings import ProgramSettings

if TYPE_CHECKING:
    from headgate.api.client import Client

View = Mapping[str, Any]
_MOST_NAMED = 20


def fetch(
    client: Client, job: str, task: int | None, target: str, settings: ProgramSettings
) -> None:
    """Write the result of a job or a task to a file; those of all tasks into a directory.

    A directory is one that exists or ends with a slash, and the target for an array.
    """
    place = Path(target)
    if task is None:
        view = client.job(job)
        if target.endswith("/") or place.is_dir() or view.get("array"):  # not of earlier releases
            _fetch_all(client, view, place, settings)
            return
    size_bytes = _fetch(client, job, task, place)
    facts = {"job": job, "task": task, "output": str(place), "size_bytes": size_bytes}
    text = f"{format_size(size_bytes)} written to {place}"
    output.print_result(facts, text, as_json=settings.as_json)


def _fetch_all(client: Client, view: View, place: Path, settings: ProgramSettings) -> None:
    """Write the result of each task to a file named after its number; errors name the others."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

    job, tasks = view["id"], client.tasks(view["id"])
    tasks = [task for task in tasks if task.get("needed", True)]  # not of earlier releases
    finished = [task["ordinal"] for task in tasks if task["state"] == "finished"]
    missing = sorted({task["ordinal"] for task in tasks} - {*finished})
    if finished:
        _make(place)
    total_bytes, failed = 0, dict[int, HeadgateError]()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with output.progress(*columns, as_json=settings.as_json) as progress:
        for ordinal in progress.track(finished, description="results"):
            try:
                total_bytes += _fetch(client, job, ordinal, place / str(ordinal))
            except WorldError as error:
                failed[ordinal] = error
    written = len(finished) - len(failed)
    count = output.counted(written, "result")
    done = f"{count}, {format_size(total_bytes)}, written to {place}" if written else "none written"
    if missing:
        raise _missing(view, missing, done)
    if failed:
        texts = [f"{error}" for error in failed.values()]
        text = f"{_named(failed)} not fetched: {texts[0]}; {done}"
        raise WorldError([Problem(path=job, problem=text)], code=next(iter(failed.values())).code)
    facts = {"job": job, "output": str(place), "results": written, "size_bytes": total_bytes}
    output.print_result(facts, done, as_json=settings.as_json)


def _missing(view: View, missing: Sequence[int], done: str) -> SpecError:
    state = view["state"]
    code = state if state in ("failed", "cancelled") else "not_finished"
    is_over = "is " + JOB_WORDS[state] if state in JOB_WORDS and state != "active" else "runs"
    verb = "has" if len(missing) == 1 else "have"
    text = f"{_named(missing)} {verb} no result, the job {is_over}; {done}"
    return SpecError(
        [Problem(path=view["id"], problem=text, hint=f"headgate why {view['id']}")], code=code
    )


def _named(ordinals: Iterable[int]) -> str:
    """Return numbers of tasks as text: `task 3`, `tasks 1, 4-6`."""
    numbers = sorted(ordinals)
    parts = []
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        group = [number for _, number in run]
        parts.append(f"{group[0]}-{group[-1]}" if len(group) > 1 else f"{group[0]}")
    more = f" and {len(parts) - _MOST_NAMED} more ranges" if len(parts) > _MOST_NAMED else ""
    return f"task{'' if len(numbers) == 1 else 's'} " + ", ".join(parts[:_MOST_NAMED]) + more


def _make(place: Path) -> None:
    try:
        place.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        text, hint = "is no directory, and the job has a result of each task", "--task N for one"
        raise SpecError([Problem(path=str(place), problem=text, hint=hint)]) from None
    except OSError as error:
        raise _unwritable(place, error) from None


def _fetch(client: Client, job: str, task: int | None, target: Path) -> int:
    """Write a result to a file, atomically; return its size in bytes.

    Pipes and devices are written to directly. Raises SpecError when the file cannot be written.
    """
    place = Path(os.path.realpath(target))
    whole = place.is_file() or not place.exists()
    draft = place.with_name(f".{place.name}.part") if whole else place
    size_bytes = 0
    try:
        with draft.open("wb") as file:
            for piece in client.result(job, task):
                size_bytes += file.write(piece)
        if whole:
            draft.replace(place)
    except OSError as error:
        raise _unwritable(target, error) from None
    finally:
        if whole:
            draft.unlink(missing_ok=True)
    return size_bytes


def _unwritable(place: Path, error: OSError) -> SpecError:
    return SpecError([Problem(path=str(place), problem=f"cannot be written: {error.strerror}")])
