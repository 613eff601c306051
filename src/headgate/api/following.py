"""Following a job until it ends: its views, and the output of its tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

from headgate.base.errors import Problem, SpecError, WorldError

ENDED = ("finished", "failed", "cancelled")
"""States of jobs, and of tasks, that do not change any more."""

_RESTART_S = 60.0  # of waiting for a controller to be restarted
_STREAMS_MOST = 64  # of logs that are read at a time
_PAUSES_S = (0.02, 0.3)  # between looks: it grows while nothing changes
_T = TypeVar("_T")
View = dict[str, Any]


class FollowingClient(Protocol):
    """The part of `headgate.Client` that is used here."""

    def job(self, job: str) -> View:
        """Return one job."""

    def tasks(self, job: str) -> list[View]:
        """Return all tasks of a job."""

    def task(self, job: str, ordinal: int) -> View:
        """Return one task of a job."""

    def log(self, job: str, task: int, *, attempt: int | None, offset: int) -> View:
        """Return a piece of a run's log."""


class _Pauses:
    """Pauses between looks, which grow while nothing changes."""

    def __init__(self) -> None:
        self._next_s = _PAUSES_S[0]

    def shorten(self) -> None:
        """Begin with the shortest pause again: something has changed."""
        self._next_s = _PAUSES_S[0]

    def wait(self) -> None:
        time.sleep(self._next_s)
        self._next_s = min(1.5 * self._next_s, _PAUSES_S[1])


def changes(client: FollowingClient, job: str, *, timeout_s: float | None = None) -> Iterator[View]:
    """Yield the view of a job now and after every change, until its end.

    Continues across restarts of the controller. Raises WorldError `timeout` after `timeout_s`.
    """
    until = None if timeout_s is None else time.monotonic() + timeout_s
    pauses, last = _Pauses(), None
    while True:
        view = despite_restart(lambda: client.job(job))
        seen = {**view, "wait_s": None, "run_s": None}  # these grow
        if seen != last:
            last = seen
            pauses.shorten()
            yield view
            if view["state"] in ENDED:
                return
        if until is not None and time.monotonic() >= until:
            problem = Problem(path=job, problem=f"it has not ended within {timeout_s} s")
            raise WorldError([problem], code="timeout")
        pauses.wait()


def despite_restart(call: Callable[[], _T]) -> _T:
    """Return the result of a call, repeated for up to a minute while no controller responds."""
    since: float | None = None
    while True:
        try:
            return call()
        except WorldError as error:
            if error.code != "unreachable":
                raise
            since = since or time.monotonic()
            if time.monotonic() - since > _RESTART_S:
                raise
            time.sleep(0.5)


def shown_task(client: FollowingClient, job: str, task: int | None) -> tuple[View, int]:
    """Return the task whose output to show, and how many tasks were candidates.

    Without a number it is the first task that failed, else the first that runs, else the last that
    ran (of a gang the first), else the first.
    """
    tasks = client.tasks(job) if task is None else [client.task(job, task)]
    for state in ("failed", "running", "starting"):
        found = [t for t in tasks if t["state"] == state]
        if found:
            return found[0], len(tasks)
    ran = [t for t in tasks if t["attempts"]]
    if not ran:
        return tasks[0], len(tasks)
    is_gang = len(ran) > 1 and client.job(job)["gang"]
    return ran[0 if is_gang else -1], len(tasks)


def need_output(job: str, task: View) -> None:
    """Raise SpecError `not_finished` for a task that has not run yet."""
    if not task["attempts"]:
        needed = task.get("needed", True)  # not of earlier releases
        text = "has not run yet" if needed else "has not run: it was not needed"
        hint = f"headgate why {job}" if needed else ""
        problem = Problem(path=job, problem=f"task {task['ordinal']} of {job} {text}", hint=hint)
        raise SpecError([problem], code="not_finished")


def written(client: FollowingClient, job: str, task: int, attempt: int) -> Iterator[str]:
    """Yield the present content of a run's log in pieces."""
    offset = 0
    while True:
        piece = client.log(job, task, attempt=attempt, offset=offset)
        if not piece["text"]:
            return
        yield piece["text"]
        offset = piece["next_offset"]


def followed(
    client: FollowingClient, job: str, task: int, *, first: int, only: bool
) -> Iterator[tuple[int, str]]:
    """Yield (attempt, text) while a task writes it, from the attempt `first` on until its end.

    `only` that attempt is followed, or also later ones. An empty text means that there is none at
    present. Continues across restarts of the controller.
    """
    run, offset = first, 0
    while True:
        view = despite_restart(lambda: client.task(job, task))
        piece: View = {"text": "", "ended": False, "next_offset": 0}
        if view["attempts"] >= run:
            piece = _piece(client, job, task, run, offset)
            offset = piece["next_offset"]
        if piece["text"]:
            yield run, piece["text"]
        elif piece["ended"] and view["attempts"] > run and not only:
            run, offset = run + 1, 0  # the task runs again
        elif view["state"] in ENDED or (piece["ended"] and only):
            return
        else:
            yield run, ""


def _piece(client: FollowingClient, job: str, task: int, run: int, offset: int) -> View:
    return despite_restart(lambda: client.log(job, task, attempt=run, offset=offset))


def paused(pieces: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield the pieces that have text; wait before looking again after one without."""
    pauses = _Pauses()
    for run, text in pieces:
        if text:
            pauses.shorten()
            yield run, text
        else:
            pauses.wait()


def all_followed(client: FollowingClient, job: str) -> Iterator[tuple[int, int, str]]:
    """Yield (ordinal, attempt, text) while the tasks of a job write it, until the job ends.

    Begins with the present runs. At most 64 tasks are followed at a time, in their order; those of
    others come later, in full. Continues across restarts of the controller.
    """
    streams, over = dict[int, Iterator[tuple[int, str]]](), set[int]()
    pauses = _Pauses()
    while True:
        tasks = despite_restart(lambda: client.tasks(job))
        ended = all(task["state"] in ENDED for task in tasks)
        for task in tasks:
            ordinal = task["ordinal"]
            begun = task["attempts"] and ordinal not in streams and ordinal not in over
            if begun and len(streams) < _STREAMS_MOST:
                run = task["attempts"]
                streams[ordinal] = followed(client, job, ordinal, first=run, only=False)
        if ended and not streams:
            return
        silent = True
        for ordinal, pieces in tuple(streams.items()):
            run, text = next(pieces, (0, None))
            if text is None:
                del streams[ordinal]
                over.add(ordinal)
            elif not text:
                continue
            else:
                yield ordinal, run, text
            silent = False
        if silent:
            pauses.wait()
        else:
            pauses.shorten()


def interleaved(client: FollowingClient, job: str, tasks: int) -> Iterator[tuple[int, str]]:
    """Yield (ordinal, text) while the tasks of a job write it, through retries, until they end.

    An empty text means that none has written anything since the last look.
    """
    streams = {n: followed(client, job, n, first=1, only=False) for n in range(tasks)}
    pauses = _Pauses()
    while streams:
        silent = True
        for ordinal, pieces in tuple(streams.items()):
            _, text = next(pieces, (0, None))
            if text is None:
                del streams[ordinal]
            elif text:
                silent = False
                pauses.shorten()
                yield ordinal, text
        if silent and streams:
            yield 0, ""
            pauses.wait()
