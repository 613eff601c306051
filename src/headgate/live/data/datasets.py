"""Uploads of datasets: shards are stored one by one, and visible once the dataset is committed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from headgate.base.errors import Problem, SpecError, WorldError
from headgate.base.text import NAME, NAME_FORM
from headgate.live.cluster.ray_nodes import short_error
from headgate.live.membership.membership import Membership, dataset_shard
from headgate.live.node.flight import send
from headgate.live.node.split import NodeSpace, choose_nodes
from headgate.live.node.store import StoredShard
from headgate.model import Dataset
from headgate.protocol import DatasetAdded, Event, ReplicaAdded
from headgate.state import Snapshot

log = logging.getLogger(__name__)

_COPY_S = 600.0
_ALL = -1  # index that stands for all shards of an abandoned upload
_IDLE_S = 900.0  # then its shards are swept, and another user may use the name


@dataclass(slots=True, kw_only=True)
class _Upload:
    """The upload of one dataset: by index, the stored shards and their nodes.

    It does not change while it is committed, which requires that no shard is `moving`. One that is
    `abandoned` keeps its name until all moving shards have ended.
    """

    user: str
    touched_s: float  # time of its user's last request, in monotonic seconds
    shards: dict[int, tuple[StoredShard, tuple[str, ...]]] = field(default_factory=dict)
    moving: set[int] = field(default_factory=set)
    committing: bool = False
    abandoned: bool = False


class DatasetUploads:
    """Uploads in progress; calls come from any thread and block while data moves."""

    def __init__(self, membership: Membership, *, token: str) -> None:
        self._membership = membership
        self._token = token
        self._uploads: dict[str, _Upload] = {}
        self._lock = threading.Lock()
        membership.uploading = self.active

    def active(self) -> tuple[str, ...]:
        """Return the datasets being put; abandon those without activity for 15 minutes."""
        with self._lock:
            for dataset in [d for d, upload in self._uploads.items() if _idle(upload)]:
                log.warning("dataset %s: its upload is abandoned after %g s idle", dataset, _IDLE_S)
                del self._uploads[dataset]
            return tuple(self._uploads)

    def put_shard(
        self, dataset: str, index: int, pieces: Iterator[bytes], *, replicas: int, user: str,
        snapshot: Callable[[], Snapshot],
    ) -> Mapping[str, Any]:  # fmt: skip
        """Store one shard on `replicas` nodes; WorldError `unreachable` or as of `send`."""
        with self._moving(dataset, index, user, snapshot) as upload:
            places = self._places(snapshot())
            if not places:
                raise WorldError("no node is up to store a shard", code="unreachable")
            nodes = choose_nodes(index, places, replicas)
            shard = dataset_shard(dataset, index, 0).id
            try:
                host, port = self._address(nodes[0])
                stored = send(host, port, shard, pieces, token=self._token)
                self._copy(shard, (host, port), nodes[1:])
                with self._lock:
                    if upload.abandoned:
                        raise SpecError(_about(dataset, "has been abandoned"), code="not_found")
                    upload.shards[index] = (stored, nodes)
            except BaseException:
                with self._lock:
                    upload.shards.pop(index, None)
                self.remove(shard, nodes)
                raise
        return {
            "shard": shard,
            "size_bytes": stored.size_bytes,
            "checksum": stored.checksum,
            "nodes": list(nodes),
        }

    @contextmanager
    def _moving(
        self, dataset: str, index: int, user: str, snapshot: Callable[[], Snapshot]
    ) -> Iterator[_Upload]:
        """Claim a shard of an upload, which begins with its first one."""
        with self._lock:
            upload = self._claim(dataset, user, snapshot())
            if index in upload.moving:
                raise SpecError(_about(dataset, f"shard {index} is being stored"), code="exists")
            upload.moving.add(index)
        try:
            yield upload
        finally:
            self._moved(dataset, upload, index)

    def _moved(self, dataset: str, upload: _Upload, index: int) -> None:
        """Release a shard; the last one of an abandoned upload frees the name."""
        with self._lock:
            upload.moving.discard(index)
            upload.touched_s = time.monotonic()
            if upload.abandoned and not upload.moving:
                del self._uploads[dataset]

    @contextmanager
    def committing(
        self, dataset: str, count: int, *, user: str, public: bool, at: float
    ) -> Iterator[list[Event]]:
        """Yield the events that make a dataset visible, to be handled inside the context.

        The upload ends then, and its shards from index `count` on, left by an earlier upload, are
        removed. SpecError when shards are missing or moving.
        """
        with self._lock:
            upload = self._uploads.get(dataset)
            if upload is None or upload.user != user:
                raise SpecError(_about(dataset, "is not being put by you"), code="not_found")
            _reject_if_ending(dataset, upload)
            events = _commit(dataset, upload, count, at, public=public)
            upload.committing = True
        try:
            yield events
        except BaseException:
            with self._lock:
                upload.committing = False
            raise
        with self._lock:
            del self._uploads[dataset]
        for index, (_, nodes) in upload.shards.items():
            if index >= count:
                self.remove(dataset_shard(dataset, index, 0).id, nodes)

    def abandon(self, dataset: str, *, user: str) -> None:
        """Remove the stored shards of a dataset that will not be committed."""
        with self._lock:
            upload = self._uploads.get(dataset)
            if upload is None or upload.user != user:
                return
            if upload.abandoned:
                return  # it ends with its moving shards
            _reject_if_ending(dataset, upload)
            upload.abandoned = True
            upload.moving.add(_ALL)  # no upload of this name starts before the removal has ended
        try:
            for index, (_, nodes) in upload.shards.items():
                self.remove(dataset_shard(dataset, index, 0).id, nodes)
        finally:
            self._moved(dataset, upload, _ALL)

    def remove(self, shard: str, nodes: tuple[str, ...]) -> None:
        """Delete a shard's replicas; a lost node sweeps its own when it returns."""
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

    def _claim(self, dataset: str, user: str, view: Snapshot) -> _Upload:
        """Return a user's upload of a dataset, a new one if there is none; the lock is held."""
        if not NAME.fullmatch(dataset):
            problem = f"'{dataset}' is not a name"
            raise SpecError([Problem(path="name", problem=problem, hint=f"use {NAME_FORM}")])
        if dataset in view.datasets:
            raise SpecError(_about(dataset, "exists already", "headgate data rm"), code="exists")
        now_s = time.monotonic()
        upload = self._uploads.setdefault(dataset, _Upload(user=user, touched_s=now_s))
        _reject_if_ending(dataset, upload)
        if upload.user != user:
            if not _idle(upload):
                raise SpecError(_about(dataset, f"is being put by {upload.user}"), code="exists")
            # left by a client that died; its shards are replaced or swept later
            upload = self._uploads[dataset] = _Upload(user=user, touched_s=now_s)
        upload.touched_s = now_s
        return upload

    def _places(self, view: Snapshot) -> list[NodeSpace]:
        places = []
        for row in view.live_nodes():
            node = view.node(row)
            report = self._membership.reports.get(node.id)
            if report is not None:
                places.append(NodeSpace(node.id, node.rack, report["disk_free_bytes"]))
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
            log.warning("%s could not be copied: %s", shard, error)
            text = f"{shard} could not be copied to {', '.join(nodes)}: {short_error(error)}"
            raise WorldError(text, code="unreachable") from error


