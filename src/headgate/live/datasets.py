"""Datasets being put: shards placed one by one, visible to nobody until all are there."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from headgate.base.errors import Problem, SpecError, WorldError
from headgate.base.text import NAME, NAME_FORM
from headgate.live.flight import send
from headgate.live.membership import Membership, dataset_shard
from headgate.live.split import Place, choose_nodes
from headgate.live.store import StoredShard
from headgate.model import Dataset
from headgate.protocol import DatasetAdded, Event, ReplicaAdded
from headgate.state import Snapshot

log = logging.getLogger(__name__)

_COPY_S = 600.0
_IDLE_S = 900.0  # after that its shards are swept, and another user may take the name


@dataclass(slots=True, kw_only=True)
class _Put:
    """One dataset on its way: by index, what was stored and on which nodes."""

    user: str
    touched_s: float  # when its user last asked for something, in monotonic seconds
    calls: int = 0  # of its user that place shards just now
    shards: dict[int, tuple[StoredShard, tuple[str, ...]]] = field(default_factory=dict)
    abandoned: bool = False


class Puts:
    """The puts under way; calls come from any thread and block while data moves."""

    def __init__(self, membership: Membership, *, token: str) -> None:
        self._membership = membership
        self._token = token
        self._puts: dict[str, _Put] = {}
        self._lock = threading.Lock()
        membership.being_put = self.under_way

    def under_way(self) -> tuple[str, ...]:
        """Return the datasets being put, and give up those whose clients seem to have died."""
        with self._lock:
            for dataset in [d for d, put in self._puts.items() if _idle(put)]:
                log.warning("dataset %s: its put is given up, nothing came for a while", dataset)
                del self._puts[dataset]
            return tuple(self._puts)

    def put_shard(
        self, dataset: str, index: int, pieces: Iterator[bytes], *, replicas: int, user: str,
        view: Snapshot,
    ) -> Mapping[str, Any]:  # fmt: skip
        """Place one shard on `replicas` nodes; see `Controller.put_shard`."""
        with self._claimed(dataset, user, view) as put:
            return self._put_shard(put, dataset, index, pieces, replicas, view)

    def _put_shard(
        self, put: _Put, dataset: str, index: int, pieces: Iterator[bytes], replicas: int,
        view: Snapshot,
    ) -> Mapping[str, Any]:  # fmt: skip
        places = self._places(view)
        if not places:
            raise WorldError("no node is up that could keep a shard", code="unreachable")
        nodes = choose_nodes(index, places, replicas)
        shard = dataset_shard(dataset, index, 0).id
        try:
            host, port = self._address(nodes[0])
            stored = send(host, port, shard, pieces, token=self._token)
            self._copy(shard, (host, port), nodes[1:])
        except BaseException:
            with self._lock:
                put.shards.pop(index, None)
            self.remove(shard, nodes)
            raise
        with self._lock:
            put.shards[index] = (stored, nodes)
            again = dataset in self._puts
        if put.abandoned:  # while this shard was on its way; another put of the name replaces it
            if not again:
                self.remove(shard, nodes)
            raise SpecError(_about(dataset, "has been abandoned"), code="not_found")
        return {
            "shard": shard,
            "size_bytes": stored.size_bytes,
            "checksum": stored.checksum,
            "nodes": list(nodes),
        }

    def finished(
        self, dataset: str, count: int, *, user: str, public: bool, at: float
    ) -> list[Event]:
        """Return the facts that make a dataset visible; SpecError when shards are missing."""
        with self._lock:
            put = self._puts.get(dataset)
            if put is None or put.user != user:
                raise SpecError(_about(dataset, "is not being put by you"), code="not_found")
            put.touched_s = time.monotonic()
            missing = [i for i in range(count) if i not in put.shards]
            if missing:
                text = f"{len(missing)} of {count} shards have not been placed"
                raise SpecError(_about(dataset, text), code="bad_spec")
            shards = tuple(
                dataset_shard(dataset, i, put.shards[i][0].size_bytes) for i in range(count)
            )
            value = Dataset(name=dataset, user=user, shards=shards, public=public)
            events: list[Event] = [DatasetAdded(at=at, dataset=value)]
            for index, shard in enumerate(shards):
                nodes = put.shards[index][1]
                events += [ReplicaAdded(at=at, shard=shard, node=node) for node in nodes]
            return events

    def committed(self, dataset: str, count: int) -> None:
        """Close the books of a put, and remove what an earlier one had left beyond its end."""
        with self._lock:
            put = self._puts.pop(dataset)
        for index, (_, nodes) in put.shards.items():
            if index >= count:
                self.remove(dataset_shard(dataset, index, 0).id, nodes)

    def abandon(self, dataset: str, *, user: str) -> None:
        """Remove what was placed of a dataset that will not be committed."""
        with self._lock:
            put = self._puts.get(dataset)
            if put is None or put.user != user:
                return
            del self._puts[dataset]
            put.abandoned = True
            placed = dict(put.shards)
        for index, (_, nodes) in placed.items():
            self.remove(dataset_shard(dataset, index, 0).id, nodes)

    def remove(self, shard: str, nodes: tuple[str, ...]) -> None:
        """Delete a shard's replicas; a node that is gone sweeps its own when it comes back."""
        import ray
        from ray.exceptions import RayError

        for node in nodes:
            agent = self._membership.agents.get(node)
            if agent is None:
                continue
            try:
                ray.get(agent.remove_shard.remote(shard), timeout=_COPY_S)
            except RayError as error:
                log.warning("%s on %s was not removed: %s", shard, node, error)

    @contextmanager
    def _claimed(self, dataset: str, user: str, view: Snapshot) -> Iterator[_Put]:
        put = self._claim(dataset, user, view)
        try:
            yield put
        finally:
            with self._lock:
                put.calls -= 1
                put.touched_s = time.monotonic()

    def _claim(self, dataset: str, user: str, view: Snapshot) -> _Put:
        if not NAME.fullmatch(dataset):
            problem = f"'{dataset}' is not a name"
            raise SpecError([Problem(path="name", problem=problem, hint=f"use {NAME_FORM}")])
        if dataset in view.datasets:
            raise SpecError(_about(dataset, "is there already", "headgate data rm"), code="exists")
        with self._lock:
            now_s = time.monotonic()
            put = self._puts.setdefault(dataset, _Put(user=user, touched_s=now_s))
            if put.user != user:
                if not _idle(put):
                    raise SpecError(_about(dataset, f"is being put by {put.user}"), code="exists")
                # left by a client that died; its shards are replaced, or swept in time
                put = self._puts[dataset] = _Put(user=user, touched_s=now_s)
            put.touched_s = now_s
            put.calls += 1
            return put

    def _places(self, view: Snapshot) -> list[Place]:
        places = []
        for row in view.live_nodes():
            node = view.node(row)
            report = self._membership.reports.get(node.id)
            if report is not None:
                places.append(Place(node.id, node.rack, report["disk_free_bytes"]))
        return places

    def _address(self, node: str) -> tuple[str, int]:
        report = self._membership.reports.get(node)
        if report is None:
            raise _gone(node)
        host, _, port = report["address"].rpartition(":")
        return host, int(port)

    def _copy(self, shard: str, source: tuple[str, int], nodes: tuple[str, ...]) -> None:
        import ray
        from ray.exceptions import RayError

        try:
            calls = [self._membership.agents[n].copy_from.remote(shard, *source) for n in nodes]
            ray.get(calls, timeout=_COPY_S)
        except KeyError as error:
            raise _gone(error.args[0]) from error
        except RayError as error:
            text = f"{shard} could not be copied to {', '.join(nodes)}: {error}"
            raise WorldError(text, code="unreachable") from error


def _idle(put: _Put) -> bool:
    return not put.calls and time.monotonic() - put.touched_s >= _IDLE_S


def _gone(node: str) -> WorldError:
    return WorldError(f"node {node} has just gone", code="unreachable")


def _about(dataset: str, problem: str, hint: str = "") -> list[Problem]:
    return [Problem(path=f"dataset {dataset}", problem=problem, hint=hint)]
