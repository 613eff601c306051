"""Images with faces at known places: a packaged photo of a person, on backgrounds without detail.

The photo is the portrait of Grace Hopper among matplotlib's sample data, a work of the United
States Navy and as such in the public domain.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headgate.workloads.detection import BoundingBoxes, missing, opencv

RECORD_BYTES = 16_384

_WIDTH, _HEIGHT = 320, 240
_SMALLEST_FACE, _LARGEST_FACE = 48, 96
_MOST_FACES = 2
_TEXTURE = 40  # pixels from one random grey of the background to the next
_QUALITIES = (85, 60, 30)
_HEAD = (130, 40, 270, 330)  # x, y, width, height in the photo
_FACE = (22, 63, 226, 226)  # the same, in the head


def write_images(path: Path, images: int, seed: int) -> BoundingBoxes:
    """Write JPEG files, each padded to `RECORD_BYTES`, and return where their faces are.

    Grey, 320 x 240, with up to two faces side by side, each of them 48 to 96 pixels wide.
    WorldError when OpenCV or the photo is not installed.
    """
    cv2 = opencv()
    rng = np.random.default_rng(seed)
    x, y, width, height = _HEAD
    head = cv2.imread(str(_photo()), cv2.IMREAD_GRAYSCALE)[y : y + height, x : x + width]
    rows: list[list[int]] = []
    with path.open("wb") as file:
        for number in range(images):
            image, faces = _image(cv2, head, rng)
            rows += [[number, *face] for face in faces]
            file.write(_encoded(cv2, image).ljust(RECORD_BYTES, b"\0"))
    return BoundingBoxes(images, np.array(rows, np.int32).reshape(-1, 5))


def _photo() -> Path:
    spec = importlib.util.find_spec("matplotlib")
    if spec is None or spec.origin is None:
        raise missing("matplotlib, with the photo of a face,")
    return Path(spec.origin).parent / "mpl-data" / "sample_data" / "grace_hopper.jpg"


def _image(
    cv2: Any, head: NDArray[np.uint8], rng: np.random.Generator
) -> tuple[NDArray[np.uint8], list[list[int]]]:
    """Return one image and the boxes of its faces, from left to right."""
    greys = rng.integers(60, 200, (_HEIGHT // _TEXTURE, _WIDTH // _TEXTURE), np.uint8)
    image = cv2.resize(greys, (_WIDTH, _HEIGHT), interpolation=cv2.INTER_CUBIC)
    room = _WIDTH // _MOST_FACES
    faces = []
    chosen = rng.permutation(_MOST_FACES)[: rng.integers(0, _MOST_FACES + 1)]
    for place in sorted(chosen.tolist()):
        scale = int(rng.integers(_SMALLEST_FACE, _LARGEST_FACE + 1)) / _FACE[2]
        height, width = (round(size * scale) for size in head.shape)
        x = place * room + int(rng.integers(0, room - width + 1))
        y = int(rng.integers(0, _HEIGHT - height + 1))
        patch = cv2.resize(head, (width, height), interpolation=cv2.INTER_AREA)
        image[y : y + height, x : x + width] = patch
        dx, dy, *size = (round(number * scale) for number in _FACE)
        faces.append([x + dx, y + dy, *size])
    return image, faces


def _encoded(cv2: Any, image: NDArray[np.uint8]) -> bytes:
    """Return a JPEG file of the best quality that fits a record."""
    for quality in _QUALITIES:
        encoded = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()
        if len(encoded) <= RECORD_BYTES:
            return bytes(encoded)
    raise AssertionError("an image of this size fits its record at the lowest quality")
