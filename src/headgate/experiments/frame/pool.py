"""Many independent computations in several processes, with equal results in equal order."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Any, TypeVar

T = TypeVar("T", bound=Hashable)
S = TypeVar("S")
R = TypeVar("R")


def run_all(
    items: Sequence[T],
    work: Callable[[T, S], R],
    shared: S,
    *,
    workers: int,
    step: Callable[[T], None] = lambda item: None,
) -> dict[T, R]:
    """Return `work(item, shared)` by item, in order; `step` is called after each.

    With one worker they are executed in this process, else in processes that end with this one,
    even if it is killed; `work` is then a function of a module. `shared` is sent once to each
    process. Items are started in order. An error is raised here and ends the other processes.
    """
    if workers == 1:
        found: dict[T, R] = {}
        for item in items:
            found[item] = work(item, shared)
            step(item)
        return found
    with _pool(work, shared, workers) as pool:
        with _no_interrupts():  # inherited by the processes of the pool
            futures = {pool.submit(_in_pool, item): item for item in items}
        for future in as_completed(futures):
            future.result()  # raises the error of the worker process
            step(futures[future])
        return {item: future.result() for future, item in futures.items()}


_of_parent: list[Any] = []  # in a process of the pool: its parent's `work` and `shared`


def _in_pool(item: Any) -> Any:
    work, shared = _of_parent
    return work(item, shared)


@contextmanager
def _pool(
    work: Callable[[Any, Any], Any], shared: Any, workers: int
) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of processes; an error kills them before their work has ended."""
    earlier = {child.pid for child in multiprocessing.active_children()}
    pool = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=(work, shared),
    )
    try:
        yield pool
    except BaseException:
        for child in multiprocessing.active_children():
            if child.pid not in earlier:
                child.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Defer SIGINT: a terminal sends it to all processes, and only the parent handles it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    # The mask is of this thread only: another thread may receive the signal.
    held: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if held:
            signal.raise_signal(signal.SIGINT)


def _start_worker(work: Callable[[Any, Any], Any], shared: Any) -> None:
    """Prepare a process of the pool: it ends if its parent ends."""
    _of_parent[:] = work, shared
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
