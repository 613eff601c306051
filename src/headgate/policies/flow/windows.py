"""Windows (`headgate`): GPUs that are reserved for later are slots of the flow until then.

The window of a slot is the time until its reservation, rounded down to one of `LENGTHS_S`; other
slots are unlimited. In the flow, each window of each class of GPUs has places of its own, and
a task has options in all windows in which its job's tasks end with a probability of `BACKFILL_P`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.base.arrays import Floats, Ints
from headgate.base.units import SAME_INSTANT_S
from headgate.planning.shares.standing import Standing
from headgate.policies.flow.in_flight import InFlight

LENGTHS_S = np.array([60.0, 300.0, 1800.0, 7200.0])
UNLIMITED = len(LENGTHS_S)
"""The window of GPUs that are not reserved."""
WINDOWS = UNLIMITED + 1


def windows_of(left_s: Floats) -> Ints:
    """Return the windows of GPUs that may be used for some time, -1 if that is too short."""
    windows: Ints = np.searchsorted(LENGTHS_S, left_s + SAME_INSTANT_S, side="right") - 1
    return windows


def shortest_windows(run_s: Floats) -> Ints:
    """Return the shortest windows in which runs of some time end."""
    windows: Ints = np.searchsorted(LENGTHS_S, run_s).astype(np.int64)
    return windows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Windows:
    """The reserved GPUs that are slots of a round until then, and the windows that jobs need."""

    free_gpu: Ints  # rows of free GPUs, by cell (node, class and window)
    free_cell: Ints
    held: InFlight  # the work on GPUs that are held now
    held_window: Ints  # [held GPUs]
    needed: Ints  # [jobs] the shortest window that a job's tasks need


def cells(standing: Standing, node: Ints, gpu_class: Ints, window: Ints) -> Ints:
    """Return the numbers of nodes' windows of classes."""
    cell: Ints = (node * standing.free.shape[1] + gpu_class) * WINDOWS + window
    return cell


def free_by_window(standing: Standing, windows: Windows | None) -> Ints:
    """Return the free GPUs, `[nodes, classes x windows]`."""
    free = np.zeros((standing.free.size, WINDOWS), np.int64)
    free[:, UNLIMITED] = standing.free.ravel()
    if windows is not None:
        free += np.bincount(windows.free_cell, minlength=free.size).reshape(free.shape)
    return free.reshape(len(standing.free), -1)
