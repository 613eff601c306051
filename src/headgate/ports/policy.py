"""The policy protocol, and the metadata of a policy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from headgate.base.errors import Problem, SpecError, nearest

if TYPE_CHECKING:  # slow: descriptions of policies are read without deciding anything
    from headgate.base.rng import Random
    from headgate.model import Job
    from headgate.protocol import Plan, Reason
    from headgate.state import Snapshot

Value = float | str
"""The value of a parameter: a number, or one of its choices."""


def value_text(value: Value) -> str:
    """Return the value of a parameter as people write it."""
    return value if isinstance(value, str) else f"{value:g}"


class Policy(Protocol):
    """Decides a round on a frozen snapshot; has no state that affects decisions.

    What it may offer beyond this is in `ports.capabilities`.
    """

    name: str
    """The name in files and tables."""

    def refuses(self, job: Job) -> Reason | None:
        """Return why this policy can never place a job, or None; called by the submission check.

        A policy that inherits from this class places every job, unless it overrides this method.
        """
        del job
        return None

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        """Return placements of WAITING tasks on free resources, and why the others wait."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One hyper-parameter: a number above `above` and not below `least`, or one of `choices`."""

    name: str
    default: Value
    unit: str
    meaning: str
    above: float = -math.inf
    least: float = -math.inf
    choices: tuple[str, ...] = ()
    formerly: Mapping[str, str] = field(default_factory=dict)
    """Names of choices that files may have, former ones too, and the names that they have now."""

    @property
    def default_text(self) -> str:
        """The default as people write it."""
        return value_text(self.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInfo:
    """The description of a policy; `make` takes its parameters as keywords.

    `check` returns the problems of the values of all parameters together. `parts` describes a
    policy composed of an order, a placer and a kind of backfill, by which files may name it.
    One that is `simulated_only` knows what no live cluster can.
    """

    name: str
    idea: str
    source: str
    parameters: tuple[Parameter, ...]
    make: Callable[..., Policy]
    check: Callable[[Mapping[str, Any]], list[Problem]] | None = None
    parts: Mapping[str, str] = field(default_factory=dict)
    simulated_only: bool = False


def make_policy(
    known: Mapping[str, PolicyInfo], name: str, parameters: Mapping[str, Any] | None = None
) -> Policy:
    """Return the policy of a name; raise SpecError for an unknown name or bad parameters."""
    info = known.get(name)
    if info is None:
        problem = Problem(
            path="policy", problem=f"there is no policy '{name}'", hint=nearest(name, known)
        )
        raise SpecError([problem], code="unknown_policy")
    given = with_current_names(info, parameters or {})
    problems = [p for key, value in given.items() for p in _check(info, key, value)]
    if not problems and info.check is not None:
        problems = info.check({p.name: p.default for p in info.parameters} | given)
    if problems:
        raise SpecError(problems, code="bad_parameter")
    return info.make(**given)


def read_policy(known: Mapping[str, PolicyInfo], text: str) -> tuple[str, dict[str, Value]]:
    """Return the name and the parameters of text such as `fsp` or `fs,alpha1=2,alpha3=1.5`.

    Raise SpecError for text of another form, and as `make_policy` does.
    """
    name, *parts = (part.strip() for part in text.split(","))
    given: dict[str, Any] = {}
    problems = []
    for part in parts:
        key, equals, value = (p.strip() for p in part.partition("="))
        if not equals or not key or key in given:
            fault = "twice" if key in given and equals else "not PARAMETER=VALUE"
            hint = "write it such as fs,alpha1=2,alpha3=1.5"
            problems.append(Problem(path="policy", problem=f"'{part}' is {fault}", hint=hint))
        given[key] = _number(value)
    if problems and name in known:
        raise SpecError(problems, code="bad_parameter")
    make_policy(known, name, given)
    return name, with_current_names(known[name], given)


def read_live_policy(known: Mapping[str, PolicyInfo], text: str) -> tuple[str, dict[str, Value]]:
    """Return the same for a live cluster; raise SpecError also for an oracle of simulations."""
    name, parameters = read_policy(known, text)
    _check_live(known, name)
    return name, parameters


def _check_live(known: Mapping[str, PolicyInfo], name: str) -> None:
    if name in known and known[name].simulated_only:
        text = f"'{name}' needs to know how long each task will run, as only simulations do"
        hint = f"headgate simulate ... --policy {name}; here, least-attained-service or headgate"
        raise SpecError([Problem(path="policy", problem=text, hint=hint)], code="simulated_only")


def choose_policy(
    known: Mapping[str, PolicyInfo], name: str, parameters: Mapping[str, Any], text: str | None
) -> Policy:
    """Return a live policy from text such as `fsp` or `fs,alpha1=2`; without text that of `name`.

    Parameters that the text does not give have their defaults. Raises SpecError as
    `read_live_policy` and `make_policy` do.
    """
    if text is not None:
        name, parameters = read_policy(known, text)
    _check_live(known, name)
    return make_policy(known, name, parameters)


def with_current_names(info: PolicyInfo, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with the names that their choices have now."""
    names = {p.name: p.formerly for p in info.parameters}
    return {
        key: names.get(key, {}).get(value, value) if isinstance(value, str) else value
        for key, value in given.items()
    }


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text  # reported with its parameter's name


def _check(info: PolicyInfo, key: str, value: Any) -> list[Problem]:
    path = f"policy.{key}"
    parameter = next((p for p in info.parameters if p.name == key), None)
    if parameter is None:
        text = f"policy {info.name} has no parameter '{key}'"
        hint = nearest(key, [p.name for p in info.parameters])
        return [Problem(path=path, problem=text, hint=hint)]
    if parameter.choices:
        if value in parameter.choices:
            return []
        one_of = f"no value of '{key}'; one of {', '.join(parameter.choices)}"
        hint = nearest(str(value), parameter.choices)
        return [Problem(path=path, problem=f"{value!r} is {one_of}", hint=hint)]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value):
        return [Problem(path=path, problem=f"{value!r} is not a finite number")]
    if value <= parameter.above:
        text = f"{value} is not above {parameter.above:g}"
    elif value < parameter.least:
        text = f"{value} is below {parameter.least:g}"
    else:
        return []
    hint = f"default {parameter.default}: {parameter.meaning}"
    return [Problem(path=path, problem=text, hint=hint)]
