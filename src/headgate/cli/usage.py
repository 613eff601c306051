"""Errors of command lines that typer finds, in Headgate's words: problem, place and hint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from headgate.base.errors import Problem, SpecError, nearest

_OF_VALUES = {
    "int_parsing": "'{input}' is not a whole number",
    "float_parsing": "'{input}' is not a number",
    "greater_than_equal": "must be at least {ge}, not {input}",
    "less_than_equal": "must be at most {le}, not {input}",
}
"""By its kind, what typer's check of a value (by pydantic) finds."""


def misused(error: typer.TyperException, arguments: Sequence[str]) -> SpecError:
    """Return typer's error of a command line as a SpecError `usage`.

    Typer's classes of errors are not public: their attributes distinguish them.
    """
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    command = _command(arguments) if context is None else context.command_path
    parameters = () if context is None else tuple(context.command.params)
    option = getattr(error, "option_name", "")
    if hasattr(error, "possibilities"):
        problem = _no_such_option(option, parameters)
    elif option:
        problem = _misused_option(option, error.message, arguments)
    elif parameter is not None:
        problem = _bad_value(parameter, error, [name for p in parameters for name in p.opts])
    else:
        problem = _extra(error.message, command, parameters)
    if not problem.hint:
        hint = f"see {command} --help"
        problem = Problem(path=problem.path, problem=problem.problem, hint=hint)
    return SpecError([problem], code="usage")


def _command(arguments: Sequence[str]) -> str:
    """Return the command of a line as its user named it: `headgate data put`."""
    from headgate.cli.verbs import VERBS

    words = ["headgate"]
    for argument in arguments:
        if argument not in VERBS.get(words[-1], {}):
            break
        words.append(argument)
    return " ".join(words)


def _no_such_option(option: str, parameters: Sequence[Any]) -> Problem:
    known = [name for parameter in parameters for name in parameter.opts]
    close = nearest(option, known)
    hint = close if close.startswith("did you mean") else ""
    return Problem(path=option, problem=f"there is no option '{option}'", hint=hint)


def _misused_option(option: str, message: str, arguments: Sequence[str]) -> Problem:
    """Return the problem of an option without its value, or with one that it does not take."""
    if "does not take" not in message:
        return Problem(path=option, problem="needs a value after it")
    given = next((a for a in arguments if a.startswith(f"{option}=")), option)
    return Problem(path=option, problem="takes no value", hint=f"write {option}, not {given}")


def _bad_value(parameter: Any, error: typer.TyperException, options: Sequence[str]) -> Problem:
    """Return the problem of an argument or an option: it is missing, or its value is invalid."""
    names = [*parameter.opts, parameter.name.upper()]
    path = next((n for n in names if n.startswith("--")), None) or next(
        (n for n in names if n.startswith("-")), parameter.metavar or names[-1]
    )
    to_file = "to write the result to a file use --output FILE"
    hint = to_file if path == "--format" and "--output" in options else ""
    found: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()
    for each in found[:1]:
        if each["type"] in _OF_VALUES:
            facts = {**each.get("ctx", {}), "input": each["input"]}
            text = _OF_VALUES[each["type"]].format_map(facts)
            return Problem(path=path, problem=text, hint=hint)
    text = error.message.removeprefix("Value error, ").removesuffix(".")
    return Problem(path=path, problem=text or "is missing", hint=hint)


def _extra(message: str, command: str, parameters: Sequence[Any]) -> Problem:
    """Return the problem of arguments that a verb does not take."""
    _, _, given = message.partition("argument(s) (")
    taken = [each.metavar or each.name.upper() for each in parameters if not _is_option(each)]
    given = given.removesuffix(")")
    if not given:
        return Problem(path="", problem=message)
    takes = f"{command} takes {' '.join(taken) or 'no arguments'}"
    hint = "headgate get JOB shows one job" if command == "headgate jobs" else ""
    more = "" if hint else f": see {command} --help"
    text = "are too many arguments" if " " in given else "is one argument too many"
    return Problem(path=given, problem=text, hint=hint or takes + more)


def _is_option(parameter: Any) -> bool:
    return any(name.startswith("-") for name in parameter.opts)
