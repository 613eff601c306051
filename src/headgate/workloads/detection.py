"""Image detection: find the faces in images.

`detect` is run for each shard, `merge` once over all results. The detector is OpenCV's cascade for
frontal faces (Viola and Jones, 2001), whose weights come inside OpenCV's package; it computes on
the CPU, in one thread, also in a task that holds a GPU.

A shard is images, each a JPEG or PNG file padded with zeros to the parameter `record_bytes`, so
that cutting the data at multiples of it cuts between images. A result is a table (see
`BoundingBoxes`).
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headgate.base.errors import WorldError
from headgate.workloads.records import whole_number, whole_records, wrong
from headgate.workloads.task import TaskContext

LEAST_FACE = 40  # pixels; smaller faces are not looked for

_CASCADE = "haarcascade_frontalface_alt2.xml"
_SCALE_STEP = 1.1
_NEIGHBOURS = 10  # with 5 it invents some two faces in 1,000 generated images


class BoundingBoxes(NamedTuple):
    """One table: int32 rows of image, x, y, width, height, in ascending order.

    Images are numbered from 0 in the order of the data. Saved as `.npz` with `images`, how many
    there are, and `boxes`; equal tables give equal bytes.
    """

    images: int
    boxes: NDArray[np.int32]


def read_boxes(path: Path) -> BoundingBoxes:
    """Read a table that `write_boxes` wrote."""
    with np.load(path) as saved:
        return BoundingBoxes(int(saved["images"]), saved["boxes"])


def write_boxes(path: Path, table: BoundingBoxes) -> None:
    """Save a table; the file's name needs no suffix."""
    with path.open("wb") as file:
        np.savez(file, images=np.int64(table.images), boxes=table.boxes)


def opencv() -> Any:
    """Return OpenCV, set to use one thread; WorldError when it is not installed."""
    try:
        cv2 = importlib.import_module("cv2")
    except ImportError as error:
        raise missing("OpenCV") from error
    cv2.setNumThreads(1)
    return cv2


def missing(what: str) -> WorldError:
    """Return the error for a package of the extra `vision` that is not installed."""
    return WorldError(f"{what} is not installed here; pip install 'headgate[vision]'")


def detect(task: TaskContext) -> None:
    """Find the faces in the images of the task's shards."""
    cv2 = opencv()
    detector = cv2.CascadeClassifier(cv2.data.haarcascades + _CASCADE)
    record_bytes = whole_number(task.params, "record_bytes")
    rows: list[list[int]] = []
    images = 0
    for path in task.shards:
        for number in range(whole_records(path, record_bytes, "images")):
            record = np.fromfile(path, np.uint8, record_bytes, offset=number * record_bytes)
            image = cv2.imdecode(record, cv2.IMREAD_GRAYSCALE)
            if image is None:
                raise wrong(str(path), f"image {number} is neither a JPEG nor a PNG file")
            found = detector.detectMultiScale(
                image, _SCALE_STEP, _NEIGHBOURS, minSize=(LEAST_FACE, LEAST_FACE)
            )
            rows += [[images, *box] for box in sorted(np.asarray(found).tolist())]
            images += 1
    write_boxes(task.output, BoundingBoxes(images, np.array(rows, np.int32).reshape(-1, 5)))
    print(f"{len(rows)} faces in {images} images")


def merge(task: TaskContext) -> None:
    """Put the tables of all earlier tasks one below the other, images numbered through."""
    images, tables = 0, [np.empty((0, 5), np.int32)]
    for path in task.shards:
        table = read_boxes(path)
        tables.append(table.boxes + np.array([images, 0, 0, 0, 0], np.int32))
        images += table.images
    boxes = np.concatenate(tables)
    write_boxes(task.output, BoundingBoxes(images, boxes))
    print(f"{len(boxes)} faces in {images} images")
