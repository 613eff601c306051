"""The ports of a Ray program's cluster are claimed, and closed to others, while its run lasts."""

from __future__ import annotations

import asyncio
import os
import pwd
import subprocess
from dataclasses import replace

import pytest
from tests.live.accounts import USER, needs_filter
from tests.live.conftest import launch_of

from headgate.base.errors import WorldError
from headgate.live.base.records import GangRecord, LaunchRecord, Rendezvous
from headgate.live.cluster import ray_ports
from headgate.live.cluster.ray_ports import claimed_ports
from headgate.live.run.ray_run import ray_place
from headgate.model import RayProgram, RunId

UID = pwd.getpwnam(USER).pw_uid
RANGE = (13_000, 13_199)
HUB = 28_123


@pytest.fixture(autouse=True)
def _ports_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters that start meanwhile take no ports from here."""
    monkeypatch.setattr(ray_ports, "FIRST_PORT", RANGE[0])
    monkeypatch.setattr(ray_ports, "LAST_PORT", RANGE[1])


def _launch(rank: int) -> LaunchRecord:
    rendezvous = Rendezvous(port=1, hub_port=HUB, token="t")
    hosts = ("10.1.2.3", "10.1.2.4")
    gang = GangRecord(hosts=hosts, first_node="n0", first_ray_id="r0", rendezvous=rendezvous)
    launch = launch_of(gang=gang)
    program = replace(launch.program, ray=RayProgram())
    return replace(launch, run=RunId("j", rank, 1), program=program)


def _rules() -> str:
    """Return the rules of this process's tables."""
    listed = subprocess.run(["nft", "list", "ruleset"], check=True, capture_output=True, text=True)
    tables = listed.stdout.split("table ")
    return "".join(table for table in tables if f"-{os.getpid()}-" in table.partition("\n")[0])


def test_place_of_a_run_has_claimed_ports_until_its_end() -> None:
    async def run() -> None:
        async with ray_place(_launch(0), os.geteuid()) as place:
            assert place is not None
            assert tuple(place.ports) == RANGE
            with pytest.raises(WorldError, match="are free for Ray"), claimed_ports(50):
                pass
        with claimed_ports(200):
            pass

    asyncio.run(run())


def test_other_programs_have_no_place() -> None:
    async def run() -> None:
        async with ray_place(launch_of(), os.geteuid()) as place:
            assert place is None

    asyncio.run(run())


class TestFilter:
    """As root, with nftables."""

    pytestmark = needs_filter

    @pytest.mark.parametrize("rank", [0, 1])
    def test_only_the_user_and_the_nodes_of_the_program_reach_its_ports(self, rank: int) -> None:
        async def run() -> str:
            async with ray_place(_launch(rank), UID):
                return _rules()

        rules = asyncio.run(run())
        assert f"meta skuid {{ 0, {UID} }} accept" in rules
        assert "ip saddr 10.1.2.3 accept" in rules
        assert "ip saddr 10.1.2.4 accept" in rules
        ports = f"{RANGE[0]}-{RANGE[1]}"
        assert ports in rules
        assert (str(HUB) in rules) == (rank == 0), "the hub is on the node of the first member"
        assert _rules() == ""

    @pytest.mark.parametrize("early", [True, False])
    def test_run_that_is_stopped_leaves_no_table(self, early: bool) -> None:
        async def run() -> None:
            placed = asyncio.Event()

            async def stay() -> None:
                async with ray_place(_launch(0), UID):
                    placed.set()
                    await asyncio.sleep(600)

            staying = asyncio.create_task(stay())
            await (asyncio.sleep(0) if early else placed.wait())
            staying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await staying

        asyncio.run(run())
        assert _rules() == ""
