"""The verb `run`: one command as a job, with its output here."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headgate.api import following
from headgate.api.programs import job_of_command
from headgate.base.errors import HeadgateError
from headgate.base.states import JOB_WORDS, PENDING
from headgate.base.text import visible
from headgate.cli.common import output, tables
from headgate.cli.common.errors import OUTCOMES, interrupted
from headgate.cli.common.settings import FormatOption, ProgramSettings, StateOption, settle
from headgate.cli.data.kept_files import show_kept
from headgate.cli.jobs.command_options import JobOptions, with_job_options
from headgate.cli.jobs.logs import LabelledLines, writer
from headgate.cli.jobs.option_places import option_places
from headgate.cli.jobs.programs import command_of
from headgate.cli.jobs.stdin import unread_stdin

if TYPE_CHECKING:
    from headgate.api.client import Client

View = dict[str, Any]
_CLEAR = "\r\x1b[K"
_SHOWN_KEPT = 1 << 16  # characters: more than a message has of a log


@with_job_options
def run(
    options: JobOptions,
    command: Annotated[
        list[str], typer.Argument(metavar="-- CMD...", help="The program and its arguments.")
    ],
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """Run a command as a job and show its output.

    The exit code is the outcome of the job. The first Ctrl-C cancels the job and waits for its end,
    the second one does not wait.
    """
    from headgate.api.sending import send_files

    settings = settle(state, fmt)
    keys = options.keys()
    place, variables = keys.get("working_dir"), keys.get("envs", {})
    words, warnings = command_of(command, working_dir=place, variables=variables)
    job_file = job_of_command(words, **keys)
    with settings.client() as client:
        with option_places(options):
            text, unsent = send_files(client, job_file, base=Path.cwd(), here=True)
        if not settings.as_json:
            unread = () if options.stdin else unread_stdin(pipes=True)
            for warning in (*warnings, *unsent, *unread):
                output.warn(warning)
        with option_places(options):
            job = _submitted(client, text, options.after or ())
        with _cancelling(client, job):
            tasks = keys.get("num_nodes") or keys.get("count") or 1
            shown = dict[int, str]()
            view = _follow(client, job, tasks, settings, shown)
    if settings.as_json:
        output.print_json(view)
    else:
        _print_end(view, shown)
    raise typer.Exit(OUTCOMES[view["state"]])


def _print_end(view: View, shown: Mapping[int, str]) -> None:
    """Print how a job ended, unless it finished, and which files of it are kept."""
    if view["state"] != "finished":
        reason = f": {_unshown(view['message'], shown)}" if view["message"] else ""
        output.print_note(f"{view['id']} {JOB_WORDS[view['state']]}{reason}")
    show_kept(view)


def _submitted(client: Client, text: str, after: Sequence[str]) -> str:
    """Submit a job file; when interrupted meanwhile, cancel what may have been submitted."""
    key = str(uuid.uuid4())
    try:
        return client.submit(text, key=key, after=after)
    except (KeyboardInterrupt, SystemExit) as end:
        try:
            job = client.submit(text, key=key, after=after)  # the same job
            client.cancel(job)
        except HeadgateError:
            raise end from None
        if isinstance(end, KeyboardInterrupt):
            raise interrupted(f"job {job} was cancelled") from None
        raise


@contextmanager
def _cancelling(client: Client, job: str) -> Iterator[None]:
    """Cancel the job when its user or a signal ends this program."""
    try:
        yield
    except KeyboardInterrupt:
        pass
    except SystemExit:  # a signal
        with suppress(HeadgateError):
            client.cancel(job)
        raise
    else:
        return
    try:
        output.print_note(f"cancelling {job}; Ctrl-C again to leave before it has ended")
        with suppress(HeadgateError):  # it has ended
            client.cancel(job)
        show_kept(client.wait(job))
    except KeyboardInterrupt:
        raise interrupted(f"job {job} is being cancelled") from None
    raise interrupted(f"job {job} was cancelled")


def _unshown(message: str, shown: Mapping[int, str]) -> str:
    """Return a message without the last lines of a log in it, where that has been printed."""
    lines = message.rstrip().splitlines()
    for count in range(1, len(lines)):
        end = "\n".join(lines[count:])
        if any("\n".join(log.splitlines()).rstrip().endswith(end) for log in shown.values()):
            return "\n".join(lines[:count])
    return message


def _follow(
    client: Client, job: str, tasks: int, settings: ProgramSettings, shown: dict[int, str]
) -> View:
    """Show the output of all tasks until the job ends, and return its view.

    The end of the output of each task is added to `shown`.
    """
    line = _PendingLine(client, job, hidden=settings.as_json or not sys.stderr.isatty())
    write = writer(sys.stderr if settings.as_json else None)
    labelled = LabelledLines(write) if tasks > 1 else None
    try:
        for ordinal, text in following.interleaved(client, job, tasks):
            if not text:
                line.show()
                continue
            line.clear()
            shown[ordinal] = (shown.get(ordinal, "") + text)[-_SHOWN_KEPT:]
            if labelled is not None:
                labelled.write(ordinal, text)
            else:
                write(text)
    finally:
        line.clear()
        if labelled is not None:
            labelled.end()
    return client.wait(job)


class _PendingLine:
    """A line on the terminal that shows why a job is pending."""

    def __init__(self, client: Client, job: str, *, hidden: bool) -> None:
        self._client, self._job, self._hidden = client, job, hidden
        self._shown = ""

    def show(self) -> None:
        """Show why the job waits now; nothing while all its tasks run."""
        if self._hidden:
            return
        view = following.despite_restart(lambda: self._client.job(self._job))
        pending = view["state"] == "queued" or view["tasks"].get("waiting")
        if not pending or view["state"] in following.ENDED:
            self.clear()
            return
        reason = output.sentence(view["reason"])
        text = visible(f"{self._job}: {PENDING}" + (f" ({reason})" if reason else ""))
        text = tables.cropped(text, output.columns(sys.stderr) - 1)  # a second row would remain
        if text != self._shown:
            self._shown = text
            print(f"{_CLEAR}{text}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Remove the line."""
        if self._shown:
            self._shown = ""
            print(_CLEAR, end="", file=sys.stderr, flush=True)
