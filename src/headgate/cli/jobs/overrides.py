"""Options of the command line that replace keys of a job file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headgate.base.errors import Problem, SpecError
from headgate.spec import load_job
from headgate.spec.document import Place, clipped, dotted, read_document
from headgate.spec.needs import Needs

Keys = dict[str, Any]
_OF_TASKS = ("count", "first_index", "max_running", "retries")
_STAGES = ("tasks", "update", "reduce")
_PATTERNS = ("for_each", "wavefront", "iterations")
_OPTIONS = {"num_nodes": "--nodes", "envs": "--env", "count": "--array"}
_HINT = "the command line wins"


def overridden(text: str, source: str, keys: Mapping[str, Any]) -> tuple[Keys, list[Problem]]:
    """Return the content of a valid job file with these keys of `JobOptions.keys`, and warnings.

    There is a warning for each key that the file has with another value. SpecError for keys that
    the file has no place for, or that do not go with its other ones.
    """
    data = read_document(text, name=source).data
    problems = list(_misplaced(data, keys))
    if problems:
        raise SpecError(problems, code="usage")
    if "run" in data and "elastic" not in data and any(key in _OF_TASKS for key in keys):
        data = _long_form(data, keys)
    warnings = list[Problem]()
    for place, value in _placed(data, keys):
        inner: Any = data
        for part in place[:-1]:
            inner[part] = inner = dict(inner.get(part) or {})
        warnings += _difference(place, inner, value)
        inner[place[-1]] = value
    if "count" in keys:
        for key in ("first_index", "max_running"):
            if key not in keys:
                data["tasks"].pop(key, None)
    _check(data, source)
    return data, warnings


def _check(data: Keys, source: str) -> None:
    """Raise the SpecError of a file with options; its text, which has other lines, is no file's."""
    from headgate.api.sending import job_text

    try:
        load_job(job_text(data), name=source)
    except SpecError as error:
        problems = [
            Problem(path=each.path, problem=each.problem, hint=each.hint) for each in error.problems
        ]
        raise SpecError(problems, code=error.code) from None


def _misplaced(data: Keys, keys: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems of options that the file has no place for, or several."""
    stages = [stage for stage in _STAGES if stage in data]
    for key in keys:
        if key in Needs.model_fields and len(stages) > 1:
            text = f"the file has several stages: {', '.join(stages)}"
            hint = "write it into the file, under 'resources' of the stage that is meant"
            yield Problem(path=_option(key), problem=text, hint=hint)
    if "count" not in keys:
        return
    if "elastic" in data:
        hint = "write 'min' and 'max' into the file instead"
        yield Problem(path="--array", problem="does not go with 'elastic' of the file", hint=hint)
    elif "ray" in data:
        yield Problem(path="--array", problem="does not go with 'ray', which is one program")
    elif "num_nodes" in data:
        hint = "remove one of them"
        yield Problem(path="--array", problem="does not go with 'num_nodes' of the file", hint=hint)
    elif patterns := [key for key in _PATTERNS if key in (data.get("tasks") or {})]:
        text = f"does not go with {' and '.join(patterns)} of the file, which give the tasks"
        yield Problem(path="--array", problem=text, hint="write 'count' into the file instead")


def _option(key: str) -> str:
    return _OPTIONS.get(key, f"--{key.replace('_', '-')}")


def _long_form(data: Keys, keys: Mapping[str, Any]) -> Keys:
    """Return a file in the short form, of one task, with `tasks`."""
    moved: Keys = {key: data[key] for key in ("run", "resources") if key in data}
    if "num_nodes" not in {**data, **keys} and "count" not in keys:
        moved["count"] = 1
    return {**{key: value for key, value in data.items() if key not in moved}, "tasks": moved}


def _placed(data: Keys, keys: Mapping[str, Any]) -> Iterator[tuple[Place, Any]]:
    """Yield where each key is in the file, and its value."""
    for key, value in keys.items():
        if key == "envs":
            for name, text in value.items():
                yield ("envs", name), text
        elif key == "working_dir" and value not in ("none", "shared"):
            yield (key,), str(Path(value).expanduser().absolute())  # not beside the file
        else:
            yield (*_place_of(data, key), key), value


def _place_of(data: Keys, key: str) -> Place:
    """Return the place in the file of the keys beside this one."""
    if key in _OF_TASKS:
        return next((place,) for place in ("ray", "elastic", "tasks") if place in data)
    if key not in Needs.model_fields:
        return ()
    if "elastic" in data:
        return ("elastic", "unit")
    if "ray" in data:
        return ("ray", "resources") if "resources" in data["ray"] else ("resources",)
    return ("tasks", "resources") if "tasks" in data else ("resources",)


def _difference(place: Place, inner: Keys, value: Any) -> Iterator[Problem]:
    """Yield a warning if the file has another value; that of a variable may be secret."""
    before = inner.get(str(place[-1]))
    if before is None or before == value:
        return
    if place[0] == "envs":
        text = "one value in the file, another on the command line"
    else:
        text = f"{_shown(before)} in the file, {_shown(value)} on the command line"
    yield Problem(path=dotted(place), problem=text, hint=_HINT)


def _shown(value: Any) -> str:
    return clipped(", ".join(map(str, value)) if isinstance(value, list) else str(value))
