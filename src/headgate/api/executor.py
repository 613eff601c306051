"""Many small calls on the cluster: `headgate.Executor`, as in `concurrent.futures`, and `map`.

The owner of the calls is this process: it submits jobs whose tasks are *slots*, processes that each
hold the resources of one call, and sends calls to them directly. So a call costs the scheduler
nothing, while queues, shares and limits hold for slots as for all tasks.
"""

from __future__ import annotations

import asyncio
import math
import pickle
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor as Base
from concurrent.futures import Future, wait
from contextlib import suppress
from itertools import count, islice
from typing import Any, NamedTuple, ParamSpec, TypeVar

from headgate.api.client import Client
from headgate.base.errors import HeadgateError, Problem, SpecError, WorldError
from headgate.live.calls.item_server import Ended, ItemServer
from headgate.live.calls.item_worker import MOST_BYTES, TOKEN, pickled
from headgate.model import SLOT
from headgate.planning.balancers import BALANCERS
from headgate.planning.calls.dispatch import Dispatcher, Pick
from headgate.planning.calls.picks import picks_by

P = ParamSpec("P")
T = TypeVar("T")

_IN_FLIGHT = 10_000  # calls of a `map` whose results have not been consumed
_LOOK_S = 1.0
_END_S = 10.0
_RETRIES = 1_000_000  # of a slot: what ends its process is counted by call
_MOST_SLOTS = 1024  # by default
_UNENDED = ("queued", "active", "stopping")


class RemoteTraceback(Exception):  # as concurrent.futures names it
    """The traceback of a call in the process that executed it."""

    def __str__(self) -> str:
        """Return the traceback."""
        return f"\n{self.args[0]}"


class _Call(NamedTuple):
    code: int
    payload: bytes
    future: Future[Any]


