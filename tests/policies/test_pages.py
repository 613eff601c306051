"""The page of every policy has its parameters, with the defaults that they have in the code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from headgate.app import POLICIES
from headgate.ports import PLACE, Parameter

PAGES = Path(__file__).parents[2] / "docs" / "policies"
OF_PLACERS = {parameter.name: parameter for parameter in PLACE}
ROW = re.compile(r"^\| `(\w+)` \|([^|]+)\|([^|]+)\|[^|]+\|$", re.MULTILINE)
IN_TEXT = re.compile(r"`(\w+)(?:: [\w-]+)?` \((?:default )?`?([\w.,-]+)`?\)")


def text_of(policy: str) -> str:
    """Return the page of a policy; those that have none of their own are on that of the orders."""
    own = PAGES / f"{policy}.md"
    return (own if own.exists() else PAGES / "orders.md").read_text()


def rows_of(text: str) -> list[tuple[str, str, str]]:
    """Return name, default and unit of each row of the table of parameters of a page."""
    found: list[tuple[str, str, str]] = ROW.findall(text.partition("\n## Parameters\n")[2])
    return found


def written(text: str) -> dict[str, str]:
    """Return the parameters of a page, in a table or as `name` (default), with their defaults."""
    return dict(IN_TEXT.findall(text)) | {name: default for name, default, _ in rows_of(text)}


def shown(default: float | str) -> float | str:
    return default if isinstance(default, str) else float(default)


def read(default: str) -> float | str:
    text = default.strip().strip("`")
    return float(text.replace(",", "")) if re.fullmatch(r"[\d.,]+", text) else text


def unlike(text: str, parameters: Sequence[Parameter]) -> list[str]:
    """Return the parameters that a page lacks or gives another default."""
    defaults = {name: read(default) for name, default in written(text).items()}
    return [each.name for each in parameters if defaults.get(each.name) != shown(each.default)]


EACH = pytest.mark.parametrize("name", POLICIES)


@EACH
def test_page_has_every_parameter_with_its_default_unit_and_bounds_and_no_other(name: str) -> None:
    text, parameters = text_of(name), POLICIES[name].parameters
    assert not unlike(text, [each for each in parameters if each.name not in OF_PLACERS])
    places = next(each for each in parameters if each.name == "place")
    assert "`place`" in text
    assert "(placers.md)" in text
    if places != OF_PLACERS["place"]:
        assert not unlike(text, [places])
    rows = {row[0]: row[2].strip() for row in rows_of(text)}
    assert {*rows} <= {each.name for each in parameters}
    for each in (each for each in parameters if each.name in rows):
        bounds = (("> ", each.above), (">= ", each.least))
        bound = "".join(f" ({sign}{n:g})" for sign, n in bounds if abs(n) < float("inf"))
        assert rows[each.name] == ("" if each.choices else f"{each.unit}{bound}")


def test_page_of_placers_has_their_parameters() -> None:
    text = (PAGES / "placers.md").read_text()
    for each in PLACE:
        for choice in each.choices:
            assert f"`{choice}`" in text, f"{each.name}: {choice}"
        if each.name != "place":
            default = f"`{each.default}` (default)" if each.choices else f"({each.default:g})"
            assert re.search(rf"^\| `{each.name}` \| .*{re.escape(default)}", text, re.MULTILINE)
    assert "`first-fit` (default" in text


def test_every_policy_is_in_the_list_and_its_page_says_which_jobs_it_places() -> None:
    text = (PAGES / "README.md").read_text()
    assert not [name for name in POLICIES if f"[`{name}`]" not in text]
    for name in POLICIES:
        assert f"`{name}`" in text_of(name), name
        assert "Kinds of jobs" in text_of(name), name
