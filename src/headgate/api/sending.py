"""Sending what a job needs from the client's machine, before its job file is submitted.

`send_files` is the one call for all clients: it names the working directory where all nodes share
it, else packs and uploads it unless the controller has it, reads a requirements file, and returns
the job file with their results in it.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shlex
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from headgate.api.packing import IGNORE_FILE, package_of
from headgate.api.sharing import NodesClient, shared_by_nodes
from headgate.base.errors import Problem, SpecError
from headgate.base.text import visible
from headgate.model import names_files
from headgate.spec.document import read_document, read_text
from headgate.spec.environment import SHARED

JobKeys = dict[str, Any]
_STAGES = ("tasks", "update", "reduce")
_TRIES = 3  # of sending a directory that changes
_LEVELS = 20  # of requirements files that name others
_FUNCTION = re.compile(r"([\w.]+):[\w.]+")
_INCLUDED = re.compile(r"(?:-r|--requirement)[ =]*(\S.*)")
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")  # raw in JSON, but not in YAML


class PackagesClient(NodesClient, Protocol):
    """The part of `headgate.Client` that is used here."""

    def has_package(self, digest: str) -> bool:
        """Return whether the controller has a package."""

    def put_package(self, digest: str, pieces: Iterable[bytes]) -> None:
        """Upload a package."""


def send_files(
    client: PackagesClient,
    job: str | Mapping[str, Any],
    *,
    base: Path,
    default: Path | None = None,
    here: bool = False,
    dry_run: bool = False,
    show: Callable[[str], None] | None = None,
) -> tuple[str, tuple[Problem, ...]]:
    """Send the files of a valid job file; return its text to submit, and warnings.

    Relative paths in it start at `base`. Without `working_dir` it is the directory `default`, or
    that of the script of `ray`, or `base` if a `run` names a file in it: the directory itself where
    all nodes share it and nothing is prepared from its files, else a copy, which is sent. With
    `here` runs start in `base` also if they name no file there, but no copy is sent for that. What
    cannot be sent is an error if `working_dir` names it, else a warning. With `dry_run` nothing is
    uploaded. `show` gets where the job will run, in words. SpecError and WorldError as of
    `package_of`, `shared_by_nodes` and `Client.put_package`, SpecError for requirements that cannot
    be read.
    """
    keys: JobKeys = read_document(job).data if isinstance(job, str) else dict(job)
    sent: JobKeys = {}
    warnings: tuple[Problem, ...] = ()
    directory, working_dir = None, None
    given, script = keys.get("working_dir"), _ray_script(keys, base)
    if isinstance(pip := keys.get("pip"), str):
        sent["pip"] = list(_requirements(base / Path(pip).expanduser()))
    if given is None:
        directory = default or (script.parent if script else _directory_of(keys, base))
        place = directory or (base if here else None)
        if place is not None and not _prepares_files({**keys, **sent}):
            working_dir = _shared_if_so(client, place)
        if working_dir is None and directory is not None:
            working_dir, warnings = _sent_unasked(client, directory, dry_run=dry_run)
    elif given not in (False, "none"):
        working_dir = _named(client, given, base, dry_run=dry_run)
    if working_dir is not None:
        sent["working_dir"] = working_dir
    if script is not None and given in (None, False, "none"):
        inside = working_dir is not None and script.parent == directory
        sent["ray"] = {**keys["ray"], "script": script.name if inside else str(script)}
    if show is not None and working_dir is not None:
        show(_where(working_dir))
    if not sent and isinstance(job, str):
        return job, warnings
    return job_text({**keys, **sent}), warnings


def job_text(keys: JobKeys) -> str:
    """Return the text of a job file: JSON, which is YAML."""
    text = json.dumps(keys, ensure_ascii=False)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _named(client: PackagesClient, given: Any, base: Path, *, dry_run: bool) -> JobKeys | None:
    """Return the value to submit of a `working_dir`, whose files are sent; None: unchanged."""
    if (directory := _named_shared(given, base)) is not None:
        return shared_by_nodes(client, directory)
    if not isinstance(given, str):  # a package, which was sent before
        return None
    return _send(client, base / Path(given).expanduser(), dry_run=dry_run)


def _sent_unasked(
    client: PackagesClient, directory: Path, *, dry_run: bool
) -> tuple[JobKeys | None, tuple[Problem, ...]]:
    """Send a directory that no `working_dir` names; return the value to submit, and warnings."""
    try:
        _reject_unasked(directory)
        return _send(client, directory, dry_run=dry_run), ()
    except SpecError as error:
        return None, (_nothing_sent(error),)


def _named_shared(given: Any, base: Path) -> Path | None:
    """Return the directory that a `working_dir` says the nodes share, None for any other value."""
    if given == SHARED:
        return base
    if isinstance(given, dict) and isinstance(given.get(SHARED), str):
        return base / Path(given[SHARED]).expanduser()
    return None


def _shared_if_so(client: NodesClient, directory: Path) -> JobKeys | None:
    """Return the value of `working_dir` for a directory if all nodes share it, else None."""
    try:
        return shared_by_nodes(client, directory)
    except SpecError as error:
        if error.code not in ("not_shared", "not_found"):  # a controller that cannot say
            raise
        return None


def _prepares_files(keys: JobKeys) -> bool:
    """Return whether nodes prepare something from the files: of a copy, whose content is known."""
    pip = keys.get("pip")
    local = isinstance(pip, list | tuple) and names_files(map(str, pip))
    return local or bool(keys.get("setup"))


def _where(working_dir: Mapping[str, Any]) -> str:
    """Return in words where runs start."""
    if SHARED in working_dir:
        return f"it runs in {visible(working_dir[SHARED])} itself, which all nodes share"
    return "it runs in a copy of the directory at submission"


def base_of(file: Path) -> Path:
    """Return the directory at which relative paths in a job file start.

    That of the file, or the current directory for one that is read from a pipe.
    """
    return file.parent if file.is_file() else Path.cwd()


def _send(client: PackagesClient, directory: Path, *, dry_run: bool) -> JobKeys:
    """Upload a directory unless the controller has it, and return the value of `working_dir`."""
    for left in reversed(range(_TRIES)):
        try:
            package = package_of(directory)
            digest = package.digest()
            if not dry_run and not client.has_package(digest):
                client.put_package(digest, package.pieces())
        except SpecError as error:
            if error.code != "changed" or not left:
                raise
        else:
            return {"package": digest}
    raise AssertionError("unreachable: the last try returns or raises")


def _ray_script(keys: JobKeys, base: Path) -> Path | None:
    """Return the script of a Ray program as an absolute path, None where it is no file here.

    SpecError `missing_file` for a relative path of no file.
    """
    ray = keys.get("ray")
    script = ray.get("script") if isinstance(ray, dict) else None
    if not isinstance(script, str):
        return None
    given = keys.get("working_dir")
    start = _named_shared(given, base) or base
    if isinstance(given, str) and given not in ("none", SHARED):
        start = base / Path(given).expanduser()
    path = (start / Path(script).expanduser()).absolute()
    if not path.is_file() and not script.startswith("/"):  # else nodes may see it
        problem = Problem(path="ray.script", problem=f"there is no file '{path}'")
        raise SpecError([problem], code="missing_file")
    return path if path.is_file() else None


def _directory_of(keys: JobKeys, base: Path) -> Path | None:
    """Return `base` if a `run` names a file in it, else None."""
    stages = [keys, *(keys[name] for name in _STAGES if isinstance(keys.get(name), dict))]
    runs = [run for stage in stages if isinstance(run := stage.get("run"), str)]
    return base if any(_is_inside(path, base) for run in runs for path in _paths(run)) else None


def _paths(run: str) -> Iterator[str]:
    """Yield the relative paths that a `run` may name: of programs, their files, and modules."""
    if function := _FUNCTION.fullmatch(run):
        yield from _module(function[1])
        return
    lexer = shlex.shlex(run, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:  # quotes that do not match
        words = run.split()
    for before, word in zip(["", *words], words, strict=False):
        if before == "-m":
            yield from _module(word)
        yield word
        if "=" in word:
            yield word.partition("=")[2]
        if " " in word:  # a command in quotes, as of `sh -c`
            yield from word.split()


def _module(name: str) -> Iterator[str]:
    path = name.replace(".", "/")
    yield from (f"{path}.py", f"{path}/__init__.py", f"{path}/__main__.py")


def _is_inside(path: str, base: Path) -> bool:
    """Return whether a path is relative and names a file in a directory."""
    if not path or path.startswith("/") or ".." in Path(path).parts:
        return False
    try:
        return (base / path).is_file()
    except (OSError, ValueError):  # no path at all
        return False


def _reject_unasked(directory: Path) -> None:
    """Raise SpecError for a directory that is sent only if `working_dir` names it."""
    homes = {Path.home(), Path(pwd.getpwuid(os.geteuid()).pw_dir)}
    broad = {Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")}
    broad |= {place for home in homes for place in (home, *home.parents)}
    if directory.resolve() in {place.resolve() for place in broad}:
        text = "is a home directory or a broader one"
        raise SpecError([Problem(path=str(directory), problem=text)])


def _nothing_sent(error: SpecError) -> Problem:
    """Return the warning that a directory was not sent."""
    first = error.problems[0]
    hint = f"list it in {IGNORE_FILE}, give 'working_dir', or write 'working_dir: none'"
    problem = f"no files are sent: {first.path} {first.problem}"
    return Problem(path="working_dir", problem=problem, hint=hint)


def _requirements(file: Path, level: int = 0) -> Iterator[str]:
    """Yield the requirements of a file, and of those that it names."""
    if level > _LEVELS:
        raise SpecError([Problem(path=str(file), problem="names itself, or too many others")])
    text = read_text(file).replace("\\\n", " ")
    for line in text.splitlines():
        requirement = re.sub(r"(^|\s)#.*", "", line).strip()
        if included := _INCLUDED.fullmatch(requirement):
            yield from _requirements(file.parent / included[1], level + 1)
        elif requirement:
            yield requirement
