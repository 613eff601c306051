"""Scaling as the state knows it: the catalogue, orders on their way, nodes made and drained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headgate.model.scaling import Scaling, Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A node that was ordered: the name of its shape, when, and how its making has failed so far.

    `message` is that of the last failure, "" without one.
    """

    shape: str
    at: float
    failures: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Why no run may start on a node: who drains it since when. `by` is "" for scaling."""

    by: str
    at: float
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The nodes that come and go by order, and labels; replaced, never changed in place.

    `orders` are on their way, `made` the orders of nodes by node id, `removing` the nodes that the
    provider removes, by order. Keys of orders are never used again: the next one has the number
    `next_order`. `labels` are those that an administrator gave to nodes, in place of their own.
    """

    scaling: Scaling | None = None
    orders: Mapping[str, Order] = field(default_factory=dict)
    made: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # -> key, shape
    removing: Mapping[str, str] = field(default_factory=dict)
    drains: Mapping[str, Drain] = field(default_factory=dict)
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    next_order: int = 1

    def shape(self, name: str) -> Shape | None:
        """Return a shape of the catalogue by its name, None without it."""
        shapes = () if self.scaling is None else self.scaling.shapes
        return next((shape for shape in shapes if shape.name == name), None)

    def is_order(self, name: str) -> bool:
        """Return whether a name is the key of an order whose node may exist."""
        made = any(key == name for key, _ in self.made.values())
        return name in self.orders or name in self.removing or made

    def replace(self, **changes: Any) -> Fleet:
        """Return the fleet with other values of some fields."""
        return replace(self, **changes)


NO_FLEET = Fleet()


def without(mapping: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return a mapping without a key."""
    return {name: value for name, value in mapping.items() if name != key}
