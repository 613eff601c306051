"""Parts that policies are composed of: entitlements, fit, costs, order, CPU tasks."""

from headgate.base import not_built
from headgate.base.moved import moved_modules

try:
    import headgate.planning._native  # noqa: F401  # before the modules that import it
except ImportError as missing:
    raise not_built("headgate.planning", missing) from missing

_ROOMS = {  # what pages for authors of policies named before
    "fit": ("units.fit", "place.why"),
    "placement": ("place.placement",),
    "placers.setting": ("place.choose.setting",),
    "placers": ("place.choose",),
    "reclaim": ("rounds.reclaim",),
    "timetable": ("place.timetable",),
    "why_waits": ("place.why",),
}
moved_modules(
    {f"{__name__}.{old}": [f"{__name__}.{new}" for new in rooms] for old, rooms in _ROOMS.items()}
)
