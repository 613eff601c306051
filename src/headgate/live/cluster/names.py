"""Names of Headgate's actors in Ray: of masters and executors, and spares that serve as them.

Masters and executors belong to accounts, which are named by their users. A spare is an actor that
was started before an account needs it, with a name of its own. It serves an account once its name
is stored in Ray's key-value store under the name that the account's actor has otherwise. An actor
that has a name itself precedes a spare: it was started because the spare had died. The pairs last
as long as named actors do, in the same process of Ray.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from headgate.live.cluster.ray_nodes import NAMESPACE

_MASTER, _EXECUTOR = "headgate-master-of:", "headgate-executor-of:"
_SPARE = "headgate-spare:"
_EARLIER = ("headgate-master:", "headgate-executor:")  # each of one job, of earlier releases


def master_name(account: str) -> str:
    """Return the name of an account's master."""
    return f"{_MASTER}{account}"


def executor_name(account: str, ray_id: str) -> str:
    """Return the name of an account's executor on a node."""
    return f"{_EXECUTOR}{account}:{ray_id}"


def spare_name(ray_id: str, token: str) -> str:
    """Return the name of a spare on a node."""
    return f"{_SPARE}{ray_id}:{token}"


def is_executor(name: str) -> bool:
    """Return whether a name is that of an executor."""
    return name.startswith(_EXECUTOR)


def account_of(name: str) -> str:
    """Return the account of a master or an executor by its name."""
    if is_executor(name):
        return name.removeprefix(_EXECUTOR).rpartition(":")[0]
    return name.removeprefix(_MASTER)


def node_of(name: str) -> str:
    """Return the Ray id of the node of an executor by its name."""
    return name.rpartition(":")[2]


def account_actors() -> list[str]:
    """Return the names of all masters and executors, also of those that are spares.

    Masters come before executors.
    """
    return sorted(_served((_MASTER, _EXECUTOR)), reverse=True)


def actors_of_earlier_releases() -> list[str]:
    """Return the names of the masters and executors of single jobs, which earlier releases had."""
    return sorted(_served(_EARLIER), reverse=True)


def _served(prefixes: tuple[str, ...]) -> list[str]:
    known = {*names_with(""), *(key.decode() for key in _call("list", b"headgate-"))}
    return [name for name in known if name.startswith(prefixes)]


def free_spares() -> list[str]:
    """Return the names of the spares that serve no account."""
    return [spare for spare in names_with(_SPARE) if _get(name_served(spare)) != spare]


def named_actor(name: str) -> Any:
    """Return the actor with this name, or the spare under it; ValueError if there is none."""
    import ray

    with suppress(ValueError):
        return ray.get_actor(name, namespace=NAMESPACE)
    spare = _get(name)
    if not spare:
        raise ValueError(f"there is no actor '{name}'")
    return ray.get_actor(spare, namespace=NAMESPACE)


def all_actors(name: str) -> list[Any]:
    """Return the actor with this name and the spare under it, as far as they live."""
    import ray

    found = []
    for actual in filter(None, (name, _get(name))):
        with suppress(ValueError):
            found.append(ray.get_actor(actual, namespace=NAMESPACE))
    return found


def give_spare(spare: str, name: str) -> bool:
    """Let a spare serve under a name; False if the name has an actor, or had one, already."""
    import ray

    if _get(name):
        return False
    with suppress(ValueError):
        ray.get_actor(name, namespace=NAMESPACE)
        return False
    _call("put", spare.encode(), name.encode())  # first: a spare must know its account
    _call("put", name.encode(), spare.encode())
    return True


def name_served(spare: str) -> str:
    """Return the name under which a spare serves, or was about to serve, '' without one."""
    return _get(spare)


def forget_name(name: str) -> None:
    """Forget that a spare, which has ended, served under a name."""
    spare = _get(name)
    if spare:
        _call("del", name.encode())
        _call("del", spare.encode())


def names_with(prefix: str) -> list[str]:
    """Return the names of Headgate's actors that begin so."""
    from ray.util import list_named_actors

    entries = list_named_actors(all_namespaces=True)
    names = [entry["name"] for entry in entries if entry["namespace"] == NAMESPACE]
    return [name for name in names if name.startswith(prefix)]


def end_actors(names: Iterable[str]) -> None:
    """Kill the actors with these names, as far as they live; none is restarted."""
    import ray

    for name in names:
        with suppress(ValueError):  # it has ended meanwhile
            ray.kill(ray.get_actor(name, namespace=NAMESPACE), no_restart=True)


def _get(key: str) -> str:
    value = _call("get", key.encode()) if key else None
    return value.decode() if value else ""


def _call(function: str, *arguments: bytes) -> Any:
    """Call a function of Ray's key-value store, by the end of its name."""
    from ray.experimental import internal_kv

    return getattr(internal_kv, f"_internal_kv_{function}")(*arguments)
