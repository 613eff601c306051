"""What `submit` and `run` start: the words of a command line, or a script by its kind."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from headgate.base.errors import Problem, SpecError

_PYTHON, _SHELL = ".py", ".sh"
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "fish")
_WITH_DOLLARS = (*_SHELLS, "awk", "gawk", "mawk", "perl", "envsubst", "make")
_OF_SHELLS = ("cd", "export", "source", ".", "set", "alias", "umask", "module")
_OPERATORS = ("|", "||", "&&", ">", ">>", "<", "<<<", "2>&1", "2>")
_OPTIONS_OF_OTHERS = ("#SBATCH", "#PBS", "#BSUB", "#HEADGATE")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_VARIABLE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
_RANKS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "NODE_RANK", "CUDA_VISIBLE_DEVICES")
_SPACES = (" ", "\t", "\n")
_SHELL_HINT = "give the command to a shell: -- sh -c 'COMMAND'"
_HEAD_BYTES = 1 << 20  # of a script, in which its options are looked for


def is_job_file(arguments: Sequence[str]) -> bool:
    """Return whether the arguments name a job file, maybe wrongly, and not a script or command."""
    (first, *more), suffix = arguments, Path(arguments[0]).suffix
    if suffix in (".yaml", ".yml", ".json"):
        return True
    if more or suffix in (_PYTHON, _SHELL) or any(space in first for space in _SPACES):
        return False
    if os.path.isfile(first):  # noqa: PTH113  # unlike pathlib, it never raises
        return not os.access(first, os.X_OK) and not _head(Path(first)).startswith(b"#!")
    return os.path.exists(first) or shutil.which(first) is None  # noqa: PTH110  # the same


def command_of(
    arguments: Sequence[str], *, working_dir: str | None, variables: Collection[str] = ()
) -> tuple[list[str], tuple[Problem, ...]]:
    """Return the words that run what was named, and warnings.

    A script is run by the program for its kind. `working_dir` is where paths begin, as in a job
    file; `variables` are those that the job sets. SpecError `usage` for what cannot be run, and for
    what only a shell can read.
    """
    first, *others = arguments
    here = _directory(working_dir)
    path = None if here is None else here / first
    problem = None
    if path is None or not path.is_file():
        problem = _of_shell(first) or _missing(first, path)
        words = [*_runner(first), first]
    else:
        problem, words = _unsuited(first, path), _words_of_file(first, path)
    if problem is not None:
        raise SpecError([problem], code="usage")
    warnings = [*_for_shell(words, others, variables)]
    if path is not None and path.is_file():
        warnings += _unread_options(first, path)
    return [*words, *others], tuple(warnings)


def _directory(working_dir: str | None) -> Path | None:
    """Return where a relative path begins; None where no file of this machine is sent."""
    if working_dir == "none":
        return None
    return Path() if working_dir in (None, "shared") else Path(str(working_dir)).expanduser()


def _runner(word: str) -> list[str]:
    """Return the program that runs a script of this name, if it says that."""
    return {_PYTHON: ["python"], _SHELL: ["bash"]}.get(Path(word).suffix, [])


def _head(path: Path) -> bytes:
    """Return the beginning of a file, nothing of one that cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES)
    except OSError:
        return b""


def _missing(word: str, path: Path | None) -> Problem | None:
    """Return why what is no file here cannot be run, None if it may be a program of the nodes."""
    if path is not None and path.is_dir() and ("/" in word or shutil.which(word) is None):
        return Problem(path=word, problem="is a directory, not a program")
    if path is None or word.startswith("/"):
        return None
    if "/" in word or _runner(word):
        hint = f"looked for {path.absolute()}; a path that only the nodes see is absolute"
        return Problem(path=word, problem="there is no such file", hint=hint)
    return None


