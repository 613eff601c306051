"""Keys of a job file for what a node prepares before a run: files, Python packages, commands."""

from __future__ import annotations

import re
from typing import Annotated, Any, Protocol

from pathspec import GitIgnoreSpec
from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from headgate.model import KEEP_ALL, KeepFiles, RunEnvironment
from headgate.spec.document import Document
from headgate.spec.shape import FileShape, Size, shown

MOST_LINES = 1000
"""Requirements of `pip`, and commands of `setup`, at most."""

_PACKAGE = re.compile(r"[0-9a-f]{64}")
_NONE = ("none", False)
_MOST_INODES = 1 << 64

SHARED = "shared"
"""The `working_dir` that stands for the directory of the job file, if the nodes share it."""


class Package(FileShape):
    """Files that were sent before: the id of a package."""

    package: Annotated[str, Field(description="the SHA-256 of the package, in hex")]


class SharedDirectory(FileShape):
    """A directory that the nodes share, in which runs start themselves."""

    shared: Annotated[str, Field(description="its path; relative ones start at the job file")]
    inode: Annotated[
        int, Field(description="its number on all nodes, 0 where that is not known")
    ] = 0


def _working_dir(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"package"} and _PACKAGE.fullmatch(str(value["package"])):
            return Package(package=value["package"])
        if {"shared"} <= set(value) <= {"shared", "inode"} and _is_path(value["shared"]):
            inode = value.get("inode", 0)
            if type(inode) is int and 0 <= inode < _MOST_INODES:
                return SharedDirectory(shared=value["shared"], inode=inode)
    elif value in _NONE:
        return False
    elif _is_path(value):
        return value
    problem = "must be a directory, 'shared', or 'none', not {value}"
    raise PydanticCustomError("working_dir", problem, {"value": shown(value)})


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and "\0" not in value


def _lines(value: Any) -> Any:
    """Return text as it stands, and a list of lines as a tuple."""
    if isinstance(value, str) and value.strip() and "\0" not in value:
        return value
    if isinstance(value, list) and value and all(_is_line(item) for item in value):
        if len(value) > MOST_LINES:
            words = {"count": len(value), "most": MOST_LINES}
            raise PydanticCustomError("lines", "has {count} lines, at most {most}", words)
        return tuple(value)
    raise PydanticCustomError("lines", "must be text, or a list of at least one line of text")


def _patterns(value: Any) -> Any:
    """Return patterns as a tuple."""
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise PydanticCustomError("patterns", "must be a list of patterns, such as '*.pt'")
    if len(value) > MOST_LINES:
        words = {"count": len(value), "most": MOST_LINES}
        raise PydanticCustomError("patterns", "has {count} patterns, at most {most}", words)
    try:
        GitIgnoreSpec.from_lines(value)
    except ValueError as error:
        raise PydanticCustomError("patterns", "{problem}", {"problem": str(error)}) from None
    return tuple(value)


def _is_line(item: Any) -> bool:
    return isinstance(item, str) and bool(item.strip()) and item.isprintable()


def _venv(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("/") and value.isprintable():
        return value
    words = {"value": shown(value), "hint": "runs may start on any node"}
    raise PydanticCustomError("venv", "{value} is not an absolute path", words)


_TEXT_OR_LIST = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
    ]
}

WorkingDir = Annotated[
    str | bool | Package | SharedDirectory | None,
    BeforeValidator(_working_dir),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"const": False},
                Package.model_json_schema(),
                SharedDirectory.model_json_schema(),
            ]
        }
    ),
    Field(description="directory that is sent, in a copy of which runs start; `shared`; or `none`"),
]
Pip = Annotated[
    str | tuple[str, ...] | None,
    BeforeValidator(_lines),
    WithJsonSchema(_TEXT_OR_LIST),
    Field(description="requirements to install, or the path of a requirements file"),
]
Venv = Annotated[
    str | None,
    BeforeValidator(_venv),
    WithJsonSchema({"type": "string"}),
    Field(description="instead of pip: absolute path of a Python environment on all nodes"),
]
Setup = Annotated[
    str | tuple[str, ...] | None,
    BeforeValidator(_lines),
    WithJsonSchema(_TEXT_OR_LIST),
    Field(description="shell commands that each node runs once before the first run"),
]


