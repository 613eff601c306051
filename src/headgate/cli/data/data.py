"""Verbs about datasets: data put, data ls, data rm."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headgate.base.errors import HeadgateError, Problem, SpecError, WorldError
from headgate.base.text import NAME, NAME_FORM
from headgate.base.units import format_size
from headgate.cli.common import output
from headgate.cli.common.settings import (
    DryRunOption,
    FormatOption,
    ProgramSettings,
    StateOption,
    YesOption,
    settle,
)
from headgate.cli.common.settings import size_bytes as size_of

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from headgate.api.client import Client
    from headgate.live.node.split import FilePart

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The dataset's name.")]


def put(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files, in order.")],
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The dataset's name.", show_default="the first file's"),
    ] = None,
    shard: Annotated[str, typer.Option(metavar="SIZE", help="Size of a shard.")] = "64MiB",
    replicas: Annotated[
        int, typer.Option(min=1, metavar="N", help="Copies of each shard, on different nodes.")
    ] = 2,
    lines: Annotated[bool, typer.Option("--lines", help="Split only at line ends.")] = False,
    public: Annotated[
        bool, typer.Option("--public", help="Let the jobs of all users read it.")
    ] = False,
    dry_run: DryRunOption = False,
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """Split files into shards and place them on the nodes."""
    from headgate.live.node.split import split_files

    settings = settle(state, fmt)
    name = _name(name, files)
    shard_bytes = size_of(shard, "--shard")
    parts = [part for _, part in split_files(files, shard_bytes, lines=lines)]
    size_bytes = sum(part.size_bytes for part in parts)
    facts = {"name": name, "shards": len(parts), "size_bytes": size_bytes, "dry_run": dry_run}
    with settings.client() as client:
        if dry_run:
            _check(client, name, replicas)
        else:
            _put(client, name, parts, settings, replicas=replicas, public=public)
    verb = "would be put" if dry_run else "put"
    text = f"{name}: {format_size(size_bytes)} in {output.counted(len(parts), 'shard')} {verb}"
    output.print_result(facts, text, as_json=settings.as_json)


def _name(name: str | None, files: list[Path]) -> str:
    """Return the dataset's name; raise SpecError `usage` for an invalid one."""
    found = files[0].stem if name is None else name
    if NAME.fullmatch(found):
        return found
    hint = f"use {NAME_FORM}"
    if name is None:
        hint = f"choose another name with --name: {hint}"
    problem = Problem(path="--name", problem=f"'{found}' is not a name", hint=hint)
    raise SpecError([problem], code="usage")


def _check(client: Client, name: str, replicas: int) -> None:
    if any(dataset["name"] == name for dataset in client.datasets()):
        hint = f"remove it first (headgate data rm {name}) or choose another name"
        problem = Problem(path=name, problem=f"dataset '{name}' exists already", hint=hint)
        raise SpecError([problem], code="exists")
    up = sum(node["state"] == "up" for node in client.nodes())
    if replicas > up:
        text, hint = f"{replicas} replicas on {up} nodes", f"use at most {up}"
        problem = Problem(path="--replicas", problem=text, hint=hint)
        raise SpecError([problem])


def _put(
    client: Client,
    name: str,
    parts: list[FilePart],
    settings: ProgramSettings,
    *,
    replicas: int,
    public: bool,
) -> None:
    """Place all shards, then commit the dataset; on any failure, remove the placed shards."""
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn

    name_column = TextColumn("{task.description}", markup=False)
    columns = (name_column, BarColumn(), DownloadColumn(), TransferSpeedColumn())
    try:
        with output.progress(*columns, as_json=settings.as_json) as bar:
            line = bar.add_task(name, total=sum(part.size_bytes for part in parts))
            for index, part in enumerate(parts):
                client.put_shard(name, index, _counted(part, bar, line), replicas=replicas)
        client.commit_dataset(name, shards=len(parts), public=public)
    except BaseException as error:
        # The put of another user under this name is not abandoned.
        if not (isinstance(error, HeadgateError) and error.code in ("exists", "forbidden")):
            with contextlib.suppress(WorldError):  # the first error is reported
                client.abandon_dataset(name)
        if isinstance(error, OSError):
            text = f"cannot be read: {error.strerror}"
            raise SpecError([Problem(path=str(error.filename or ""), problem=text)]) from None
        raise


def _counted(part: FilePart, bar: Progress, line: TaskID) -> Iterator[bytes]:
    for piece in part:
        yield piece
        bar.advance(line, len(piece))


def ls(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Show the shards of this one.")
    ] = None,
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """List datasets, or the shards of one."""
    settings = settle(state, fmt)
    with settings.client() as client:
        found: dict[str, Any]
        if name is None:
            found = {"datasets": client.datasets()}
        else:
            found = {**client.dataset(name), "placement": client.shards(name)}
    if settings.as_json:
        output.print_json(found)
    elif name is None:
        output.print_table(
            ("DATASET", "USER", "SHARDS", "SIZE", "REPLICAS"),
            (
                (d["name"], d["user"], d["shards"], format_size(d["size_bytes"]), d["replicas"])
                for d in found["datasets"]
            ),
            names=() if settings.wide else ("DATASET", "USER"),
        )
    else:
        output.print_table(
            ("SHARD", "SIZE", "NODES"),
            (
                (s["id"], format_size(s["size_bytes"]), ", ".join(s["nodes"]) or "lost")
                for s in found["placement"]
            ),
            names=() if settings.wide else ("NODES", "SHARD"),
        )


def rm(
    name: NameArgument,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """Remove a dataset and its replicas."""
    settings = settle(state, fmt)
    with settings.client() as client:
        found = client.dataset(name)
        size = format_size(found["size_bytes"])
        client.remove_dataset(name, dry_run=True)  # errors come before the question
        if not dry_run:
            output.confirm(f"remove {name} of {found['user']} ({size})?", yes=yes)
            client.remove_dataset(name)
    verb = "would be removed" if dry_run else "removed"
    facts = {"name": name, "size_bytes": found["size_bytes"], "dry_run": dry_run}
    output.print_result(facts, f"{name} ({size}) {verb}", as_json=settings.as_json)
