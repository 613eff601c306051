"""The detector finds the faces of generated images; tables of shards are merged into one."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.workloads.pipeline import cut, run_stage

from headgate.base.errors import SpecError, WorldError
from headgate.workloads import detection, faces
from headgate.workloads.detection import BoundingBoxes, opencv, read_boxes, write_boxes
from headgate.workloads.generate import generate

PARAMS = {"record_bytes": faces.RECORD_BYTES}
KIB = 1 << 10


def test_faces_are_found_at_their_places(tmp_path: Path) -> None:
    right = faces.write_images(tmp_path / "images", 60, seed=5)
    (result,) = run_stage(detection.detect, [[tmp_path / "images"]], tmp_path, PARAMS)
    found = read_boxes(result)
    assert found.images == right.images == 60
    assert len(right.boxes) > 40
    assert found.boxes.dtype == np.int32
    assert found.boxes[:, 0].tolist() == right.boxes[:, 0].tolist()
    assert np.abs(found.boxes[:, 1:] - right.boxes[:, 1:]).max() < 20


def test_generated_images_differ(tmp_path: Path) -> None:
    right = faces.write_images(tmp_path / "images", 60, seed=5)
    each = np.bincount(right.boxes[:, 0], minlength=60)
    assert set(each.tolist()) == {0, 1, 2}
    sizes = right.boxes[:, 3]
    assert ((sizes >= 48) & (sizes <= 96)).all()
    assert sizes.max() - sizes.min() > 30
    assert (right.boxes[:, 3] == right.boxes[:, 4]).all()
    records = [path.read_bytes() for path in cut(tmp_path / "images", faces.RECORD_BYTES)]
    assert len(set(records)) == len(records) == 60
    assert all(len(record) == faces.RECORD_BYTES for record in records)


def test_tables_of_shards_are_merged_into_one(tmp_path: Path) -> None:
    """Images are numbered consecutively, also past a shard without any face."""
    faces.write_images(tmp_path / "images", 9, seed=2)
    (whole,) = run_stage(detection.detect, [[tmp_path / "images"]], tmp_path, PARAMS)
    expected = whole.read_bytes()
    reads = [[path] for path in cut(tmp_path / "images", 2 * faces.RECORD_BYTES)]
    partial = run_stage(detection.detect, reads, tmp_path, PARAMS)
    (merged,) = run_stage(detection.merge, [partial], tmp_path)
    assert merged.read_bytes() == expected
    (merged,) = run_stage(detection.detect, [[p for (p,) in reads]], tmp_path, PARAMS)
    assert merged.read_bytes() == expected


def test_png_images_are_read(tmp_path: Path) -> None:
    cv2 = opencv()
    faces.write_images(tmp_path / "images", 1, seed=4)
    image = cv2.imdecode(np.fromfile(tmp_path / "images", np.uint8), cv2.IMREAD_COLOR)
    png = cv2.imencode(".png", image)[1].tobytes()
    (tmp_path / "png").write_bytes(png.ljust(256 * KIB, b"\0"))
    (jpeg,) = run_stage(detection.detect, [[tmp_path / "images"]], tmp_path, PARAMS)
    expected = read_boxes(jpeg)
    (result,) = run_stage(
        detection.detect, [[tmp_path / "png"]], tmp_path, {"record_bytes": 256 * KIB}
    )
    found = read_boxes(result)
    assert len(expected.boxes) > 0
    assert found.images == 1
    assert np.abs(found.boxes - expected.boxes).max() <= 8


def test_an_empty_shard_gives_an_empty_table(tmp_path: Path) -> None:
    (tmp_path / "images").touch()
    partial = run_stage(detection.detect, [[tmp_path / "images"]] * 2, tmp_path, PARAMS)
    (merged,) = run_stage(detection.merge, [partial], tmp_path)
    assert read_boxes(merged).images == 0
    assert read_boxes(merged).boxes.shape == (0, 5)


# -------------------------------------------------------------------------------- refusals


def test_a_record_that_is_no_image_is_reported(tmp_path: Path) -> None:
    faces.write_images(tmp_path / "images", 1, seed=1)
    with (tmp_path / "images").open("ab") as file:
        file.write(bytes(faces.RECORD_BYTES))
    with pytest.raises(SpecError, match="image 1 is neither a JPEG nor a PNG file"):
        run_stage(detection.detect, [[tmp_path / "images"]], tmp_path, PARAMS)
    with pytest.raises(SpecError, match="multiple of 20000 bytes"):
        run_stage(detection.detect, [[tmp_path / "images"]], tmp_path, {"record_bytes": 20_000})
    with pytest.raises(SpecError, match=r"params\.record_bytes"):
        run_stage(detection.detect, [[tmp_path / "images"]], tmp_path, {})


def test_missing_opencv_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(WorldError, match=r"OpenCV is not installed here; .*headgate\[vision\]"):
        run_stage(detection.detect, [[tmp_path / "images"]], tmp_path, PARAMS)
    with pytest.raises(WorldError, match=r"headgate\[vision\]"):
        generate("detection", tmp_path, 100_000, seed=1)
    table = BoundingBoxes(3, np.array([[1, 2, 3, 4, 5]], np.int32))
    write_boxes(tmp_path / "table", table)
    (merged,) = run_stage(detection.merge, [[tmp_path / "table"]], tmp_path)
    assert read_boxes(merged).boxes.tolist() == [[1, 2, 3, 4, 5]]


def test_missing_photo_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(WorldError, match=r"matplotlib.*headgate\[vision\]"):
        generate("detection", tmp_path, 100_000, seed=1)
