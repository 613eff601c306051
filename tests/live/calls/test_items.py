"""Items between their owner and slots, over real sockets and processes, without a cluster."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.live.calls.item_server import Ended, ItemServer
from headgate.live.calls.item_worker import LENGTH, MOST_BYTES, TOKEN, pickled
from headgate.planning.calls.dispatch import Dispatcher

SECRET = "the token of this lease"
SLOT = """
import json, sys
from pathlib import Path
from types import SimpleNamespace
from headgate.live.calls.item_worker import serve
params, output = json.loads(sys.argv[1]), Path(sys.argv[2])
serve(SimpleNamespace(params=params, output=output))
"""


def double(number: int) -> int:
    return 2 * number


def too_large(_: int) -> bytes:
    return bytes(MOST_BYTES + 1)


def raises(number: int) -> None:
    raise LookupError(number)


def exits(_: int) -> None:
    sys.exit("no")


def crashes(number: int) -> int:
    if number == 3:
        os._exit(9)
    return number


def unpicklable(_: int) -> Any:
    return socket.socket()


def slow(folder: str) -> str:
    Path(folder, "begun").touch()
    time.sleep(0.5)
    return "ended"


def until_released(folder: str) -> str:
    Path(folder, "begun").touch()
    while not Path(folder, "released").exists():
        time.sleep(0.01)
    return "ended"


class Owner:
    """An owner of items, on an event loop in this thread, and its slots, which are processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.loop = asyncio.new_event_loop()
        self.dispatcher = Dispatcher(retries=1)
        self.calls: list[tuple[int, bytes]] = []
        self.codes: list[bytes] = []
        self.ends: dict[int, Ended] = {}
        self.lost: list[int] = []
        self.slots: list[subprocess.Popen[bytes]] = []
        self.server = ItemServer(
            self.dispatcher,
            token=SECRET,
            payload=self.calls.__getitem__,
            code=self.codes.__getitem__,
            on_ended=lambda ends: self.ends.update({end.item: end for end in ends}),
            on_lost=self.lost.append,
        )
        self.port = self.loop.run_until_complete(self.server.start("127.0.0.1"))

    def slot(self, *, secret: str = SECRET) -> subprocess.Popen[bytes]:
        params = json.dumps({"owner": f"127.0.0.1:{self.port}", "lease": 0})
        output = self.folder / f"slot-{len(self.slots)}"
        source = Path(__file__).parents[3]
        self.slots.append(
            subprocess.Popen(
                [sys.executable, "-c", SLOT, params, str(output)],
                env={**os.environ, TOKEN: secret, "PYTHONPATH": str(source)},
            )
        )
        return self.slots[-1]

    def add(self, function: Callable[..., Any], *arguments: Any) -> range:
        first = len(self.calls)
        self.codes.append(pickled(function))
        code = len(self.codes) - 1
        self.calls += [(code, pickled(((argument,), {}))) for argument in arguments]
        self.server.add(first, len(self.calls))
        return range(first, len(self.calls))

    def until(self, truth: Callable[[], Any]) -> None:
        async def wait() -> None:
            async with asyncio.timeout(60):
                while not truth():  # noqa: ASYNC110  # no event
                    await asyncio.sleep(0.01)

        self.loop.run_until_complete(wait())

    def results(self, items: range) -> list[tuple[bool, Any]]:
        self.until(lambda: set(items) <= {*self.ends, *self.lost})
        return [
            (self.ends[item].ok, pickle.loads(self.ends[item].content))
            for item in items
            if item in self.ends
        ]

    def close(self) -> None:
        self.loop.run_until_complete(self.server.close())
        self.until(lambda: all(slot.poll() is not None for slot in self.slots))
        self.loop.close()


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    owner = Owner(tmp_path)
    yield owner
    for slot in owner.slots:
        slot.send_signal(signal.SIGCONT)
    owner.close()


def test_results_and_errors_of_items_reach_their_owner(owner: Owner) -> None:
    slots = [owner.slot(), owner.slot()]
    assert owner.results(owner.add(double, *range(5000))) == [(True, 2 * n) for n in range(5000)]
    ((ok, (error, text)),) = owner.results(owner.add(raises, 5))
    assert (ok, type(error), error.args) == (False, LookupError, (5,))
    assert "in raises" in text
    for function, words in (
        (exits, "SystemExit: no"),
        (too_large, f"bytes, more than {MOST_BYTES}: write it to a file"),
        (unpicklable, "cannot pickle 'socket' object"),
    ):
        ((ok, (_, text)),) = owner.results(owner.add(function, 1))
        assert not ok
        assert words in text
    owner.close()
    assert [slot.returncode for slot in slots] == [0, 0]
    counts = [int((owner.folder / f"slot-{n}").read_text()) for n in range(2)]
    assert sum(counts) == 5004
    owner.loop = asyncio.new_event_loop()


