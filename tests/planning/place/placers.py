"""Every placer, with each of its settings that changes what it chooses."""

from __future__ import annotations

from headgate.planning.balancers import BALANCERS
from headgate.planning.place.choose import Placer
from headgate.planning.place.choose.setting import placer_of

SETTINGS: tuple[dict[str, str], ...] = (
    {"place": "links"},
    {"place": "best-fit-subtree"},
    {"place": "closed-minimum"},
    {"place": "closed-minimum", "reserve": "needed"},
    {"place": "closed-minimum", "otherwise": "wait"},
    {"place": "closed-minimum", "otherwise": "enlarge", "reserve": "needed"},
    {"place": "closed-minimum", "otherwise": "enlarge"},
    {"place": "sequential"},
    {"place": "block"},
    {"place": "cyclic"},
    {"place": "block-cyclic"},
    *({"place": name} for name in BALANCERS),
)


def made(setting: dict[str, str]) -> Placer:
    """Return the placer of a setting."""
    placer = placer_of(**setting)
    assert placer is not None
    return placer


PLACERS = tuple(map(made, SETTINGS))
