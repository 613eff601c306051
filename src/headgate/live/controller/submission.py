"""Submission: from the text of a job file to a job in the state."""

from __future__ import annotations

import heapq
import os
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from headgate.base.errors import MOST_PROBLEMS, Problem, SpecError, nearest
from headgate.journal import Archive
from headgate.live.base.account import Account, account_for, file_sizes, unusable, why_unusable
from headgate.live.controller.earlier_jobs import unfinished
from headgate.live.controller.reader import JobReader
from headgate.live.data.claims import DatasetClaims
from headgate.model import Dataset, Job, RayMode
from headgate.planning.place.submission_check import check_submission
from headgate.planning.units.ray_cpus import with_cpus_of_gpus
from headgate.ports import Policy
from headgate.protocol import Event, JobSubmitted, Reason
from headgate.protocol.reasons import NothingFits, PolicyRefuses, QueueTooSmall
from headgate.spec import JobFile, expand, resources_key
from headgate.spec.document import clipped
from headgate.spec.environment import unsent
from headgate.spec.queues import (
    not_for_jobs,
    not_for_user,
    queue_of_type,
    types_of,
    with_time_limit,
)
from headgate.spec.where import unknown_nodes
from headgate.state import Snapshot
from headgate.state.queues import chain_of, labels_of, queues_of, with_labels_of


