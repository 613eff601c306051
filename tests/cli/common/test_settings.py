"""Settings: flag, environment, project, user, site, default - in this order."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.base.errors import SpecError
from headgate.cli.common.settings import Format, ProgramSettings, settle


class Place:
    """A home, a project in it, and the path of a site file, all empty."""

    def __init__(self, base: Path) -> None:
        self.home, self.site = base / "home", base / "etc" / "config.yaml"
        self.project = self.home / "project"
        self.inside = self.project / "deep" / "inside"
        self.user = self.home / ".config" / "headgate" / "config.yaml"
        for folder in (self.inside, self.user.parent, self.site.parent):
            folder.mkdir(parents=True)

    def settle(
        self, state: Path | None = None, fmt: Format | None = None, **env: str
    ) -> ProgramSettings:
        environment = {"HOME": str(self.home), **env}
        return settle(state, fmt, environment=environment, directory=self.inside, site=self.site)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_each_source_overrides_the_next(place: Place) -> None:
    expected = [place.home / ".local/state/headgate"]
    assert place.settle().state == expected[0]
    place.site.write_text("state: /from/site\noutput: json\n")
    assert place.settle() == ProgramSettings(state=Path("/from/site"), format=Format.JSON)
    place.user.write_text("state: /from/user\n")
    assert place.settle() == ProgramSettings(state=Path("/from/user"), format=Format.JSON)
    (place.project / ".headgate.yaml").write_text("state: run\noutput: table\n")
    assert place.settle() == ProgramSettings(state=place.project / "run", format=Format.TABLE)
    found = place.settle(HEADGATE_STATE="/from/env", HEADGATE_OUTPUT="json")
    assert found == ProgramSettings(state=Path("/from/env"), format=Format.JSON)
    flags = place.settle(Path("/from/flag"), Format.TABLE, HEADGATE_STATE="/e", HEADGATE_OUTPUT="x")
    assert flags == ProgramSettings(state=Path("/from/flag"), format=Format.TABLE)


def test_xdg_variables_move_the_base_directories(place: Place, tmp_path: Path) -> None:
    assert place.settle(XDG_STATE_HOME="/var/x").state == Path("/var/x/headgate")
    moved = tmp_path / "moved"
    (moved / "headgate").mkdir(parents=True)
    (moved / "headgate" / "config.yaml").write_text("state: ~user-has-no-such-thing/\n")
    with pytest.raises(SpecError, match="no such home directory"):
        place.settle(XDG_CONFIG_HOME=str(moved))


def test_problems_of_a_settings_file_are_reported_with_path_and_line(place: Place) -> None:
    file = place.project / ".headgate.yaml"
    file.write_text("output: table\nstat: x\nstate: 3\n")
    with pytest.raises(SpecError) as wrong:
        place.settle()
    assert [(p.path, p.line) for p in wrong.value.problems] == [
        (f"{file}: stat", 2), (f"{file}: state", 3),
    ]  # fmt: skip
    assert wrong.value.problems[0].hint == "did you mean 'state'?"


@pytest.mark.parametrize("where", ["environment", "file"])
def test_an_unknown_format_is_rejected_with_the_nearest(place: Place, where: str) -> None:
    environment = {"HEADGATE_OUTPUT": "jsn"} if where == "environment" else {}
    if where == "file":
        place.user.write_text("output: jsn\n")
    with pytest.raises(SpecError) as wrong:
        place.settle(**environment)
    assert wrong.value.problems[0].hint == "did you mean 'json'?"
