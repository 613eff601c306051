"""Datasets over the API: put shard by shard, visible together, removed as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headgate.api.client import Client
from headgate.base.errors import SpecError
from headgate.model import Dataset, Shard
from headgate.protocol import DatasetAdded, ReplicaAdded


def put(client: Client, name: str, *shards: bytes) -> None:
    for index, data in enumerate(shards):
        client.put_shard(name, index, [data], replicas=2)
    client.commit_dataset(name, shards=len(shards))


def test_a_dataset_is_visible_only_after_its_commit(client: Client) -> None:
    placed = client.put_shard("ints", 0, [b"abc", b"de"], replicas=2)
    assert placed == {"size_bytes": 5, "nodes": ["n0", "n1"]}
    assert client.datasets() == []
    client.put_shard("ints", 1, [b"f"], replicas=2)
    assert client.commit_dataset("ints", shards=2)["size_bytes"] == 6
    view = client.dataset("ints")
    assert (view["shards"], view["size_bytes"], view["replicas"]) == (2, 6, 2)
    assert client.shards("ints") == [
        {"id": "ints:00000", "size_bytes": 5, "nodes": ["n0", "n1"]},
        {"id": "ints:00001", "size_bytes": 1, "nodes": ["n0", "n1"]},
    ]
    client.remove_dataset("ints")
    assert client.datasets() == []


def test_shards_of_a_dataset_are_listed_in_pages(
    client: Client, controller: Any, socket: Path
) -> None:
    shards = tuple(Shard(id=f"many:{i:05d}", size_bytes=1) for i in range(2500))
    added = DatasetAdded(
        at=controller.clock, dataset=Dataset(name="many", user="ann", shards=shards)
    )
    controller.handle(
        *(ReplicaAdded(at=controller.clock, shard=shard, node="n1") for shard in shards), added
    )
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(socket))) as http:
        root = "http://headgate/api/v1/datasets/many"
        assert http.get(root).json() == {
            "name": "many", "user": "ann", "shards": 2500, "size_bytes": 2500, "replicas": 1,
            "public": False,
        }  # fmt: skip
        first = http.get(f"{root}/shards").json()
        last = http.get(f"{root}/shards", params={"cursor": "2400", "limit": "100"}).json()
        assert http.get(f"{root}/shards", params={"limit": "1001"}).status_code == 400
    assert (len(first["shards"]), first["next"]) == (1000, "1000")
    assert (len(last["shards"]), last["next"]) == (100, None)
    assert [shard["id"] for shard in client.shards("many")] == [shard.id for shard in shards]


def test_large_bodies_arrive_whole(client: Client, controller: Any) -> None:
    pieces = [bytes([i]) * 700_001 for i in range(9)]
    placed = client.put_shard("big", 0, iter(pieces), replicas=1)
    assert placed["size_bytes"] == 9 * 700_001
    assert controller.pending["big"][0] == b"".join(pieces)


def test_an_error_reaches_a_client_that_is_still_sending(client: Client, controller: Any) -> None:
    put(client, "ints", b"x")
    for _ in range(3):  # the connection stays good for the next request
        with pytest.raises(SpecError) as there:
            client.put_shard("ints", 0, iter([bytes(1 << 20)] * 8), replicas=2)
        assert there.value.code == "exists"
    assert client.health()["status"] == "ok"


def test_an_error_of_the_source_is_raised_and_places_no_shard(
    client: Client, controller: Any
) -> None:
    def source() -> Iterator[bytes]:
        yield bytes(3 << 20)
        raise SpecError("the file became shorter")

    with pytest.raises(SpecError, match="became shorter"):
        client.put_shard("ints", 0, source(), replicas=2)
    assert client.health()["status"] == "ok"
    assert controller.pending == {}


def test_an_abandoned_dataset_leaves_nothing(client: Client, controller: Any) -> None:
    client.put_shard("ints", 0, [b"x"], replicas=1)
    client.abandon_dataset("ints")
    assert controller.pending == {}


def test_an_unknown_dataset_is_not_found_with_the_nearest_as_hint(client: Client) -> None:
    put(client, "my-ints", b"x")
    with pytest.raises(SpecError) as wrong:
        client.remove_dataset("my-int")
    assert wrong.value.code == "not_found"
    assert wrong.value.problems[0].hint == "did you mean 'my-ints'?"