def _idle(upload: _Upload) -> bool:
    busy = upload.moving or upload.committing or upload.abandoned
    return not busy and time.monotonic() - upload.touched_s >= _IDLE_S


def _reject_if_ending(dataset: str, upload: _Upload) -> None:
    if upload.committing or upload.abandoned:
        text = f"is being {'committed' if upload.committing else 'abandoned'}"
        raise SpecError(_about(dataset, text, "try again in a moment"), code="exists")


def _commit(dataset: str, upload: _Upload, count: int, at: float, *, public: bool) -> list[Event]:
    """Return the events that make a dataset visible; SpecError when shards are missing."""
    if upload.moving:
        text = f"{len(upload.moving)} of its shards are being stored"
        raise SpecError(_about(dataset, text), code="bad_spec")
    missing = sum(i not in upload.shards for i in range(count))
    if missing:
        text = f"{missing} of {count} shards have not been placed"
        raise SpecError(_about(dataset, text), code="bad_spec")
    shards = tuple(dataset_shard(dataset, i, upload.shards[i][0].size_bytes) for i in range(count))
    value = Dataset(name=dataset, user=upload.user, shards=shards, public=public)
    events: list[Event] = [DatasetAdded(at=at, dataset=value)]
    for index, shard in enumerate(shards):
        events += [ReplicaAdded(at=at, shard=shard, node=node) for node in upload.shards[index][1]]
    return events


def _gone(node: str) -> WorldError:
    return WorldError(f"node {node} has just gone", code="unreachable")


def _about(dataset: str, problem: str, hint: str = "") -> list[Problem]:
    return [Problem(path=f"dataset {dataset}", problem=problem, hint=hint)]
