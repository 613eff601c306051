"""Policies of other packages, found by their entry points in the group `headgate.policies`.

An entry point's name is the policy's, its value a `PolicyInfo`. A package that cannot be used is
listed with the problem, which is also the error when its policy is requested; all other policies
work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NoReturn

from headgate.base.errors import Problem, SpecError
from headgate.ports.policy import PolicyInfo

GROUP = "headgate.policies"


def installed_policies(own: Mapping[str, PolicyInfo]) -> dict[str, PolicyInfo]:
    """Return Headgate's own policies, then the installed ones by name."""
    found = dict(own)
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        package = entry.dist.name if entry.dist is not None else entry.value
        if entry.name in found:
            name = f"{entry.name}@{package}"
            found[name] = _unusable(name, package, f"a policy '{entry.name}' exists already")
        else:
            found[entry.name] = _loaded(entry, package)
    return found


def _loaded(entry: EntryPoint, package: str) -> PolicyInfo:
    try:
        info: Any = entry.load()
    except Exception as error:  # noqa: BLE001  # a package may raise any error
        return _unusable(entry.name, package, f"{type(error).__name__}: {error}")
    if not isinstance(info, PolicyInfo):
        problem = f"{entry.value} is no PolicyInfo but of type {type(info).__name__}"
        return _unusable(entry.name, package, problem)
    if info.name != entry.name:
        problem = f"{entry.value} calls itself '{info.name}', its entry point '{entry.name}'"
        return _unusable(entry.name, package, problem)
    return replace(info, source=f"{info.source} (package {package})")


def _unusable(name: str, package: str, problem: str) -> PolicyInfo:
    """Return the entry of the list for a policy that cannot be used."""

    def refuse(**_: float) -> NoReturn:
        hint = f"fix or uninstall the package {package}; docs/writing-a-policy.md says how"
        found = Problem(path=f"policy.{name}", problem=problem, hint=hint)
        raise SpecError([found], code="unusable_policy")

    return PolicyInfo(
        name=name,
        idea=f"cannot be used: {problem}",
        source=f"package {package}",
        parameters=(),
        make=refuse,
    )