def _of_shell(word: str) -> Problem | None:
    """Return the problem of a first word that only a shell can read."""
    if _ASSIGNMENT.match(word):
        hint = f"--env {shlex.quote(word)}, before the program, sets the variable"
        return Problem(path=word, problem="is no program: no shell reads the command", hint=hint)
    if word in _OF_SHELLS:
        text = "is a command of shells, no program: no shell reads the command"
        return Problem(path=word, problem=text, hint=_SHELL_HINT)
    if any(space in word for space in _SPACES) and not word.startswith("/"):
        text = "is one word, and there is no such file: no shell splits it"
        return Problem(path=word, problem=text, hint=f"leave out the quotes, or {_SHELL_HINT}")
    return None


def _unsuited(word: str, path: Path) -> Problem | None:
    """Return why a file cannot be run, if so."""
    head, script = _head(path), bool(_runner(word))
    first_line = head.partition(b"\n")[0]
    if not os.access(path, os.R_OK):
        return Problem(path=word, problem="cannot be read: Permission denied")
    if not head:
        return Problem(path=word, problem="is empty: there is nothing to run")
    if script and b"\0" in head:
        hint = "give the program that reads it: -- PROGRAM " + shlex.quote(word)
        return Problem(path=word, problem="is not text, so it is no script", hint=hint)
    if first_line.endswith(b"\r") and Path(word).suffix != _PYTHON:
        hint = f"sed -i 's/\\r$//' {shlex.quote(word)} removes them"
        text = "has the line ends of Windows (\\r\\n), which no shell reads"
        return Problem(path=word, problem=text, hint=hint)
    if not script and not os.access(path, os.X_OK) and not head.startswith(b"#!"):
        if "/" not in word and shutil.which(word) is not None:
            return None
        hint = f"chmod +x {shlex.quote(word)}, or give the program that reads it before it"
        return Problem(path=word, problem="is not executable, and has no #! line", hint=hint)
    return None


def _words_of_file(word: str, path: Path) -> list[str]:
    """Return the words that run a file: by the program of its kind or of its first line."""
    runner = _runner(word)
    if runner == ["python"]:  # that of the job's environment, whatever its first line names
        return [*runner, word]
    named = _interpreter(_head(path))
    if runner:
        return [*(named or runner), word]
    if "/" not in word and shutil.which(word) is not None:
        return [word]
    if not os.access(path, os.X_OK):
        return [*named, word]
    return [word if "/" in word else f"./{word}"]


def _interpreter(head: bytes) -> list[str]:
    """Return the words behind `#!` of a script: a program, and one argument at most."""
    if not head.startswith(b"#!"):
        return []
    return os.fsdecode(head[2:].partition(b"\n")[0]).strip().split(None, 1)


def _for_shell(
    words: Sequence[str], others: Sequence[str], variables: Collection[str]
) -> Iterator[Problem]:
    """Yield a warning if words mean something to a shell that nothing else reads."""
    program = Path(words[0]).name
    if program in _SHELLS:
        return
    found = [word for word in others if word in _OPERATORS or word.startswith("~/")]
    if program not in _WITH_DOLLARS:
        known = {*variables, *os.environ, *_RANKS}
        for word in others:
            names = _VARIABLE.findall(word)
            found += [f"${name}" for name in names if name in known or name[:9] == "HEADGATE_"]
    if found:
        named = ", ".join(dict.fromkeys(found))
        text = "is passed on as it stands: no shell reads the command on the node"
        yield Problem(path=named, problem=text, hint=_SHELL_HINT)


def _unread_options(word: str, path: Path) -> Iterator[Problem]:
    """Yield a warning if a script has lines with options for the scheduler it was written for."""
    lines = _head(path).decode(errors="replace").splitlines()
    for mark in _OPTIONS_OF_OTHERS:
        if any(line.startswith(f"{mark} ") for line in lines):
            text = f"lines that begin with {mark} are ignored"
            hint = f"give options to headgate, before the script: --gpus 2 {word}"
            yield Problem(path=word, problem=text, hint=hint)
