"""What administrators change: labels of nodes, the tree of queues, the queue of a job."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from headgate.base.errors import Problem, SpecError
from headgate.model import Queue
from headgate.planning.scaling.labelling import LabelChange, label_requests, labels_then
from headgate.planning.shares.queue_requests import assignment, difference, queue_events
from headgate.protocol import Event
from headgate.state import Snapshot
from headgate.state.queues import admins_of, users_of


class Administration:
    """Requests of administrators, checked in full before anything changes; thread-safe."""

    def __init__(
        self,
        *,
        admins: Callable[[], Collection[str]],
        snapshot: Callable[[], Snapshot],
        now: Callable[[], float],
        handle: Callable[[Sequence[Event]], None],
        keep_queues: Callable[[Sequence[Queue]], None],
    ) -> None:
        """Give events to `handle`; `keep_queues` stores queues for a later start."""
        self._admins, self._snapshot, self._now = admins, snapshot, now
        self._handle, self._keep_queues = handle, keep_queues

    def allow(self, path: str, user: str, does: str) -> None:
        """Raise SpecError `forbidden` unless the user is an administrator."""
        if user not in self._admins():
            text = f"permission denied: only administrators {does}"
            raise SpecError([Problem(path=path, problem=text)], code="forbidden")

    def label(
        self, changes: Mapping[str, LabelChange], *, user: str, dry_run: bool = False
    ) -> Mapping[str, tuple[str, ...]]:
        """Change labels by node; SpecError `not_found`, `forbidden`, `bad_spec`.

        Return those that each node has then. Without a change of any, every user may.
        """
        if not changes or any(change != LabelChange() for change in changes.values()):
            self.allow("label", user, "label nodes")
        view = self._snapshot()
        events = label_requests(view, changes, user=user, at=self._now())
        if events and not dry_run:
            self._handle(events)
        return labels_then(view, changes, events)

    def set_queues(
        self, queues: Sequence[Queue], *, user: str, dry_run: bool = False
    ) -> dict[str, Any]:
        """Have these queues and no others, also when the controller starts again.

        Without any, only the right for it is checked. Return what changes (`difference`); SpecError
        `forbidden`, `bad_spec`.
        """
        self.allow("queues", user, "change queues")
        view = self._snapshot()
        events = queue_events(view, queues, at=self._now()) if queues else []
        if events and not dry_run:
            self._keep_queues(queues)
            self._handle(events)
        return difference(view, events)

    def assign(self, job: str, queue: str, *, user: str, dry_run: bool = False) -> None:
        """Move a job to another queue; SpecError `not_found`, `forbidden`, `bad_spec`.

        Users may move their own jobs to queues that are for them; administrators of a queue those
        in it.
        """
        view = self._snapshot()
        event = assignment(view, job, queue, user=user, at=self._now())
        owned = view.job(view.names.job_rows[job])
        if user not in (owned.user, *admins_of(view, owned.queue)):
            self.allow(job, user, "move jobs of other users")
        may = users_of(view, queue)
        if may is not None and owned.user not in may and user not in self._admins():
            text = f"permission denied: queue {queue} is not for {owned.user}"
            raise SpecError([Problem(path=queue, problem=text)], code="forbidden")
        if event is not None and not dry_run:
            self._handle([event])
