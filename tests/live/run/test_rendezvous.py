"""The ports at which the members of a gang meet."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headgate.base.errors import WorldError
from headgate.live.run import rendezvous
from headgate.live.run.rendezvous import RendezvousMaker


@pytest.fixture
def makers() -> Iterator[list[RendezvousMaker]]:
    makers = [RendezvousMaker() for _ in range(2)]
    yield makers
    for maker in makers:
        maker.close()


def _is_free(port: int) -> bool:
    """Return whether no process uses a port, which the kernel gives to none by itself."""
    with socket.socket() as some:
        try:
            some.bind(("", port))
        except OSError:
            return False
    return True


@pytest.fixture
def few_ports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> int:
    """Leave four ports to choose from, all free; return the first."""
    first = next(
        port for port in range(21_000, 32_000, 8) if all(map(_is_free, range(port, port + 5)))
    )
    ephemeral = tmp_path / "range"
    ephemeral.write_text(f"{first + 5} 60999\n")
    monkeypatch.setattr(rendezvous, "_RANGE", ephemeral)
    monkeypatch.setattr(rendezvous, "_FIRST", first)
    monkeypatch.setattr(rendezvous, "_LEAST", 1)
    return first


def test_all_members_of_an_attempt_meet_at_the_same_ports_and_those_of_the_next_elsewhere(
    makers: list[RendezvousMaker],
) -> None:
    maker = makers[0]
    first = maker.of("j", 1)
    assert maker.of("j", 1) == first
    second = maker.of("j", 2)
    assert len({first.port, first.hub_port, second.port, second.hub_port}) == 4
    assert first.token != second.token


def test_ports_are_free_for_the_program_and_outside_the_range_of_the_kernel(
    makers: list[RendezvousMaker],
) -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    port = makers[0].of("j", 1).port
    assert 20_000 <= port < lowest
    with socket.socket() as server:
        server.bind(("", port))
        server.listen()


def test_no_port_is_claimed_twice_on_a_node_until_it_is_released(
    makers: list[RendezvousMaker], few_ports: int
) -> None:
    taken = [maker.of("j", 1) for maker in makers]
    ports = {port for each in taken for port in (each.port, each.hub_port)}
    assert ports == set(range(few_ports, few_ports + 4))
    with closing(RendezvousMaker()) as third:
        with pytest.raises(WorldError, match="no port is free"):
            third.of("j", 1)
        makers[0].close()
        assert {third.of("j", 1).port, third.of("j", 1).hub_port} == {
            taken[0].port,
            taken[0].hub_port,
        }


def test_port_on_which_another_process_listens_is_not_chosen(
    makers: list[RendezvousMaker], few_ports: int
) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", few_ports + 1))
        server.listen()
        made = [makers[0].of("j", attempt) for attempt in range(1, 21)]
    assert {port for each in made for port in (each.port, each.hub_port)} == {
        few_ports,
        few_ports + 2,
        few_ports + 3,
    }


def test_rendezvous_of_jobs_are_independent_and_released_by_attempt() -> None:
    maker = RendezvousMaker()
    first, other = maker.of("j", 2), maker.of("k", 1)
    assert len({first.port, first.hub_port, other.port, other.hub_port}) == 4
    maker.release("j", 1)  # the end of an earlier attempt, acknowledged late
    assert maker.of("j", 2) == first
    maker.release("j", 2)
    assert maker.of("k", 1) == other
    assert maker.of("j", 2) != first
    maker.close()
