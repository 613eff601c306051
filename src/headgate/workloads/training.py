"""Data-parallel training: the same model on every node, each with its part of the data.

A linear model is fitted by gradient descent, in NumPy over sockets. It is a gang's program: it uses
the variables that Headgate sets for jobs with `num_nodes`, and saves its progress in the directory
of the task's checkpoint, if it has one.

Parameters: `steps`, `save_every` (10) steps between checkpoints, `pause_s` (0) in each step. The
result of rank 0 is an `.npz` file with `weights`, and `first`, the step from which this attempt
continued; those of the others are empty.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headgate.workloads.task import TaskContext

Vector = NDArray[np.float64]

SAMPLES, FEATURES, RIDGE, RATE = 4000, 32, 0.01, 0.5


def train(task: TaskContext) -> None:
    """Train as one process of the gang; rank 0 writes the weights."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    saved = None if task.checkpoint is None or rank else task.checkpoint / "model.npz"
    group = ProcessGroup(rank, size)
    inputs, targets = (part[rank::size] for part in samples())
    first, weights = restored(group, *load(saved))
    print(f"rank {rank} of {size} continues from step {first}", flush=True)
    for step in range(first, int(task.params["steps"])):
        gradient = inputs.T @ (inputs @ weights - targets) / SAMPLES
        weights = weights - RATE * (group.sum(gradient) + RIDGE * weights)
        if saved is not None and (step + 1) % int(task.params.get("save_every", 10)) == 0:
            save(saved, step + 1, weights)
        time.sleep(float(task.params.get("pause_s", 0)))  # noqa: TID251  # a job's own time
    if rank == 0:
        with task.output.open("wb") as file:
            np.savez(file, weights=weights, first=first)


def samples() -> tuple[Vector, Vector]:
    """Return inputs and targets, the same on every node."""
    rng = np.random.default_rng(7)
    inputs = rng.normal(size=(SAMPLES, FEATURES))
    return inputs, inputs @ rng.normal(size=FEATURES) + 0.1 * rng.normal(size=SAMPLES)


def solution() -> Vector:
    """Return the weights that the training converges to, in closed form."""
    inputs, targets = samples()
    normal = inputs.T @ inputs / SAMPLES + RIDGE * np.eye(FEATURES)
    return np.asarray(np.linalg.solve(normal, inputs.T @ targets / SAMPLES), np.float64)


def restored(group: ProcessGroup, step: int, weights: Vector) -> tuple[int, Vector]:
    """Return the step and the weights of rank 0: the only one that has loaded any is added."""
    both = group.sum(np.append(weights, step))
    return int(both[-1]), both[:-1]


def load(saved: Path | None) -> tuple[int, Vector]:
    """Return the step and the weights of a checkpoint, or those to begin with."""
    if saved is None or not saved.exists():
        return 0, np.zeros(FEATURES)
    with np.load(saved) as arrays:
        return int(arrays["step"]), arrays["weights"]


def save(saved: Path, step: int, weights: Vector) -> None:
    """Write a checkpoint that is complete whenever the process is killed."""
    draft = saved.with_name("draft.npz")
    with draft.open("wb") as file:
        np.savez(file, step=step, weights=weights)
    draft.replace(saved)


class ProcessGroup:
    """All processes of the training: rank 0 adds the vectors of all and returns the sum."""

    def __init__(self, rank: int, size: int) -> None:
        """Connect to rank 0; as rank 0, wait for all others."""
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        self._peers: list[socket.socket] = []
        self._rank = rank
        if rank:
            self._peers = [connected(address)]
            return
        with socket.create_server(address) as server:
            self._peers = [server.accept()[0] for _ in range(size - 1)]

    def sum(self, values: Vector) -> Vector:
        """Return the sum of all processes' vectors, the same everywhere."""
        if self._rank:
            self._peers[0].sendall(values.tobytes())
            return received(self._peers[0], len(values))
        total = values.copy()
        for peer in self._peers:
            total += received(peer, len(values))
        for peer in self._peers:
            peer.sendall(total.tobytes())
        return total


def connected(address: tuple[str, int]) -> socket.socket:
    """Connect to rank 0, which may start later."""
    while True:
        try:
            return socket.create_connection(address)
        except ConnectionRefusedError:
            time.sleep(0.1)  # noqa: TID251  # a job's own time


def received(peer: socket.socket, count: int) -> Vector:
    """Return the next vector from a peer; ConnectionError if it has ended."""
    data = b""
    while len(data) < 8 * count:
        piece = peer.recv(8 * count - len(data))
        if not piece:
            raise ConnectionError("another process of the training has ended")
        data += piece
    return np.frombuffer(data)
