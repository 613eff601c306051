"""Errors as JSON, `{code, problems: [{path, problem, hint, line?}]}`, and their HTTP status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.base.errors import HeadgateError, Problem, SpecError, WorldError

_STATUS = {
    "bad_spec": 400,
    "timeout": 408,
    "too_large": 413,
    "forbidden": 403,
    "no_account": 403,
    "not_found": 404,
    "not_allowed": 405,
    "already_ended": 409,
    "exists": 409,
    "in_use": 409,
    "expired": 410,
    "not_finished": 409,
    "not_cancellable": 409,
    "not_movable": 409,
    "failed": 409,
    "cancelled": 409,
    "changed": 409,
    "rejected": 422,
    "infeasible": 422,
    "too_many": 429,
    "invariant_broken": 500,
    "internal": 500,
    "world": 502,
    "unreachable": 503,
    "archive_full": 507,
    "journal_full": 507,
    "disk_full": 507,
}


def status_of(error: HeadgateError) -> int:
    """Return the HTTP status of an error's code; of its class for a code without a status."""
    known = _STATUS.get(error.code)
    if known is not None:
        return known
    if isinstance(error, SpecError):
        return 400
    return 502 if isinstance(error, WorldError) else 500


def error_body(error: HeadgateError) -> dict[str, Any]:
    """Return an error as JSON; a problem has a `line` only if it is in a file."""
    return {"code": error.code, "problems": [_problem(p) for p in error.problems]}


def _problem(problem: Problem) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "path": problem.path,
        "problem": problem.problem,
        "hint": problem.hint,
    }
    return shown if problem.line is None else {**shown, "line": problem.line}


def error_from(status: int, body: Mapping[str, Any]) -> HeadgateError:
    """Return the error of a response: SpecError below status 500, WorldError from 500 on.

    Raises KeyError or TypeError for a body of another form.
    """
    problems = [Problem(**problem) for problem in body["problems"]]
    family = SpecError if status < 500 else WorldError
    return family(problems, code=body["code"])
