"""Options that verbs of `headgate reproduce` reject before any run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

INVALID = [
    (("--seeds", "0"), "--seeds"),
    (("--seeds", "21"), "--seeds"),
    (("--workers", "0"), "--workers"),
    (("--out", "file"), "--out"),
    (("--out", "full"), "--out"),
]
"""Arguments, and the path of the problem."""


def check_rejected(
    run: Callable[..., tuple[int, str, str]], report: str, arguments: tuple[str, ...], path: str
) -> None:
    """Check that a verb rejects arguments, touches no file and makes no directory `report`."""
    Path("file").write_text("mine")
    Path("full").mkdir()
    Path("full", "report.html").write_text("<p>mine</p>")

    code, out, err = run("--quick", *arguments, "-o", "json")

    assert (code, out) == (2, "")
    found = json.loads(err)
    assert (found["code"], [p["path"] for p in found["problems"]]) == ("usage", [path])
    assert Path("full", "report.html").read_text() == "<p>mine</p>"
    assert not Path(report).exists()