class Submissions:
    """Turns job files into jobs, from many threads; its lock is never held during I/O or checks."""

    def __init__(
        self,
        *,
        claims: DatasetClaims,
        policy: Policy,
        snapshot: Callable[[], Snapshot],
        handle: Callable[[Sequence[Event]], None],
        now: Callable[[], float],
        may_read: Callable[[Dataset, str], bool],
        joined: bool,
        trusted: Collection[str] | None,
        archive: Archive,
        use_package: Callable[..., object],
        check_users: bool = False,
    ) -> None:
        """`handle` posts events and returns once they are durable and in `snapshot`.

        The submission keys and numbers of jobs in `archive` are not used again. `may_read` returns
        whether a user may read a dataset; `use_package` records the use of a user's package;
        `joined` and `trusted` are as of `why_not_shared`. With `check_users` tasks run on this
        machine, so that it is checked whether a user can run them.
        """
        self._claims, self._policy = claims, policy
        self._snapshot, self._handle, self._now = snapshot, handle, now
        self._may_read, self._joined, self._trusted = may_read, joined, trusted
        self._use_package = use_package
        self._check_users, self._able_users = check_users, set[str]()
        self._reader = JobReader()
        self._lock = threading.Lock()
        view = snapshot()
        self._archive = archive
        self._last_number = max(view.next_job - 1, archive.last_number)
        self._free_numbers: list[int] = []  # heap: numbers of failed submissions
        jobs = view.names.jobs
        self._known = {(j.user, j.submission_key): j.id for j in jobs if j.submission_key}
        self._under_way: dict[tuple[str, str], Future[str]] = {}

    def submit(
        self,
        text: str,
        *,
        user: str,
        key: str | None,
        public: bool = False,
        after: Sequence[str] = (),
    ) -> str:
        """Submit a job file and return the job's id, once it is durable and handled.

        The job is public if the file or `public` makes it so; it comes after the jobs that the file
        or `after` names. For a key that the user has used before, the result is the job submitted
        then, or the outcome of the submission in progress.
        SpecError and WorldError as of `JobReader.read`; SpecError for a job that can never run.
        """
        if not key:
            return self._submit(text, user=user, key="", public=public, after=after)
        with self._lock:
            if (known := self._known.get((user, key))) is not None:
                return known
            mine: Future[str] = Future()
            outcome = self._under_way.setdefault((user, key), mine)
        if outcome is not mine:
            return outcome.result()
        new = partial(self._submit, text, user=user, key=key, public=public, after=after)
        return self._first(user, key, mine, new)

    def _first(self, user: str, key: str, outcome: Future[str], new: Callable[[], str]) -> str:
        """Submit a job, by `new`, for all callers with this key."""
        try:
            job = self._archive.with_key(user, key)
            known = job is not None
            job = job or new()
        except BaseException as error:
            with self._lock:
                del self._under_way[user, key]
            outcome.set_exception(error)
            raise
        with self._lock:
            if not known:
                self._known[user, key] = job
            del self._under_way[user, key]
        outcome.set_result(job)
        return job

    def forget(self, jobs: Sequence[Job]) -> None:
        """Drop the keys of jobs that have moved from the state to the archive."""
        with self._lock:
            for job in jobs:
                self._known.pop((job.user, job.submission_key), None)

    def check(self, text: str, *, user: str, after: Sequence[str] = ()) -> Job:
        """Return the job as it would be; errors as of `submit`. Nothing is submitted."""
        job_file = self._reader.read(text, user=user)
        with self._lock:
            number = self._free_numbers[0] if self._free_numbers else self._last_number + 1
        with self._claims.using(_datasets(job_file)):
            return self._job(job_file, number, user=user, after=after)

    def close(self) -> None:
        """End the processes that read job files."""
        self._reader.close()

    def _submit(self, text: str, *, user: str, key: str, public: bool, after: Sequence[str]) -> str:
        job_file = self._reader.read(text, user=user)
        with self._claims.using(_datasets(job_file)), self._next_number() as number:
            job = self._job(job_file, number, user=user, after=after)
            if job.program.environment.package:
                self._use_package(job.program.environment.package, user=user)
            job = replace(job, number=number, submission_key=key, public=job.public or public)
            self._handle([JobSubmitted(at=self._now(), job=job)])
            return job.id

    @contextmanager
    def _next_number(self) -> Iterator[int]:
        """Yield the number of a new job, which makes its id unique; reused after a failure."""
        with self._lock:
            if self._free_numbers:
                number = heapq.heappop(self._free_numbers)
            else:
                number = self._last_number = self._last_number + 1
        try:
            yield number
        except BaseException:
            with self._lock:
                heapq.heappush(self._free_numbers, number)
            raise

    def _job(self, job_file: JobFile, number: int, *, user: str, after: Sequence[str]) -> Job:
        """Return the job of a job file in the current state; SpecError if it can never run."""
        _reject_unsent(job_file)
        account = self._account_of(user)
        view = self._snapshot()
        self._reject_unreadable(view, job_file, user)
        job_file = _in_queue(view, job_file, user)
        _reject_unknown_nodes(job_file, view)
        earlier = unfinished([*job_file.after, *after], view, self._archive)
        job = expand(
            job_file,
            job_id=f"{job_file.name}-{number}",
            user=user,
            datasets={name: dataset.shards for name, dataset in view.datasets.items()},
            file_sizes=file_sizes(
                account, [f for data in job_file.data.values() for f in data.files or ()]
            ),
        )
        if job_file.ray is not None and job_file.ray.script.startswith("/"):
            _reject_missing(account, job_file.ray.script)
            if job_file.ray.mode == RayMode.SHARED:
                why = why_not_shared(user, joined=self._joined, trusted=self._trusted)
                if why is not None:
                    raise SpecError([why], code="forbidden")
        if job.results_path and not Path(job.results_path).is_dir():
            problem = f"there is no directory '{clipped(job.results_path)}'"
            hint = "create it on a path that all nodes share"
            raise SpecError([Problem(path="results.path", problem=problem, hint=hint)])
        nodes = [view.node(row) for row in view.live_nodes()]
        job = with_cpus_of_gpus(job, nodes)
        row = view.names.queue_rows[job_file.queue]
        needs = with_labels_of(job, labels_of(view, row))
        queues = [*chain_of(view, row)]
        reason = check_submission(needs, queues, nodes, self._policy, view.fleet.scaling)
        if reason is not None:
            raise _rejected(job_file, job, reason)
        return replace(job, after=earlier)

    def _account_of(self, user: str) -> Account:
        """Return the account of a user's tasks; SpecError if it cannot run them on this machine."""
        account = account_for(user)
        ours = account.uid == os.geteuid()
        if self._check_users and not ours and user not in self._able_users:
            if problem := why_unusable(account):
                raise SpecError([unusable(user, problem)])
            self._able_users.add(user)
        return account

    def _reject_unreadable(self, view: Snapshot, job_file: JobFile, user: str) -> None:
        """Raise SpecError `forbidden` for datasets that this user may not read."""
        problems = []
        for name, data in job_file.data.items():
            found = view.datasets.get(data.from_ or "")
            if found is not None and not self._may_read(found, user):
                hint = "its owner can open it: headgate data put --public"
                text = f"permission denied: dataset {found.name} belongs to {found.user}"
                problems.append(Problem(path=f"data.{name}.from", problem=text, hint=hint))
        if problems:
            raise SpecError(problems, code="forbidden")


