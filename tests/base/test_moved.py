"""Old names of modules that moved."""

from __future__ import annotations

from importlib import import_module

import pytest


@pytest.mark.parametrize(
    ("old", "name", "new"),
    [
        ("fit", "no_room", "place.why"),
        ("fit", "infeasible_demand", "units.fit"),
        ("shares", "entitle", "shares.fair_shares"),
        ("shares", "Hierarchy", "shares.fair_shares"),
        ("why_waits", "WhyWaits", "place.why"),
        ("placement", "fit", "place.placement"),
        ("placers.setting", "PlacingPolicy", "place.choose.setting"),
        ("timetable", "Timetable", "place.timetable"),
        ("reclaim", "with_reclaimed", "rounds.reclaim"),
    ],
)  # fmt: skip
def test_old_name_of_a_page_gives_the_object_of_today_with_a_warning(
    old: str, name: str, new: str
) -> None:
    old, new = f"headgate.planning.{old}", f"headgate.planning.{new}"
    with pytest.warns(DeprecationWarning, match=f"{old}.{name} is now {new}.{name}"):
        assert getattr(import_module(old), name) is getattr(import_module(new), name)


def test_names_that_never_were_are_missing_as_everywhere() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"headgate\.planning\.never"):
        import_module("headgate.planning.never")
    with pytest.raises(AttributeError, match="no attribute 'never'"):
        assert import_module("headgate.planning.fit").never