class Executor(Base):
    """Executes calls in processes on the cluster, each with `resources` of its own.

    At most `slots` calls at a time, by default as many as the nodes have CPUs and GPUs for. A call
    whose process is lost, by a crash or with its node, is executed again; one that has crashed its
    process more than `retries` times fails with WorldError `lost`. So a call may be executed in
    part, and again, and has one result. Functions and arguments are pickled: those of `__main__` by
    value, others are imported there. After `idle_s` seconds without calls the processes end; they
    start again with the next call. When this process ends, so do they.
    """

    def __init__(
        self,
        *,
        resources: Mapping[str, Any] | None = None,
        slots: int | None = None,
        queue: str | None = None,
        name: str = "calls",
        retries: int = 2,
        idle_s: float = 10.0,
        balancer: str | Pick = "least-cost",
        client: Client | None = None,
        **keys: Any,
    ) -> None:
        """`resources` are as in a job file, by default one CPU; `keys` are further keys of one.

        `balancer` chooses the node whose processes get the next calls: one of the balancers for
        `--place`, or a function. SpecError for invalid ones; WorldError `unreachable` when no
        controller responds.
        """
        if slots is not None and slots < 1:
            raise SpecError([Problem(path="slots", problem=f"must be at least 1, not {slots}")])
        pick = _pick(balancer)
        self._client = client or Client()
        self._resources = {"gpus": 0, **(resources or {})}
        self._keys = {"name": name, **({} if queue is None else {"queue": queue}), **keys}
        self._token, self._owner = secrets.token_hex(16), ""
        self._client.submit(self._job(1, 0), dry_run=True)
        self._most = slots or self._room()
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._calls: dict[int, _Call] = {}  # that have not ended, by their number
        self._codes: list[bytes] = []
        self._code_of: dict[Any, int] = {}
        self._next = self._sent = 0  # numbers: of the next call, of the first not dispatched
        self._used_at = time.monotonic()
        self._jobs: dict[str, int] = {}  # that have not ended: their slots
        self._numbers = count()
        self._closed = False
        self._changed = threading.Event()
        self._server = ItemServer(
            Dispatcher(retries=retries, pick=pick, wanted=self._wanted),
            token=self._token,
            payload=lambda item: self._calls[item][:2],
            code=self._codes.__getitem__,
            on_ended=self._on_ended,
            on_lost=self._on_lost,
        )
        self._loop = asyncio.new_event_loop()
        self._serving = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._serving.start()
        host = self._address()
        port = asyncio.run_coroutine_threadsafe(self._server.start(host), self._loop).result()
        self._owner = f"{host}:{port}"
        self._watching = threading.Thread(target=self._watch, daemon=True)
        self._watching.start()

    def __enter__(self) -> Executor:
        return self

    # --- calls -----------------------------------------------------------------------------------

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Return the future of a call; SpecError if it cannot be pickled, or is over 256 MiB."""
        payload = _pickled("the arguments", (args, kwargs))
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            code = self._code(fn)
            wakes = self._next == self._sent
            self._calls[self._next] = _Call(code, payload, future)
            self._next += 1
        if wakes:  # else the loop has been woken, and finds this call, too
            self._loop.call_soon_threadsafe(self._dispatch)
        return future

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[T]:
        """Yield the results in the order of the calls; at most 10,000 wait to be consumed.

        `chunksize` is of the interface, and not needed: calls are sent in batches anyway.
        """
        del chunksize
        return self._results(fn, zip(*iterables, strict=False), timeout, ordered=True)

    def unordered(self, fn: Callable[..., T], *iterables: Iterable[Any]) -> Iterator[T]:
        """Yield the results as calls end."""
        return self._results(fn, zip(*iterables, strict=False), None, ordered=False)

    def _results(
        self, fn: Callable[..., T], calls: Iterator[Any], timeout_s: float | None, *, ordered: bool
    ) -> Iterator[T]:
        end = math.inf if timeout_s is None else time.monotonic() + timeout_s
        ended: deque[Future[T]] = deque()
        some = threading.Semaphore(0)

        def on_end(future: Future[T]) -> None:
            ended.append(future)
            some.release()

        def submit(args: tuple[Any, ...]) -> None:
            future = self.submit(fn, *args)
            if ordered:
                ended.append(future)
            else:
                future.add_done_callback(on_end)

        unused = 0
        for args in islice(calls, _IN_FLIGHT):  # before the first result is consumed
            submit(args)
            unused += 1

        def results() -> Iterator[T]:
            nonlocal unused
            while unused:
                left_s = None if math.isinf(end) else max(0.0, end - time.monotonic())
                if not ordered:
                    some.acquire()
                yield ended.popleft().result(left_s)
                unused -= 1
                for args in islice(calls, 1):
                    submit(args)
                    unused += 1

        return results()

    def shutdown(
        self, wait: bool = True, *, cancel_futures: bool = False
    ) -> None:  # of the interface
        """End the processes when all calls have ended; with `cancel_futures`, those not begun."""
        with self._lock:
            self._closed = True
        futures = [call.future for call in tuple(self._calls.values())]
        if cancel_futures:
            for future in futures:
                future.cancel()
        end = threading.Thread(target=self._end, args=(futures,))
        end.start()
        if wait:
            end.join()

    def _code(self, fn: Callable[..., Any]) -> int:
        """Return the number of a function, which each slot gets once."""
        with suppress(TypeError):  # it has no hash
            if fn in self._code_of:
                return self._code_of[fn]
        self._codes.append(_pickled(f"function {getattr(fn, '__name__', fn)}", fn))
        with suppress(TypeError):
            self._code_of[fn] = len(self._codes) - 1
        return len(self._codes) - 1

    def _dispatch(self) -> None:
        """Hand new calls to the dispatcher, and have slots requested if there are too few."""
        with self._lock:
            first, self._sent = self._sent, self._next
        self._used_at = time.monotonic()
        self._server.add(first, self._sent)
        if self._unended() > sum(self._jobs.values()):
            self._changed.set()

    def _unended(self) -> int:
        return min(self._most, len(self._calls))

    def _wanted(self, item: int) -> bool:
        """Return whether a call is not cancelled; it cannot be from now on."""
        future = self._calls[item].future
        if future.running():  # a slot has given it back
            return True
        if future.set_running_or_notify_cancel():
            return True
        del self._calls[item]
        return False

    def _on_ended(self, ends: Sequence[Ended]) -> None:
        self._used_at = time.monotonic()
        for item, ok, content in ends:
            future = self._calls.pop(item).future
            try:
                value = pickle.loads(content)  # of a process of our user
            except Exception as error:  # noqa: BLE001  # such as a class that is not here
                future.set_exception(error)
                continue
            if ok:
                future.set_result(value)
            else:
                future.set_exception(_remote(*value))

    def _on_lost(self, item: int) -> None:
        """Fail a call that has crashed its process too often."""
        text = "the process that executed the call crashed, each time"
        hint = f"headgate logs shows its output: {', '.join(self._jobs)}"
        error = WorldError([Problem(path="call", problem=text, hint=hint)], code="lost")
        self._calls.pop(item).future.set_exception(error)

    # --- slots -----------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Keep as many slots as calls can use; end them when none come."""
        while not self._closed or self._calls:
            self._changed.wait(_LOOK_S if self._jobs else None)
            self._changed.clear()
            try:
                self._look()
            except HeadgateError as error:
                if error.code != "unreachable":  # the controller restarts
                    self._loop.call_soon_threadsafe(self._fail, error)

    def _look(self) -> None:
        for job in tuple(self._jobs):
            view = self._client.job(job)
            if view["state"] not in _UNENDED:
                del self._jobs[job]
                if view["state"] != "finished":
                    text = f"job {job}, whose processes execute the calls, was {view['state']}"
                    problem = Problem(path=job, problem=text, hint=view["message"] or "")
                    raise WorldError([problem], code="lost")
        missing = self._unended() - sum(self._jobs.values())
        if missing > 0:
            job = self._client.submit(self._job(missing, next(self._numbers)))
            self._jobs[job] = missing
        elif not self._calls and time.monotonic() - self._used_at > self._idle_s:
            self._loop.call_soon_threadsafe(self._server.end_slots)

    def _fail(self, error: HeadgateError) -> None:
        """Fail all calls that have not ended."""
        for item in self._server.clear():
            if (call := self._calls.pop(item, None)) is not None:
                call.future.set_exception(error)

    def _end(self, futures: Iterable[Future[Any]]) -> None:
        """Wait for calls, then end the slots; those that have not started are finished, too."""
        wait(futures)
        self._changed.set()
        self._watching.join()
        asyncio.run_coroutine_threadsafe(self._server.close(), self._loop).result()
        until = time.monotonic() + _END_S
        for job in tuple(self._jobs):
            with suppress(HeadgateError):
                while self._client.withdraw_slots(job)["state"] in _UNENDED:
                    if time.monotonic() > until:  # a slot does not end
                        self._client.cancel(job)
                        break
                    time.sleep(0.05)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._serving.join()
        self._loop.close()

    def _job(self, slots: int, number: int) -> dict[str, Any]:
        tasks = {
            "count": slots,
            "run": SLOT,
            "params": {"owner": self._owner, "lease": number},
            "resources": self._resources,
            "retries": _RETRIES,
        }
        envs = {**self._keys.get("envs", {}), TOKEN: self._token}
        return {**self._keys, "tasks": tasks, "envs": envs}

    def _room(self) -> int:
        """Return how many calls the nodes that are up have CPUs and GPUs for, at least 1."""
        gpus = float(self._resources["gpus"])
        cpus = float(self._resources.get("cpus", 0 if gpus else 1))
        room = 0
        for node in self._client.nodes():
            if node["state"] == "up":
                kinds = ((len(node["gpus"]), gpus), (node["cpus"], cpus))
                room += min(int(has // needs) for has, needs in kinds if needs)
        return min(max(1, room), _MOST_SLOTS)

    def _address(self) -> str:
        """Return the address of this machine at which nodes reach it."""
        reports = [node["report"] for node in self._client.nodes() if node["report"]]
        if not reports:
            problem = Problem(path="nodes", problem="no node is up", hint="see headgate nodes")
            raise WorldError([problem], code="unreachable")
        host, _, port = reports[0]["address"].rpartition(":")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, int(port)))  # sends nothing
            return str(probe.getsockname()[0])