def test_code_that_a_slot_cannot_import_fails_its_items_alone(owner: Owner) -> None:
    owner.slot()
    owner.codes.append(b"cthere_is_no_such\nmodule\n.")
    owner.calls.append((0, pickled(((1,), {}))))
    owner.server.add(0, 1)
    ((ok, (error, _)),) = owner.results(range(1))
    assert (ok, error.name) == (False, "there_is_no_such")
    assert owner.results(owner.add(double, 4)) == [(True, 8)]


def test_item_that_crashes_its_process_is_lost_after_its_retries_and_others_are_not(
    owner: Owner,
) -> None:
    items = owner.add(crashes, *range(40))
    for _ in range(3):  # the first loses several items, each of which is suspected
        slot = owner.slot()
        owner.until(lambda slot=slot: slot.poll() is not None)
        assert slot.returncode == 9
    owner.slot()
    assert owner.results(items) == [(True, n) for n in range(40) if n != 3]
    assert owner.lost == [3]


def test_slot_that_gets_notice_ends_the_item_at_hand_and_gives_the_others_back(
    owner: Owner,
) -> None:
    slot = owner.slot()
    items = owner.add(slow, str(owner.folder), str(owner.folder))
    owner.until((owner.folder / "begun").exists)
    slot.terminate()
    owner.until(lambda: slot.poll() is not None)
    assert slot.returncode == 128 + signal.SIGTERM
    assert list(owner.ends) == [0]
    assert not owner.lost
    owner.slot()
    assert owner.results(items) == [(True, "ended")] * 2


def test_item_whose_slots_are_killed_after_their_notice_runs_again_without_a_retry(
    owner: Owner,
) -> None:
    begun = owner.folder / "begun"
    items = owner.add(until_released, str(owner.folder))
    for _ in range(3):  # more often than it has retries
        slot = owner.slot()
        owner.until(begun.exists)
        begun.unlink()
        slot.terminate()
        owner.until(lambda: bool(owner.server._noticed))
        slot.kill()
        owner.until(lambda: owner.dispatcher.slots == 0)
    (owner.folder / "released").touch()
    owner.slot()
    assert owner.results(items) == [(True, "ended")]
    assert not owner.lost


def test_idle_slot_that_gets_notice_ends(owner: Owner) -> None:
    slot = owner.slot()
    owner.results(owner.add(double, 1))
    slot.terminate()
    owner.until(lambda: slot.poll() is not None)
    assert slot.returncode == 128 + signal.SIGTERM


def test_slot_ends_when_its_owner_is_gone(owner: Owner) -> None:
    connected = owner.slot()
    owner.results(owner.add(double, 1))
    owner.loop.run_until_complete(owner.server.close())
    late = owner.slot()
    owner.until(lambda: connected.poll() == 0 and late.poll() == 0)


def test_slot_that_says_hello_while_its_owner_ends_is_ended(owner: Owner) -> None:
    async def end() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", owner.port)
        await asyncio.sleep(0.1)  # it is accepted
        closing = asyncio.create_task(owner.server.close())
        await asyncio.sleep(0)
        for message in (SECRET.encode(), pickle.dumps((0, "n0"))):
            writer.write(LENGTH.pack(len(message)) + message)
        rest = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        await asyncio.wait_for(closing, 20)
        return rest

    assert owner.loop.run_until_complete(end()) == b""
    assert owner.dispatcher.slots == 0


@pytest.mark.parametrize("secret", ["", "another token of any size", SECRET[:-1] + "x"])
def test_peer_without_the_token_gets_nothing(owner: Owner, secret: str) -> None:
    owner.add(double, 1)
    peer = owner.slot(secret=secret)
    owner.until(lambda: peer.poll() is not None)
    assert owner.dispatcher.slots == 0
    owner.slot()
    assert owner.results(range(1)) == [(True, 2)]


def test_peer_that_sends_nothing_or_a_huge_length_stops_no_other(owner: Owner) -> None:
    with (
        socket.create_connection(("127.0.0.1", owner.port)),
        socket.create_connection(("127.0.0.1", owner.port)) as huge,
    ):
        huge.sendall(LENGTH.pack(1 << 62))
        owner.slot()
        assert owner.results(owner.add(double, 1)) == [(True, 2)]
