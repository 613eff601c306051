"""The head's loss is noticed; it is started again, with bounded pauses, as often as it takes."""

from __future__ import annotations

import json
import logging
import socket
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from headgate.base.errors import WorldError
from headgate.live.cluster import head
from headgate.live.cluster.node_supervisor import STARTS
from headgate.live.cluster.ray_nodes import HEAD, LocalCluster, Seat, local_cluster

NO_PROCESS = 2**22 + 1  # above the greatest process id
HOST = "127.0.0.1"


class _Responds(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.sendall(b"settings")


class _Bed:
    """A recorded cluster, whose head starts or fails as set by the test; time is simulated."""

    def __init__(self, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state = state
        self.pauses: list[float] = []
        self.now_s = 1e9
        self.address = _closed_address()
        self.comes_up_after = 0  # starts that fail
        self.responding = socketserver.TCPServer((HOST, 0), _Responds)
        threading.Thread(target=self.responding.serve_forever, args=(0.01,), daemon=True).start()
        self.record({HEAD: NO_PROCESS})
        monkeypatch.setattr(head, "restart_nodes", self._restart)
        self.process_runs = True
        monkeypatch.setattr(head, "age_s", lambda *_: 1.0 if self.process_runs else None)
        clock = SimpleNamespace(sleep=self.pauses.append, time=lambda: self.now_s)
        monkeypatch.setattr(head, "time", clock)

    def record(self, sessions: dict[str, int], starts: int = 0, at: float = 0.0) -> None:
        cluster = LocalCluster(
            address=self.address, mark="0123456789abcdef", temp="gone", logs="logs",
            token="token", seats={HEAD: Seat(address=HOST)}, sessions=sessions,
            head_starts=starts, head_started_at=at,
        )  # fmt: skip
        (self.state / "ray.json").write_text(json.dumps(asdict(cluster)))

    def _restart(self, state: Path, *, head_starts: int) -> None:
        assert state == self.state
        self.process_runs = True
        comes_up = self.comes_up_after == 0
        if comes_up:
            self.address = _address(self.responding.socket)
        self.record({HEAD: NO_PROCESS}, head_starts, self.now_s)
        if not comes_up:
            self.comes_up_after -= 1
            raise WorldError("node 'head' ended while starting")

    def dies(self) -> None:
        self.address = _closed_address()
        known = json.loads((self.state / "ray.json").read_text())
        self.record({HEAD: NO_PROCESS}, known["head_starts"], known["head_started_at"])


def _address(server: socket.socket) -> str:
    return f"{HOST}:{server.getsockname()[1]}"


def _closed_address() -> str:
    with socket.create_server((HOST, 0)) as free:
        return _address(free)


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Bed]:
    bed = _Bed(tmp_path, monkeypatch)
    yield bed
    bed.responding.shutdown()
    bed.responding.server_close()


def test_lost_head_is_started_after_a_pause(bed: _Bed) -> None:
    assert head.ensure_head(bed.state) == bed.address
    assert head.ensure_head(bed.state) == bed.address, "one that is up is left alone"
    assert bed.pauses == [5.0]


def test_head_whose_process_has_ended_is_started_although_another_cluster_has_its_port(
    bed: _Bed,
) -> None:
    bed.address = _address(bed.responding.socket)
    bed.record({HEAD: NO_PROCESS})
    bed.process_runs = False
    assert head.ensure_head(bed.state) == bed.address
    assert bed.pauses == [5.0]


def test_loss_of_the_heads_process_is_reported_although_its_port_responds(bed: _Bed) -> None:
    bed.address = _address(bed.responding.socket)
    bed.record({HEAD: NO_PROCESS})
    lost: list[bool] = []
    bed.process_runs = False
    head.watch_head(bed.address, lambda: lost.append(True), cluster=local_cluster(bed.state))
    assert lost == [True]
    assert len(bed.pauses) == 3, "it has looked several times"


def test_pauses_grow_up_to_the_longest_while_the_head_does_not_stay_up_and_never_end(
    bed: _Bed, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3 * STARTS):
        assert head.ensure_head(bed.state) == bed.address
        bed.dies()
    assert bed.pauses == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0] + [300.0] * (3 * STARTS - 6)
    errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert len(errors) == 2 * STARTS, "every further start is reported"
    assert f"head did not stay up in {STARTS} starts" in errors[0]
    assert str(bed.state / "logs" / "head.log") in errors[0]


def test_head_that_stayed_up_for_long_is_started_without_a_long_pause(bed: _Bed) -> None:
    for _ in range(STARTS):
        head.ensure_head(bed.state)
        bed.dies()
        bed.now_s += 3600
    assert bed.pauses == [5.0] * STARTS


def test_head_that_cannot_be_started_is_tried_until_it_can(
    bed: _Bed, caplog: pytest.LogCaptureFixture
) -> None:
    bed.comes_up_after = 3 * STARTS
    assert head.ensure_head(bed.state) == bed.address
    assert len(bed.pauses) == 3 * STARTS + 1
    assert "ended while starting" in caplog.text
    assert "did not stay up" in caplog.text


def test_head_that_was_ended_on_purpose_is_left_down(bed: _Bed) -> None:
    bed.record({})
    assert head.ensure_head(bed.state) == bed.address
    assert bed.pauses == []


def test_loss_of_the_head_is_reported_after_it_refused_several_times(bed: _Bed) -> None:
    losses: list[int] = []
    head.watch_head(bed.address, lambda: losses.append(len(bed.pauses)))
    assert losses == [3]


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a process that listens and never responds."""
    monkeypatch.setattr(head, "_RESPONSE_S", 0.1)
    with socket.create_server((HOST, 0)) as silent:
        yield _address(silent)


def test_head_that_hangs_is_lost_as_one_that_has_ended(bed: _Bed, hung: str) -> None:
    losses: list[int] = []
    head.watch_head(hung, lambda: losses.append(len(bed.pauses)))
    assert losses == [3]
    bed.address = hung
    bed.record({HEAD: NO_PROCESS})
    assert head.ensure_head(bed.state) == bed.address != hung


def test_no_cluster_of_our_own_is_none(tmp_path: Path) -> None:
    assert head.ensure_head(tmp_path) is None
