"""An MPI program that exchanges data in steps: `mpi_steps.py PATTERN BYTES START_AT SECONDS`.

It needs mpi4py and nothing else, so any Python that has it can run this file. From the time
START_AT (seconds since the epoch) the ranks exchange BYTES per rank and step, for so many SECONDS.
Rank 0 prints the steps and the time that they took, as JSON. Every step is checked.
"""

from __future__ import annotations

import json
import sys
import time
from array import array
from typing import Any


def main(pattern: str, size_bytes: int, start_at: float, seconds: float) -> None:
    """Exchange data until the time is over."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    step = {"all-reduce-ring": _all_reduce, "all-to-all": _all_to_all}[pattern]
    step(MPI, world, size_bytes)  # connects all pairs
    time.sleep(max(0.0, start_at - time.time()))
    world.Barrier()
    begin, steps, more = MPI.Wtime(), 0, array("b", [1])
    while more[0]:
        step(MPI, world, size_bytes)
        steps += 1
        more[0] = MPI.Wtime() - begin < seconds
        world.Bcast([more, MPI.BYTE], root=0)
    if world.rank == 0:
        print(json.dumps({"steps": steps, "seconds": MPI.Wtime() - begin}), flush=True)


def _all_reduce(mpi: Any, world: Any, size_bytes: int) -> None:
    """Sum an array of floats over all ranks."""
    values = array("f", [float(world.rank + 1)]) * max(1, size_bytes // 4)
    world.Allreduce(mpi.IN_PLACE, [values, mpi.FLOAT])
    assert values[-1] == world.size * (world.size + 1) / 2


def _all_to_all(mpi: Any, world: Any, size_bytes: int) -> None:
    """Send every rank its part of an array of bytes."""
    part = max(1, size_bytes // world.size)
    sent = array("b", [world.rank]) * (part * world.size)
    taken = array("b", bytes(part * world.size))
    world.Alltoall([sent, part, mpi.BYTE], [taken, part, mpi.BYTE])
    assert taken[::part].tolist() == list(range(world.size))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
