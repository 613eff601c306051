"""Errors of the command line: as text or as one JSON object, with an exit code."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from shutil import get_terminal_size

from headgate.api.errors import error_body
from headgate.base.errors import HeadgateError, Problem, SpecError, WorldError
from headgate.base.text import indented, visible, visible_values
from headgate.cli.common.tables import wrapped
from headgate.cli.common.times import in_local_time

OK, OUTSIDE, USAGE, FAILED, NOT_FINISHED, CANCELLED, INTERRUPTED = 0, 1, 2, 100, 101, 103, 130
OUTCOMES = {"finished": OK, "failed": FAILED, "cancelled": CANCELLED}
"""Exit codes of verbs that wait for a job, by how it ended."""

PIPE_CLOSED = 141  # the shell's code for a program ended by SIGPIPE
_EXIT_CODES = {
    "failed": FAILED,
    "not_finished": NOT_FINISHED,
    "not_found": 102,
    "expired": 102,
    "cancelled": CANCELLED,
    "rejected": 104,
    "infeasible": 105,
    "interrupted": INTERRUPTED,
}


def exit_code_of(error: HeadgateError) -> int:
    """Return the exit code of an error; docs/cli.md lists them."""
    if error.code in _EXIT_CODES:
        return _EXIT_CODES[error.code]
    return USAGE if isinstance(error, SpecError) else OUTSIDE


def requested_format(arguments: Sequence[str]) -> str | None:
    """Return the format that a command line requests, also an invalid one; None without one."""
    chosen = None
    for position, argument in enumerate(arguments):
        following = arguments[position + 1] if position + 1 < len(arguments) else ""
        if argument == "--":
            break
        if argument in ("-o", "--format"):
            chosen = following
        elif argument.startswith("--format="):
            chosen = argument.partition("=")[2]
        elif argument.startswith("-o") and argument[2:]:
            chosen = argument[2:]
    return chosen


def need_no_empty(arguments: Sequence[str]) -> None:
    """Raise SpecError `usage` for an empty argument: only a program to run accepts one."""
    for position, argument in enumerate(arguments, start=1):
        if argument == "--":
            return
        option, equals, value = argument.partition("=")
        if not argument or (option.startswith("--") and equals and not value):
            before = arguments[position - 2] if position > 1 else ""
            after = f", after {before}" if before.startswith("-") and "=" not in before else ""
            path = option or f"argument {position}{after}"
            hint = "a variable of the shell may not be set"
            raise SpecError([Problem(path=path, problem="is empty", hint=hint)], code="usage")


def report(error: HeadgateError, *, as_json: bool) -> int:
    """Print an error on stderr and return its exit code."""
    if as_json:
        print(json.dumps(visible_values(error_body(error))), file=sys.stderr)
        return exit_code_of(error)
    for problem in error.problems:
        line = "" if problem.line is None else f" (line {problem.line})"
        place = f"{problem.path}{line}: " if problem.path else ""
        text = in_local_time(problem.problem) if error.code == "expired" else problem.problem
        _print(f"error: {indented(place + text)}")
        if problem.hint:
            _print(f"  {indented(problem.hint)}")
    return exit_code_of(error)


def _print(text: str) -> None:
    """Print text on stderr, escaped; on a terminal its first line is wrapped between words."""
    first, newline, rest = visible(text, lines=True).partition("\n")
    if sys.stderr.isatty():
        first = wrapped(first, get_terminal_size((80, 24)).columns)
    print(f"{first}{newline}{rest}", file=sys.stderr)


def unexpected(error: BaseException) -> HeadgateError:
    """Return an unforeseen error as HeadgateError `internal`; its traceback is written to a file.

    An OSError becomes a WorldError with its path and message.
    """
    if isinstance(error, OSError) and error.strerror:
        path = "" if error.filename is None else os.fsdecode(error.filename)
        return WorldError([Problem(path=path, problem=error.strerror)])
    try:
        handle, path = tempfile.mkstemp(prefix="headgate-error-", suffix=".txt")
        with os.fdopen(handle, "w", errors="backslashreplace") as file:
            file.write("".join(traceback.format_exception(error)))
        hint = f"the details are in {path}"
    except OSError:
        hint = "its details could not be written to a file"
    text = f"internal error ({type(error).__name__})"
    return HeadgateError([Problem(path="", problem=text, hint=hint)], code="internal")


def interrupted(hint: str = "") -> HeadgateError:
    """Return the error of a Ctrl-C."""
    return HeadgateError([Problem(path="", problem="interrupted", hint=hint)], code="interrupted")
