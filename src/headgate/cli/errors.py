"""How errors leave the command line: readable text or one JSON object, and an exit code."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import Any

import typer

from headgate.base.errors import HeadgateError, Problem, SpecError, nearest

OK, OUTSIDE, USAGE, FAILED, NOT_FINISHED, CANCELLED, INTERRUPTED = 0, 1, 2, 100, 101, 103, 130
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
    """Return what a program that called us sees of an error."""
    if error.code in _EXIT_CODES:
        return _EXIT_CODES[error.code]
    return USAGE if isinstance(error, SpecError) else OUTSIDE


def asked_format(arguments: Sequence[str]) -> str | None:
    """Return the format that a command line asks for, be it wrong otherwise; None for none."""
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


def report(error: HeadgateError, *, as_json: bool) -> int:
    """Print an error on stderr and return the exit code."""
    if as_json:
        print(json.dumps({"code": error.code, "problems": [_body(p) for p in error.problems]}),
              file=sys.stderr)  # fmt: skip
        return exit_code_of(error)
    for problem in error.problems:
        line = "" if problem.line is None else f" (line {problem.line})"
        place = f"{problem.path}{line}: " if problem.path else ""
        print(f"error: {place}{problem.problem}", file=sys.stderr)
        if problem.hint:
            print("\n".join(f"  {line}" for line in problem.hint.splitlines()), file=sys.stderr)
    return exit_code_of(error)


def _body(problem: Problem) -> dict[str, Any]:
    body: dict[str, Any] = {
        "path": problem.path,
        "problem": problem.problem,
        "hint": problem.hint,
    }
    return body if problem.line is None else {**body, "line": problem.line}


def misused(error: typer.TyperException) -> SpecError:
    """Return what is wrong with a command line, as typer found it, in our form.

    Typer's kinds of errors are told apart by what they carry: they are no public names.
    """
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    command = context.command_path if context is not None else "headgate"
    hint = f"see {command} --help"
    path = getattr(error, "option_name", "")
    problem = error.message
    if hasattr(error, "possibilities"):
        known = [name for p in context.command.params for name in p.opts] if context else []
        close = nearest(path, known)
        hint = close if close.startswith("did you mean") else hint
        problem = f"there is no option '{path}'"
    elif parameter is not None:
        names = [*parameter.opts, parameter.name.upper()]
        path = next((n for n in names if n.startswith("--")), None) or next(
            (n for n in names if n.startswith("-")), parameter.metavar or names[-1]
        )
        problem = problem.removeprefix("Value error, ") or "is missing"
    return SpecError([Problem(path=path, problem=problem, hint=hint)], code="usage")


def unexpected(error: BaseException) -> HeadgateError:
    """Return an error of ours without its details, which are written to a file."""
    try:
        handle, path = tempfile.mkstemp(prefix="headgate-error-", suffix=".txt")
        with os.fdopen(handle, "w") as file:
            file.write("".join(traceback.format_exception(error)))
        hint = f"the details are in {path}"
    except OSError:
        hint = "its details could not be written to a file"
    text = f"something went wrong inside Headgate ({type(error).__name__})"
    return HeadgateError([Problem(path="", problem=text, hint=hint)], code="internal")


def interrupted(hint: str = "") -> HeadgateError:
    """Return what Ctrl-C becomes."""
    return HeadgateError([Problem(path="", problem="interrupted", hint=hint)], code="interrupted")
