"""Links in the documentation lead to files that exist, and to headings that they have."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
)
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([^)\s#]*)(?:#([^)\s]+))?\)")


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return what links may name within a page: its headings as GitHub writes them, and ids."""
    text = FENCED.sub("", page.read_text())
    titles = [
        re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", t)
        for t in re.findall(r"^#+ (.*)", text, re.MULTILINE)
    ]
    slugs = (re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles)
    return frozenset([*slugs, *re.findall(r'<a id="([^"]+)"', text)])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    wrong = []
    for path, anchor in LINK.findall(FENCED.sub("", page.read_text())):
        target = (page.parent / path).resolve() if path else page
        known = target.exists() and (not anchor or anchor in anchors(target))
        wrong += [] if known else [f"{path}#{anchor}"]
    assert not wrong
