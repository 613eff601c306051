"""Pages in a real browser: at the width of a screen and of a phone, nothing is cut off."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headgate.cli.jobs import timeline
from headgate.model.topology import Tree
from headgate.reports import pages
from headgate.reports.drawing import Axis, bars, curves, gpus_over_time, stacked
from headgate.reports.topology import Occupancy
from headgate.reports.topology_svg import as_svg

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
WIDTHS = (1200, 390)
SMALLEST = 8.0  # pixels of words that can be read

# For each frame: the width that its document needs, and what is cut off: elements that end right of
# the page outside a box that scrolls, and words of drawings outside these; the size of the smallest
# words of drawings, in pixels; and where each figure of a table ends, by its text.
MEASURE = """
const found = [];
for (const frame of document.querySelectorAll('iframe')) {
  const page = frame.contentDocument, root = page.documentElement;
  const cut = [], sizes = [], ends = {};
  for (const cell of page.querySelectorAll('td.n')) {
    const range = page.createRange();
    range.selectNodeContents(cell.firstChild);
    ends[range.toString().trim()] = Math.round(range.getBoundingClientRect().right);
  }
  for (const each of page.querySelectorAll('body *, svg text')) {
    const box = each.getBoundingClientRect();
    const fixed = page.body && !each.closest('.wide, .chart');
    if (fixed && box.width && box.right > root.clientWidth + 1) cut.push(each.outerHTML);
    if (each.tagName !== 'text') continue;
    const size = parseFloat(frame.contentWindow.getComputedStyle(each).fontSize);
    sizes.push(size * each.getScreenCTM().a);
    const drawing = each.ownerSVGElement.getBoundingClientRect();
    if (box.left < drawing.left - 1 || box.right > drawing.right + 1
        || box.top < drawing.top - 1 || box.bottom > drawing.bottom + 1) cut.push(each.outerHTML);
  }
  found.push({page: frame.title, width: root.clientWidth, needs: root.scrollWidth,
              least: Math.min(...sizes), ends, cut: cut.map(text => text.slice(0, 120))});
}
const result = document.createElement('pre');
result.id = 'result';
result.textContent = JSON.stringify(found);
document.body.append(result);
"""


def _reservation(job: str, gpus: int) -> dict[str, Any]:
    node = f"a-node-with-a-very-long-name-{job}.cluster.example.org"
    held = [
        {"task": f"{job}-run-{gpu}/0", "node": node, "gpus": [gpu], "until": 60.0 * (gpu + 1)}
        for gpu in range(gpus)
    ]
    places = [{"node": node, "gpus": [*range(gpus)]}]
    times = {"at": 600.0, "until": 1e5}
    return {"job": job, "gpus": gpus, "places": places, "waits_for": held, **times}


def _everything() -> str:
    """Return a page with each part of reports, with long names."""
    shares = (8e12, 1e11, 1e11)
    names = [f"headgate,place=topology,slack={n},estimates=learnt" for n in range(8)]
    wide = pages.grid(names, [["123,456.7 s"] * len(names)] * 3)
    axis = Axis(least=0.0, most=1.0, marks={0.0: "0 %", 1.0: "100 %"}, words="load, of all GPUs")
    jobs = [f"a-job-with-a-name-{n}" for n in range(1, 45)]
    parts = [
        ("Table", wide),
        (
            "Published",
            pages.grid(
                ("policy", "time", "published"), [("a", "123.4 s", "99.9 s"), ("b", "300.0 s", "-")]
            ),
        ),
        ("Legend", pages.legend([("b0", "x" * 100)], [(job, job) for job in jobs])),
        ("Bars", bars({n: {"a": 9.0} for n in names}, ["a"], most=9.0, form="{:,.0f} GPU h",
                      title="bars")),
        ("Stacked", stacked(dict.fromkeys(names, shares), ("x", "y", "z"), most=1e13)),
        ("Curves", curves({n: [(0.0, 0.0), (1.0, 1.0)] for n in names}, axis, axis,
                          title="curves")),
        ("GPUs", gpus_over_time([], [(names[0], 8)], 1000.0, title="GPUs over time")),
    ]  # fmt: skip
    nav, body = pages.sections(parts)
    return pages.document("All", f"<h1>{'word ' * 20}{'y' * 90}</h1>{nav}{body}", command="all")


def _topology() -> str:
    names = ["core", "rack", "node", "socket", "gpu"]
    tree = Tree.uniform([3, 4, 2, 4], [2e9, 1e9, 4e9, 4e9], level_names=names)
    held = [[f"a-job-{leaf // 3}"] if leaf % 5 else [] for leaf in range(tree.leaves)]
    occupancy = Occupancy(topology=tree, holders=held, usable=[True] * tree.leaves)
    return as_svg(occupancy, np.linspace(0, 1, tree.links))


@pytest.mark.skipif(BROWSER is None, reason="needs a browser: apt-get install chromium")
def test_pages_and_drawings_fit_a_screen_and_a_phone(tmp_path: Path) -> None:
    (tmp_path / "all.html").write_text(_everything())
    (tmp_path / "topology.svg").write_text(_topology())
    reserved = [_reservation(f"wide-{n}", 8) for n in (1, 2)]
    timeline.write_page(tmp_path / "plan.html", "easy-backfill", reserved, 0.0)
    shown = ["all.html", "plan.html", "topology.svg"]

    measured = measure(tmp_path, shown)

    assert len(measured) == len(shown) * len(WIDTHS)
    for found in measured:
        least = 720 if found["page"].endswith(".svg") else 0  # a drawing alone scrolls below that
        assert found["needs"] <= max(found["width"], least), found
        assert found["cut"] == [], found
        assert found["least"] >= SMALLEST, found
        if found["page"] == "all.html":
            assert found["ends"]["123.4 s"] == found["ends"]["300.0 s"], "figures line up"


def measure(directory: Path, shown: list[str]) -> list[dict[str, Any]]:
    """Return what the browser finds of each file at each width."""
    frames = "".join(
        f'<iframe title="{escape(name)}" src="{escape(name)}" '
        f'style="width:{width}px;height:2000px;border:0"></iframe>'
        for name in shown
        for width in WIDTHS
    )
    page = directory / "measured.html"
    page.write_text(f"<body>{frames}<script>onload = () => {{{MEASURE}}}</script></body>")
    assert BROWSER is not None
    done = subprocess.run(
        [
            BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom",
            "--allow-file-access-from-files", f"--user-data-dir={directory / 'browser'}",
            "--virtual-time-budget=20000", page.as_uri(),
        ],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    result = re.search(r'<pre id="result">(.*?)</pre>', done.stdout, re.DOTALL)
    assert result, done.stderr
    found: list[dict[str, Any]] = json.loads(unescape(result[1]))
    return found
