"""The job histories that are compared: whole Parquet files, or the jobs of one `vc` of a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headgate.base.errors import Problem, SpecError
from headgate.traces import Trace, TraceFile, TraceOptions, open_trace
from headgate.traces.columns import VC

WHOLE = ("philly2017_jobs.parquet",)
"""Published histories, each of one cluster whose `vc` are queues."""

BY_VC = ("itp2021_jobs.parquet", "gavel_shockwave_traces.parquet")
"""Published histories in which every `vc` is a cluster or an experiment of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the jobs of a history are: a file, or those of one `vc` in it.

    With `queues_by_vc`, each `vc` is a queue.
    """

    path: Path
    vc: str | None = None
    queues_by_vc: bool = False

    @property
    def name(self) -> str:
        """The name in tables: that of the file, then the `vc`."""
        return self.path.stem if self.vc is None else f"{self.path.stem}/{self.vc}"

    def open(self) -> TraceFile:
        """Check the file and return its jobs; errors as of `open_trace`."""
        queue_column = VC if self.queues_by_vc else None
        return open_trace(self.path, TraceOptions(queue_column=queue_column, vc=self.vc))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class History:
    """The jobs of a source in order of time, as far as first in, first out depends on them."""

    source: Source
    submitted_at: NDArray[np.float64]
    compute_s: NDArray[np.float64]
    gpus: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.gpus)

    @property
    def name(self) -> str:
        """The name in tables."""
        return self.source.name


def published(directory: Path) -> tuple[History, ...]:
    """Return the published histories in a directory; those that are missing are an error.

    Raises SpecError `missing_file`, `bad_trace`.
    """
    files = [(directory / name, False) for name in WHOLE]
    files += [(directory / name, True) for name in BY_VC]
    hint = "docs/traces.md names the sources; or name trace files of your own as FILE"
    need([path for path, _ in files], hint)
    return tuple(h for path, by_vc in files for h in read((path,), by_vc=by_vc))


def need(paths: Iterable[Path], hint: str) -> None:
    """Raise SpecError `missing_file` for files that do not exist."""
    missing = [path for path in paths if not path.is_file()]
    if missing:
        problems = [Problem(path=str(path), problem="no such file", hint=hint) for path in missing]
        raise SpecError(problems, code="missing_file")


def read(paths: Iterable[Path], *, by_vc: bool) -> tuple[History, ...]:
    """Return a history per file, or per `vc` of each; every file is checked.

    The `vc` of a whole file are its queues, unless it has a column `queue`, or rows without a `vc`.
    Raises SpecError `missing_file`, or `bad_trace`, also for a file without the column `vc` or rows
    without a value in it when `by_vc`.
    """
    return tuple(h for path in paths for h in (_by_vc(path) if by_vc else (_whole(path),)))


def _whole(path: Path) -> History:
    trace = open_trace(path).read()
    in_queues = trace.queue is None and trace.vc is not None and bool(np.all(trace.vc != ""))
    return _history(Source(path=path, queues_by_vc=in_queues), trace)


def _by_vc(path: Path) -> list[History]:
    trace = open_trace(path, TraceOptions(queue_column=VC)).read()
    assert trace.vc is not None, "open_trace requires the column of the queues"
    names = sorted(set(trace.vc.tolist()))
    return [_history(Source(path=path, vc=name, queues_by_vc=True), trace) for name in names]


def _history(source: Source, trace: Trace) -> History:
    order = np.argsort(trace.submit_s, kind="stable")
    if source.vc is not None:
        assert trace.vc is not None, "only a trace with a vc is divided by it"
        order = order[trace.vc[order] == source.vc]
    return History(
        source=source,
        submitted_at=trace.submit_s[order],
        compute_s=trace.duration_s[order],
        gpus=trace.gpus[order],
    )


def repeated(histories: Sequence[History]) -> list[str]:
    """Return the names that several histories have."""
    names = [history.name for history in histories]
    return sorted({name for name in names if names.count(name) > 1})