def why_not_shared(user: str, *, joined: bool, trusted: Collection[str] | None) -> Problem | None:
    """Return why a user's Ray program cannot run on the Ray cluster of the nodes, if so.

    Only a `joined` cluster has room for it. It has the rights of the nodes' own account there,
    which other jobs have only of users in `trusted`; None: of all users.
    """
    private = "use 'private', a Ray cluster of its own"
    if not joined:
        text = "'shared' needs a Ray cluster that Headgate has joined (headgate up --address)"
        return Problem(path="ray.mode", problem=text, hint=private)
    if trusted is not None and user not in trusted:
        text = "'shared' gives a program the rights of the nodes' own account"
        hint = f"{private}, or ask an administrator for headgate up --shared-account"
        return Problem(path="ray.mode", problem=text, hint=hint)
    return None


def _reject_missing(account: Account, script: str) -> None:
    """Raise SpecError for a script of a Ray program that its user cannot see on this machine."""
    if script not in file_sizes(account, [script]):
        hint = "give the path of a script that all nodes see"
        problem = Problem(path="ray.script", problem=f"there is no file '{script}'", hint=hint)
        raise SpecError([problem])


def _rejected(job_file: JobFile, job: Job, reason: Reason) -> SpecError:
    """Return the error of a job that can never run, with its place in the job file."""
    path = ""
    if isinstance(reason, QueueTooSmall):
        path = "queue"
    elif isinstance(reason, NothingFits):
        path = "num_nodes" if job.distinct_nodes else "gang"
        if job.program.ray is not None and not job.distinct_nodes:
            path = f"{resources_key(job_file, job.tasks[0])}.gpus"
        if reason.task is not None:
            path = resources_key(job_file, job.tasks[reason.task])
    code = "rejected" if isinstance(reason, PolicyRefuses) else "infeasible"
    problem = Problem(path=path, problem=reason.cause(), hint=reason.way_out())
    return SpecError([problem], code=code)


def _in_queue(view: Snapshot, job_file: JobFile, user: str) -> JobFile:
    """Return a job file with the queue that it names, or that takes its type, and a time limit.

    SpecError if that takes no jobs, or none of this user or with such a time limit.
    """
    queues = {view.queue(row).name: view.queue(row) for row in queues_of(view)}
    key, name = "queue", job_file.queue
    if job_file.type is not None:
        key, found = "type", queue_of_type(queues, job_file.type)
        if found is None:
            text = f"no queue takes jobs of type '{job_file.type}'"
            hint = nearest(job_file.type, types_of(queues))
            raise SpecError([Problem(path="type", problem=text, hint=hint)])
        name = found
    if name not in queues:
        hint = f"known: {', '.join(sorted(queues))}"
        raise SpecError([Problem(path="queue", problem=f"there is no queue '{name}'", hint=hint)])
    wrong = not_for_jobs(queues, name)
    if wrong is not None:
        raise SpecError([Problem(path=key, problem=wrong[0], hint=wrong[1])])
    denied = not_for_user(queues, name, user)
    if denied is not None:
        raise SpecError([Problem(path=key, problem=denied)], code="forbidden")
    limit_s, too_long = with_time_limit(queues, name, job_file.time_limit)
    if too_long is not None:
        raise SpecError([Problem(path="time_limit", problem=too_long)])
    changes = {"queue": name, "type": None, "time_limit": limit_s}
    return job_file.model_copy(update=changes)


def _reject_unknown_nodes(job_file: JobFile, view: Snapshot) -> None:
    """Raise SpecError for nodes that were never part of the cluster, unless it waits for some."""
    known = {} if job_file.wait_for_node else view.names.node_rows
    problems = [
        Problem(path=f"{key}[{number}]", problem=problem, hint=hint())
        for key, number, problem, hint in unknown_nodes(job_file.nodes, job_file.exclude, known)
        if known
    ]
    if problems:
        raise SpecError(problems[:MOST_PROBLEMS], code="infeasible")


def _reject_unsent(job_file: JobFile) -> None:
    """Raise SpecError for keys that name files of the client, which it has not sent."""
    script = job_file.ray.script if job_file.ray is not None else ""
    hint = "headgate submit and headgate.api.sending send it"
    problems = [
        Problem(path=key, problem="names files that were not sent", hint=hint)
        for key in unsent(job_file, ray_script=script)
    ]
    if problems:
        raise SpecError(problems)


def _datasets(job_file: JobFile) -> set[str]:
    return {data.from_ for data in job_file.data.values() if data.from_ is not None}
