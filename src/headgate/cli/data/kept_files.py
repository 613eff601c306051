"""What verbs say of the files that runs have left, and the fetching of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.base.errors import Problem, SpecError
from headgate.base.units import format_size
from headgate.cli.common import output
from headgate.cli.common.settings import ProgramSettings

if TYPE_CHECKING:
    from headgate.api.client import Client

_MOST_NAMED = 5


def need_one_target(result: str | None, files: Path | None) -> None:
    """Raise SpecError `usage` if places for both a result and files are given."""
    if result is not None and files is not None:
        problem = Problem(path="--files", problem="does not go with --output", hint="call it twice")
        raise SpecError([problem], code="usage")


def kept_text(view: Mapping[str, Any]) -> str | None:
    """Return what a job has left as text, `2 files kept, 41 MiB: headgate get job-3 --files .`.

    None if it has left nothing that can be fetched.
    """
    files = view.get("files") or {}
    if not files.get("count"):
        return None
    kept = f"{output.counted(files['count'], 'file')} kept, {format_size(files['size_bytes'])}"
    return f"{kept}: headgate get {view['id']} --files ."


def skipped_text(view: Mapping[str, Any]) -> str | None:
    """Return how many entries of working directories are not kept: links, devices and the like."""
    skipped = (view.get("files") or {}).get("skipped")
    if not skipped:
        return None
    return f"{output.counted(skipped, 'item')} not kept (links, devices, sockets, pipes)"


def left_warning(view: Mapping[str, Any]) -> Problem | None:
    """Return a warning that more files are left on nodes than can be fetched; None if not."""
    files = view.get("files") or {}
    if not files.get("left"):
        return None
    left = f"{output.counted(files['left'], 'file')}, {format_size(files['left_bytes'])}"
    places = "; ".join(f"{place['directory']} on {place['node']}" for place in files["left_in"])
    text = f"{left}, cannot be fetched, and stay until the results expire: {places}"
    hint = (
        "keep_files in the job file sets the limit, and which files are kept; "
        f"headgate get {view['id']} --files DIR names them"
    )
    return Problem(path=view["id"], problem=text, hint=hint)


def show_kept(view: Mapping[str, Any]) -> None:
    """Print on stderr what an ended job has left; nothing where it has left nothing."""
    text, warning = kept_text(view), left_warning(view)
    if text is not None:
        output.print_note(text)
    if skipped := skipped_text(view):
        output.print_note(f"{skipped}: headgate get {view['id']} --files DIR names them")
    if warning is not None:
        output.warn(warning)


def fetch(
    client: Client,
    job: str,
    task: int | None,
    directory: Path,
    settings: ProgramSettings,
    *,
    yes: bool,
) -> None:
    """Write the files that a job has left into a directory, and show how many they are."""
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn

    from headgate.api.receiving import Download

    download = Download(client, job, directory, task=task)
    differing = download.differing()
    if differing:
        shown = ", ".join(str(path) for path in differing[:_MOST_NAMED])
        more = f" and {len(differing) - _MOST_NAMED} more" if len(differing) > _MOST_NAMED else ""
        output.confirm(f"{shown}{more}: other content is there; overwrite it?", yes=yes)
    name = TextColumn("{task.description}", markup=False)
    columns = (name, BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with output.progress(*columns, as_json=settings.as_json) as bar:
        line = bar.add_task(job, total=download.size_bytes)
        written = download.write(lambda moved: bar.advance(line, moved))
    size_bytes = sum(file["size_bytes"] for file in written)
    facts = {
        "job": job,
        "task": task,
        "directory": str(directory),
        "files": written,
        "size_bytes": size_bytes,
        "unkept": download.unkept,
    }
    text = f"{output.counted(len(written), 'file')}, {format_size(size_bytes)}, in {directory}"
    output.print_result(facts, text, as_json=settings.as_json)
    if settings.as_json:
        return
    for file in download.unkept:
        output.print_note(f"not fetched: {file['path']} of task {file['task']}: {file['why']}")
    warning = left_warning(client.job(job))
    if warning is not None:
        output.warn(warning)
