"""A cluster that modules of live tests share, one after the other.

A module states with `SYSTEM` which nodes and options it needs. It gets the cluster of the module
before it if that has the same nodes and was left in order; other options take effect with a new
controller. Otherwise, that cluster ends, and another one starts. `SYSTEM` may say `fresh`: then it
always starts, and modules that follow may have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.live.system import ENDED, Headgate

from headgate.base.errors import HeadgateError
from headgate.cli.cluster.cluster import DEFAULT_POLICY

_DEFAULTS = {
    "--policy": DEFAULT_POLICY,
    "--probe-period": "0",
    "--log-limit": "64MiB",
    "--max-processes": "4096",
}
"""Options that another controller may change, with the values of a module that does not say."""

_QUEUES, _SCALING = "--queues", "--scaling"  # may be added, and stay; queues hinder no module


class Clusters:
    """Lends one running Headgate to modules; it has at most one at a time."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._kept: Headgate | None = None
        self._shape: tuple[object, ...] = ()
        self._options: dict[str, str] = {}
        self._users: list[str] = []

    @contextmanager
    def lend(
        self,
        user: str,
        *,
        nodes: int,
        gpus: int,
        up: Sequence[str] = (),
        python: str | None = None,
        fresh: bool = False,
    ) -> Iterator[Headgate]:
        """Lend a Headgate with these nodes and options (`--name=value`) to a module.

        A controller that has failed meanwhile fails the module that had it, and no other.
        """
        shape, given = (nodes, gpus, python), dict(_split(option) for option in up)
        options = _DEFAULTS | given
        if fresh or shape != self._shape or not self._can_change(options):
            self.close()
        if self._kept is None:
            self._shape, self._options = shape, options
            started = Headgate(nodes=nodes, gpus=gpus, up=_joined(options), python=python)
            self._kept = started.__enter__()
        elif not options.items() <= self._options.items():
            self._options |= options
            self._kept.renew(_joined(self._options))
        self._users.append(user)
        headgate = self._kept
        headgate.forget_log()
        yield headgate
        failure, tracebacks = _unfit(headgate), headgate.tracebacks()
        tail = headgate.log_tail() if tracebacks else ""
        if failure or tracebacks:
            headgate.forget_log()
            self.close(f"{user} has left it unusable: {failure}" if failure else "")
        assert not tracebacks, f"the controller failed during {user}:\n{tail}"

    def _can_change(self, options: dict[str, str]) -> bool:
        """Whether a new controller is enough for these options."""
        names = {*options, *self._options}
        differ = {name for name in names if options.get(name) != self._options.get(name)}
        differ -= {*_DEFAULTS, _QUEUES}
        return differ <= {_SCALING} and _SCALING not in self._options

    def close(self, note: str = "") -> None:
        """End the Headgate, if one runs; a failure names the modules that have had it."""
        ended, users, self._kept = self._kept, self._users, None
        self._shape, self._options, self._users = (), {}, []
        if ended is None:
            return
        try:
            ended.close()
        except BaseException as error:
            error.add_note(f"the cluster was shared by {', '.join(users)}. {note}")
            raise


def _split(option: str) -> tuple[str, str]:
    name, _, value = option.partition("=")
    return name, value


def _joined(options: dict[str, str]) -> tuple[str, ...]:
    return tuple(f"{name}={value}" for name, value in options.items())


def _unfit(headgate: Headgate) -> str:
    """End all jobs and remove all datasets; return why no other module can use the rest, or ''."""
    client = headgate.client
    try:
        if not headgate.answers():
            return "its controller does not respond"
        for job in client.jobs()["jobs"]:
            if job["state"] not in ENDED:
                client.cancel(job["id"], now=True)
        headgate.until(
            lambda: all(job["state"] in ENDED for job in client.jobs()["jobs"]), "all jobs end"
        )
        for dataset in client.datasets():
            client.remove_dataset(dataset["name"])
        down = {node.id for node in headgate.nodes} - headgate.up_nodes()
    except (HeadgateError, AssertionError) as error:
        return str(error)
    return f"{', '.join(sorted(down))} did not return" if down else ""
