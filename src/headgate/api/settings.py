"""The state directory and the output format: from flags, the environment, then files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from headgate.base.errors import Problem, SpecError, nearest


class Format(StrEnum):
    """The output format of a verb."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a call."""

    state: Path
    format: Format

    @property
    def as_json(self) -> bool:
        """Whether to print JSON."""
        return self.format is Format.JSON


def settle(
    state: Path | None,
    output: Format | None,
    *,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    site: Path = Path("/etc/headgate/config.yaml"),
) -> Settings:
    """Return the settings: flags before environment before files, the nearest file first.

    Raises SpecError for an invalid file or variable.
    """
    environment = os.environ if environment is None else environment
    found: dict[str, Any] = {}
    if state is not None:
        found["state"] = _expanded(str(state), "--state-dir")
    if output is not None:
        found["output"] = output
    if "state" not in found and environment.get("HEADGATE_STATE"):
        found["state"] = _expanded(environment["HEADGATE_STATE"], "HEADGATE_STATE")
    if "output" not in found and environment.get("HEADGATE_OUTPUT"):
        found["output"] = _format(environment["HEADGATE_OUTPUT"], "HEADGATE_OUTPUT")
    for file in _files(environment, directory or Path.cwd(), site):
        if {"state", "output"} <= found.keys():
            break
        for key, value in _read(file).items():
            found.setdefault(key, value)
    default = _home(environment, "XDG_STATE_HOME", ".local/state") / "headgate"
    return Settings(
        state=Path(found.get("state", default)).resolve(),
        format=found.get("output", Format.TABLE),
    )


def _files(environment: Mapping[str, str], directory: Path, site: Path) -> Iterator[Path]:
    directory = directory.absolute()
    for folder in (directory, *directory.parents):
        if (folder / ".headgate.yaml").is_file():
            yield folder / ".headgate.yaml"
            break
    user = _home(environment, "XDG_CONFIG_HOME", ".config") / "headgate" / "config.yaml"
    yield from (file for file in (user, site) if file.is_file())


def _home(environment: Mapping[str, str], variable: str, default: str) -> Path:
    named = environment.get(variable)
    return Path(named) if named else Path(environment.get("HOME") or Path.home()) / default


def _read(file: Path) -> dict[str, Any]:
    """Return the values of a configuration file; a state directory is relative to the file.

    Raises SpecError for a file of another user but root: it would direct the caller, perhaps root,
    to a Headgate of that user.
    """
    from headgate.spec.document import read_document

    if file.stat().st_uid not in (0, os.geteuid()):
        hint = "remove it, or choose a Headgate with --state-dir or HEADGATE_STATE"
        problem = "belongs to another user, whose settings do not apply to you"
        raise SpecError([Problem(path=str(file), problem=problem, hint=hint)])
    document = read_document(file)
    found: dict[str, Any] = {}
    for key, value in document.data.items():
        if key == "state" and isinstance(value, str) and value:
            found["state"] = file.parent / _expanded(value, f"{file}: state")
        elif key == "output" and isinstance(value, str):
            found["output"] = _format(value, f"{file}: output")
        elif key in ("state", "output"):
            document.add((key,), "must be text")
        else:
            document.add((key,), f"unknown key '{key}'", nearest(key, ("state", "output")))
    try:
        document.raise_problems()
    except SpecError as error:
        raise SpecError(
            Problem(path=f"{file}: {p.path}", problem=p.problem, hint=p.hint, line=p.line)
            for p in error.problems
        ) from None
    return found


def _expanded(path: str, place: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise SpecError(
            [Problem(path=place, problem=f"'{path}': there is no such home directory")]
        ) from None


def _format(name: str, place: str) -> Format:
    try:
        return Format(name)
    except ValueError:
        hint = nearest(name, [f.value for f in Format])
        raise SpecError(
            [Problem(path=place, problem=f"'{name}' is not a format", hint=hint)]
        ) from None
