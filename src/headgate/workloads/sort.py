"""String sort: records of 20 bytes by their first 4 characters, stably.

`sort_part` is run for each shard and cuts its sorted records into ranges of keys, one per part of
its result; `merge_range` is run once per range and merges that part of all results. The ranges, one
after the other, are the whole input, stably sorted.

Shards and results are raw records, without separators. Keys compare as bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headgate.workloads.records import parts_of, whole_records, wrong
from headgate.workloads.task import TaskContext, array_module, from_numpy, to_numpy

RECORD_BYTES = 20
KEY_CHARACTERS = 4

Records = NDArray[np.void]

_KEYED = np.dtype([("key", ">u4"), ("rest", "V16")])
_PLACE_BITS = 31  # with the 32 bits of a key: 63 bits, which fit in an int64


def sort_part(task: TaskContext) -> None:
    """Sort the records of the task's shards and write one range of keys to each part.

    The parameters `least` and `greatest` are the characters between which those of keys are
    expected (space and `~` if not given): all keys of 4 such characters, in order, are cut into
    equal ranges. So tasks with the same parameters and as many parts cut alike, whatever they
    read, and keys that are not evenly spread give parts that are not alike in size. A key with
    other characters goes to the range that its place in the order falls in. Needs memory for the
    records twice.
    """
    records = _read(task.shards)
    order = _stable_order(array_module(task), _keys(records))
    records = records[order]
    outputs = parts_of(task)
    cuts = np.searchsorted(_keys(records), splitters(task.params, len(outputs)))
    for path, part in zip(outputs, np.split(records, cuts), strict=True):
        _write(path, part)
    print(f"{records.size} records in {len(outputs)} parts")


def merge_range(task: TaskContext) -> None:
    """Merge sorted files stably, in the order of the files; on the CPU."""
    records = _read(task.shards)
    order = np.argsort(_keys(records), kind="stable")  # Timsort: merges the sorted runs
    _write(task.output, records[order])
    print(f"{records.size} records of {len(task.shards)} files")


def splitters(params: Mapping[str, Any], parts: int) -> NDArray[np.int64]:
    """Return the least key of each part but the first, as big-endian numbers."""
    least, greatest = (_character(params, *p) for p in (("least", " "), ("greatest", "~")))
    if least > greatest:
        raise wrong("params.greatest", "comes before params.least")
    base = greatest - least + 1
    ranks = [part * base**KEY_CHARACTERS // parts for part in range(1, parts)]
    keys = np.zeros(len(ranks), np.int64)
    for place in range(KEY_CHARACTERS):
        digits = np.array(ranks, np.int64) // base ** (KEY_CHARACTERS - 1 - place) % base
        keys = keys << 8 | digits + least
    return keys


def _character(params: Mapping[str, Any], name: str, default: str) -> int:
    value = params.get(name, default)
    if not (isinstance(value, str) and len(value) == 1 and value.isascii()):
        raise wrong(f"params.{name}", f"'{value}' is not one ASCII character")
    return ord(value)


def _stable_order(module: Any, keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the indices that sort the keys stably; indices make keys distinct for any sort."""
    numbered = keys << _PLACE_BITS | np.arange(keys.size, dtype=np.int64)
    return to_numpy(from_numpy(module, numbered).argsort())


def _keys(records: Records) -> NDArray[np.int64]:
    return records.view(_KEYED)["key"].astype(np.int64)


def _read(paths: Sequence[Path]) -> Records:
    for path in paths:
        whole_records(path, RECORD_BYTES, f"records of {RECORD_BYTES} bytes")
    pieces = [np.fromfile(path, f"V{RECORD_BYTES}") for path in paths]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _write(path: Path, records: Records) -> None:
    with path.open("wb") as file:
        records.tofile(file)
