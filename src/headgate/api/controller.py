"""What the API needs of a controller; calls may block for seconds and come from any thread.

Errors are `HeadgateError`s with a stable code: `not_found`, `forbidden`, `already_ended`, `exists`,
`rejected` (the policy cannot place it), `infeasible` (no node could ever hold it), `bad_spec`,
`archive_full`, `journal_full`, `disk_full`, `unreachable`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from headgate.journal import Archive
from headgate.model import Dataset, Job, LogPiece
from headgate.planning.certificates import CertificateStats
from headgate.ports import Policy
from headgate.state import Snapshot


class Controller(Protocol):
    """The running scheduler, seen from its door."""

    def now(self) -> float:
        """Return the controller's time: seconds since the epoch."""
        ...

    def info(self) -> Mapping[str, Any]:
        """Return JSON-able facts: policy, seed, pid, since, ray_address, state directory."""
        ...

    @property
    def archive(self) -> Archive:
        """The jobs that the state does not know any more."""
        ...

    def snapshot(self) -> Snapshot:
        """Return the state after the last handled batch."""
        ...

    def policy(self, text: str | None) -> Policy:
        """Return a policy made for one answer: of a text such as `fs,alpha1=2`, else as in force.

        SpecError for a policy or parameter that is not known.
        """
        ...

    def certified(self) -> CertificateStats | None:
        """Return what was proven of the plans made; None where the policy has nothing proven."""
        ...

    def wait_for_change(self, version: int, timeout_s: float) -> int:
        """Return the version as soon as it is above `version`, or when the time is over."""
        ...

    def may_read(self, owned: Job | Dataset, user: str) -> bool:
        """Say whether a user may read a job's logs and results, or a dataset.

        Its owner may, root, and the controller's own user; everybody where it is public.
        """
        ...

    def submit(self, text: str, *, user: str, key: str | None, public: bool = False) -> str:
        """Submit a job file's text and return the job's id, once it is durable.

        The same key of the same user gives the same job again. It is public when the file or
        `public` says so.
        """
        ...

    def check(self, text: str, *, user: str) -> str:
        """Do all that `submit` does short of submitting; return the id the job would get."""
        ...

    def cancel(self, job: str, *, user: str, dry_run: bool = False) -> None:
        """Cancel a job of this user (root and the controller's own user may cancel any).

        A dry run does all checks and changes nothing.
        """
        ...

    def reports(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the last report of every node that is up, by node id."""
        ...

    def log(self, job: str, ordinal: int, *, attempt: int | None, offset: int) -> LogPiece:
        """Return what a run has written from a byte offset on; the last attempt by default."""
        ...

    def result(self, job: str, ordinal: int | None) -> Iterator[bytes]:
        """Return the result of a finished task, the job's last one by default, in pieces."""
        ...

    def put_shard(
        self, dataset: str, index: int, pieces: Iterator[bytes], *, replicas: int, user: str
    ) -> Mapping[str, Any]:
        """Place one shard of a dataset that is being put; return its size, checksum and nodes."""
        ...

    def commit_dataset(
        self, dataset: str, *, shards: int, user: str, public: bool = False
    ) -> Dataset:
        """Make a dataset of which all shards are placed visible, at once and durably.

        Jobs of all users may read a public one.
        """
        ...

    def abandon_dataset(self, dataset: str, *, user: str) -> None:
        """Remove what was placed of a dataset that will not be committed."""
        ...

    def remove_dataset(self, dataset: str, *, user: str, dry_run: bool = False) -> None:
        """Remove a dataset of this user, its replicas included; dry runs as for `cancel`."""
        ...
