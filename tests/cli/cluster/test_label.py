"""The verb label, over the API."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any

import pytest

ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture(autouse=True)
def admin(controller: Any) -> None:
    controller.admins = {ME}


def test_labels_are_set_shown_and_removed(up: Any) -> None:
    assert up("label", "n1", "ml", "zone=a", "--dry-run").out == "n1 would have ml, zone=a\n"
    assert up("label", "n1").out == "n1 has no label\n"
    assert up("label", "n1", "ml", "zone=a").out == "n1 has ml, zone=a\n"
    assert up("label", "n1", "zone=b", "ml-").out == "n1 has zone=b\n"
    assert up("label", "n1", "-o", "json").json["labels"] == ["zone=b"]
    (shown,) = [line for line in up("nodes", "-o", "wide").out.splitlines() if "zone=b" in line]
    assert shown.startswith("n1 ")


def test_a_file_gives_nodes_its_labels_and_no_others(up: Any, tmp_path: Path) -> None:
    up("label", "n0", "old")
    file = tmp_path / "labels.yaml"
    file.write_text("labels:\n  n0: [ml, zone=a]\n  later: spot\n")
    out = up("label", "--file", str(file)).out
    assert out == "n0 has ml, zone=a\nlater has, once it joins, spot\n"


def test_all_problems_are_named_and_nothing_changes(up: Any, tmp_path: Path) -> None:
    assert up("label", "n1", "ml").code == 0
    refused = up("label", "n1", "a b", "zone-")
    assert refused.code == 2
    assert "n1: 'a b' is no label\n  a label is name or name=value" in refused.err
    assert "n1: has no label 'zone'" in refused.err
    assert "there is no node n9" in up("label", "n9", "ml").err
    assert "either a NODE or --file" in up("label").err
    file = tmp_path / "labels.yaml"
    file.write_text("labels:\n  n0: [ml, 7]\n  n1: 'x y'\nlabel: {}\n")
    refused = up("label", "--file", str(file))
    assert refused.err.count("must be labels") == 2
    assert "label (line 4): unknown key 'label'" in refused.err
    assert up("label", "n1").out == "n1 has ml\n"


def test_only_administrators_label_nodes(up: Any, controller: Any) -> None:
    controller.admins = set()
    refused = up("label", "n1", "ml")
    assert refused.code == 2
    assert "permission denied" in refused.err
    assert up("label", "n1").out == "n1 has no label\n"
