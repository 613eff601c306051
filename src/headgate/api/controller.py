"""The interface between the API and a controller; calls may block for seconds, in any thread.

Errors are `HeadgateError`s with one of the stable codes of `headgate.api.errors`, such as
`not_found`, `forbidden`, `rejected` (the policy does not place such a job) or `infeasible` (no node
could ever hold it).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from headgate.base.errors import Problem
from headgate.journal import Archive
from headgate.model import Dataset, Job, LogPiece, RunId
from headgate.model.topology import ClusterTopology
from headgate.planning.rounds.administration import Administration
from headgate.ports import Policy
from headgate.ports.capabilities import CertificateStats
from headgate.protocol import Moved
from headgate.state import Snapshot


class ControllerPort(Protocol):
    """The running scheduler, as the API uses it."""

    def now(self) -> float:
        """Return the controller's time in seconds since the epoch."""
        ...

    def info(self) -> Mapping[str, Any]:
        """Return facts as JSON values: policy, seed, pid, since, ray_address, state directory.

        `stand_in` is the policy that decides in place of the one in force, None as a rule;
        `hung_calls` counts calls of policies that were abandoned.
        """
        ...

    @property
    def administration(self) -> Administration:
        """What administrators change of nodes and queues."""
        ...

    @property
    def archive(self) -> Archive:
        """The archive: jobs that have left the state."""
        ...

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the state after the last handled batch."""
        ...

    def policy(self, text: str | None) -> Policy:
        """Return a new policy object for one request: the one in force, or that of a text.

        The text is such as `fs,alpha1=2`. SpecError for an unknown policy or parameter.
        """
        ...

    def certified(self) -> CertificateStats | None:
        """Return the statistics of certificates; None under a policy without certificates."""
        ...

    def wait_for_change(self, version: int, timeout_s: float) -> int:
        """Wait until the state's version exceeds `version`, or a timeout; return the version."""
        ...

    def may_read(self, owned: Job | Dataset, user: str) -> bool:
        """Return whether a user may read a job's logs and results, or a dataset.

        The owner, root and the controller's own user may; all users where it is public.
        """
        ...

    def submit(
        self,
        text: str,
        *,
        user: str,
        key: str | None,
        public: bool = False,
        after: Sequence[str] = (),
    ) -> str:
        """Submit a job file's text and return the job's id, once it is durable.

        The same key of the same user returns the same job. The job is public if the file or
        `public` requests that; it comes after the jobs that the file or `after` names. Errors:
        `bad_spec`, `rejected`, `infeasible`, `journal_full`.
        """
        ...

    def check(self, text: str, *, user: str, after: Sequence[str] = ()) -> Job:
        """Do all checks of `submit` without submitting; return the job as it would be."""
        ...

    def warnings(self, job: Job) -> Sequence[Problem]:
        """Return what the policy in force does with a job that its user may not expect."""
        ...

    def cancel(
        self,
        job: str,
        task: int | None = None,
        *,
        user: str,
        now: bool = False,
        dry_run: bool = False,
    ) -> None:
        """Cancel a job of this user, or one task of it, while its others continue.

        Root and the controller's own user may cancel those of any user. `now`: its runs get no
        notice, also those of a job, or a task, that is being stopped. A dry run does all checks and
        changes nothing. Errors: `not_found`, `forbidden`, `already_ended`, `not_cancellable`.
        """
        ...

    def withdraw_slots(self, job: str, *, user: str) -> None:
        """Finish the slots of a job that have no run, as its owner needs no more of them.

        Nothing happens to a job that has ended or whose tasks are no slots. Errors: `not_found`,
        `forbidden`.
        """
        ...

    def migrate(
        self,
        job: str,
        *,
        user: str,
        leave: str | None = None,
        to: str | None = None,
        dry_run: bool = False,
    ) -> Moved:
        """Move the runs of a job to other nodes; for root and the controller's own user alone.

        All of them, or those on the node `leave`; to any nodes, or to the node `to`. Errors:
        `not_found`, `forbidden`, `not_movable`. A dry run as for `cancel`.
        """
        ...

    def drain(self, node: str, *, user: str, reason: str = "", dry_run: bool = False) -> None:
        """Let no run start on a node; for root and the controller's own user alone.

        Errors: `not_found`, `forbidden`. A dry run as for `cancel`.
        """
        ...

    def resume(self, node: str, *, user: str, dry_run: bool = False) -> None:
        """Let runs start on a draining node again; as `drain`, and `in_use` if it is removed."""
        ...

    def reports(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the last report of every node that is up, by node id."""
        ...

    def log(self, job: str, ordinal: int, *, attempt: int | None, offset: int) -> LogPiece:
        """Return a piece of a run's log from a byte offset on; of the last attempt by default."""
        ...

    def log_path(self, run: RunId, node: str) -> str:
        """Return the file with the output of a run on its node."""
        ...

    def result(self, job: str, ordinal: int | None) -> Iterator[bytes]:
        """Return the result of a finished task in pieces; of the job's last task by default."""
        ...

    def kept_files(self, job: str, ordinal: int) -> Mapping[str, Any]:
        """Return the files that the last run of a task which left any has left on its node.

        `not_found` without any, `unreachable` where its node is not up.
        """
        ...

    def kept_content(self, job: str, ordinal: int, attempt: int) -> Iterator[bytes]:
        """Return the bytes of these files, one after the other, while they are of this attempt."""
        ...

    def set_topology(
        self, topology: ClusterTopology | None, *, user: str, dry_run: bool = False
    ) -> None:
        """Put a topology in force, None: that of the racks; root and the controller's user may.

        Runs stay where they are. `forbidden` for other users; a dry run as for `cancel`.
        """
        ...

    def put_package(self, digest: str, pieces: Iterator[bytes], *, user: str) -> Mapping[str, Any]:
        """Store the files of a working directory for jobs of this user; return their size."""
        ...

    def use_package(self, digest: str, *, user: str) -> Mapping[str, Any]:
        """Return the size of a package that this user has sent; `not_found` without one."""
        ...

    def shared_directory(
        self, path: str, name: str, content: str, *, user: str
    ) -> Mapping[str, Any]:
        """Return whether all nodes that are up have a directory, in which a marker of its user is.

        `name` and `content` are the marker's. `shared`, `inode`: its number on all nodes, else 0,
        and `nodes`: by the names of the others, why they do not have it.
        """
        ...

    def put_shard(
        self, dataset: str, index: int, pieces: Iterator[bytes], *, replicas: int, user: str
    ) -> Mapping[str, Any]:
        """Place one shard of a dataset before its commit; return its size, checksum and nodes."""
        ...

    def commit_dataset(
        self, dataset: str, *, shards: int, user: str, public: bool = False
    ) -> Dataset:
        """Make a dataset visible, durably and all shards together, after all are placed.

        Jobs of all users may read a public one.
        """
        ...

    def abandon_dataset(self, dataset: str, *, user: str) -> None:
        """Remove the shards placed for a dataset that will not be committed."""
        ...

    def remove_dataset(self, dataset: str, *, user: str, dry_run: bool = False) -> None:
        """Remove a dataset of this user and its replicas; a dry run as for `cancel`."""
        ...