def map(  # noqa: A001  # the cluster's `map`
    fn: Callable[..., T],
    *iterables: Iterable[Any],
    resources: Mapping[str, Any] | None = None,
    slots: int | None = None,
    retries: int = 2,
    ordered: bool = True,
    **options: Any,
) -> Iterator[T]:
    """Yield the results of `fn` on the cluster, as the builtin `map`, or as calls end.

    The error of a call is raised where its result would be. `options` are those of `Executor`.
    """
    executor = Executor(resources=resources, slots=slots, retries=retries, **options)
    try:
        found = executor.map if ordered else executor.unordered
        results = found(fn, *iterables)
    except BaseException:
        executor.shutdown(cancel_futures=True)
        raise

    def consumed() -> Iterator[T]:
        try:
            yield from results
        finally:
            executor.shutdown(cancel_futures=True)

    return consumed()


def _pick(balancer: str | Pick) -> Pick:
    if not isinstance(balancer, str):
        return balancer
    if balancer not in BALANCERS:
        hint = f"the balancers are {', '.join(BALANCERS)}"
        raise SpecError([Problem(path="balancer", problem=f"'{balancer}' is none", hint=hint)])
    return picks_by(BALANCERS[balancer])


def _pickled(what: str, value: Any) -> bytes:
    try:
        content = pickled(value)
    except Exception as error:
        problem = f"cannot be pickled: {type(error).__name__}: {error}"
        hint = "pass what it needs as arguments; open files and connections inside the function"
        raise SpecError([Problem(path=what, problem=problem, hint=hint)]) from error
    if len(content) > MOST_BYTES:
        problem = f"{len(content)} bytes pickled, more than {MOST_BYTES}"
        hint = "put it into a file, or a dataset, and pass the name"
        raise SpecError([Problem(path=what, problem=problem, hint=hint)])
    return content


def _remote(error: BaseException | None, text: str) -> BaseException:
    """Return the error of a call, with its traceback there as its cause."""
    found = error if error is not None else RuntimeError("the call failed")
    found.__cause__ = RemoteTraceback(text)
    return found