class KeptPatterns(FileShape):
    """Which files that a run writes into its working directory are kept."""

    include: Annotated[
        tuple[str, ...],
        BeforeValidator(_patterns),
        WithJsonSchema({"type": "array", "items": {"type": "string"}}),
        Field(description="patterns as in .gitignore, by default all files"),
    ] = ()
    limit: Annotated[Size, Field(description="bytes of one run that are kept")] = (
        KEEP_ALL.limit_bytes
    )


def _keep_files(value: Any) -> Any:
    if value is None:
        problem = "must be 'none', or a mapping with 'include' and 'limit', not {value}"
        raise PydanticCustomError("keep_files", problem, {"value": shown(value)})
    return None if value in _NONE else value


KeptFilesKey = Annotated[
    KeptPatterns | None,  # None keeps none
    BeforeValidator(_keep_files),
    WithJsonSchema({"anyOf": [{"enum": ["none", False]}, KeptPatterns.model_json_schema()]}),
    Field(description="which files in the working directories of its runs are kept; or `none`"),
]


class HasEnvironment(Protocol):
    """The keys of this module in a job file."""

    @property
    def working_dir(self) -> str | bool | Package | SharedDirectory | None: ...  # see `WorkingDir`
    @property
    def pip(self) -> str | tuple[str, ...] | None: ...  # see `Pip`
    @property
    def venv(self) -> str | None: ...  # see `Venv`
    @property
    def setup(self) -> str | tuple[str, ...] | None: ...  # see `Setup`
    @property
    def keep_files(self) -> KeptPatterns | None: ...  # see `KeptFilesKey`


def check_environment(document: Document, job: HasEnvironment) -> None:
    """Add the problems of these keys to a document."""
    if job.pip is not None and job.venv is not None:
        problem = "a job has 'pip' or 'venv', not both"
        hint = "pip makes an environment; to extend an existing one, install into it"
        document.add(("venv",), problem, hint)
    for key in ("working_dir", "pip", "venv", "setup"):
        if key in document.data and getattr(job, key) is None and document.is_clean((key,)):
            document.add((key,), "must not be empty")


def unsent(job: HasEnvironment, *, ray_script: str = "") -> list[str]:
    """Return the keys that name files of the client, which it sends or reads before it submits."""
    given = job.working_dir
    relative = isinstance(given, SharedDirectory) and not given.shared.startswith("/")
    found = ["working_dir"] if isinstance(given, str) or relative else []
    has_files = isinstance(given, Package | SharedDirectory)
    if ray_script and not ray_script.startswith("/") and not has_files:
        found.append("ray.script")
    return [*found, "pip"] if isinstance(job.pip, str) else found


def environment_of(job: HasEnvironment) -> RunEnvironment:
    """Return what the nodes prepare for a job whose files were sent."""
    setup, given = job.setup, job.working_dir
    shared = given if isinstance(given, SharedDirectory) else None
    return RunEnvironment(
        package=given.package if isinstance(given, Package) else "",
        directory="" if shared is None else shared.shared,
        inode=0 if shared is None else shared.inode,
        pip=job.pip if isinstance(job.pip, tuple) else (),
        venv=job.venv or "",
        setup=(setup,) if isinstance(setup, str) else setup or (),
    )


def kept_files_of(job: HasEnvironment) -> KeepFiles | None:
    """Return which files of the runs of a job are kept, None for none."""
    keep = job.keep_files
    return None if keep is None else KeepFiles(include=keep.include, limit_bytes=keep.limit)
