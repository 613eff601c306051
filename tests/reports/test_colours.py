"""Colours of jobs: they stay with the job, and differ for people with any colour vision."""

from __future__ import annotations

import re
from itertools import combinations, pairwise

import numpy as np
import pytest

from headgate.base.arrays import Floats
from headgate.reports import colours, pages

# Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision
# Deficiency", IEEE TVCG 15(6), 2009: severity 1.0, of linear RGB.
VISIONS = {
    "full": np.eye(3),
    "protanopia": np.array([
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ]),
    "deuteranopia": np.array([
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ]),
    "tritanopia": np.array([
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ]),
}  # fmt: skip
TO_XYZ = np.array([
    [0.4124564, 0.3575761, 0.1804375],
    [0.2126729, 0.7151522, 0.0721750],
    [0.0193339, 0.1191920, 0.9503041],
])  # fmt: skip


def linear(colour: str) -> Floats:
    """Return linear RGB of `#rrggbb`."""
    values = np.frombuffer(bytes.fromhex(colour[1:]), np.uint8) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(colour: str, vision: str) -> Floats:
    """Return CIE L*a*b* of a colour as people with this vision see it."""
    seen = np.clip(VISIONS[vision] @ linear(colour), 0, 1)
    x = TO_XYZ @ seen / TO_XYZ.sum(axis=1)
    f = np.where(x > 216 / 24389, np.cbrt(x), (24389 / 27 * x + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def distance(a: str, b: str, vision: str) -> float:
    """Return CIEDE2000, the perceived difference of two colours; 1 is just noticeable."""
    (l1, a1, b1), (l2, a2, b2) = lab(a, vision), lab(b, vision)
    mean = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    g = 1.5 - 0.5 * np.sqrt(mean**7 / (mean**7 + 25.0**7))
    c1, c2 = np.hypot(g * a1, b1), np.hypot(g * a2, b2)
    h1, h2 = (np.arctan2(y, g * x) % (2 * np.pi) for x, y in ((a1, b1), (a2, b2)))
    apart = (h2 - h1 + np.pi) % (2 * np.pi) - np.pi
    hue, light, chroma = h1 + apart / 2, (l1 + l2) / 2, (c1 + c2) / 2
    waves = (
        (-0.17, 1, 30), (0.24, 2, 0), (0.32, 3, -6), (-0.20, 4, 63),
    )  # fmt: skip
    t = 1 + sum(size * np.cos(n * hue - np.radians(at)) for size, n, at in waves)
    by_l = (l2 - l1) / (1 + 0.015 * (light - 50) ** 2 / np.sqrt(20 + (light - 50) ** 2))
    by_c = (c2 - c1) / (1 + 0.045 * chroma)
    by_h = 2 * np.sqrt(c1 * c2) * np.sin(apart / 2) / (1 + 0.015 * chroma * t)
    turn = np.radians(60 * np.exp(-(((np.degrees(hue) % 360 - 275) / 25) ** 2)))
    cross = -2 * np.sqrt(chroma**7 / (chroma**7 + 25.0**7)) * np.sin(turn)
    return float(np.sqrt(by_l**2 + by_c**2 + by_h**2 + cross * by_c * by_h))


def luminance(colour: str) -> float:
    return float((TO_XYZ @ linear(colour))[1])


def contrast(a: str, b: str) -> float:
    """Return the contrast of WCAG, 1 to 21."""
    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


def test_distance_is_that_of_published_pairs() -> None:
    """Black and white differ by 100 by definition; equal colours by 0."""
    assert distance("#000000", "#ffffff", "full") == pytest.approx(100, abs=0.01)
    assert distance("#0f7df5", "#0f7df5", "full") == 0


@pytest.mark.parametrize("vision", VISIONS)
def test_any_two_colours_differ_for_people_with_any_colour_vision(vision: str) -> None:
    """Of the palette of Okabe and Ito, made for this, the least distance is 10.9."""
    apart = {
        (a, b): distance(a, b, vision) for a, b in combinations((*colours.COLOURS, "#1d2430"), 2)
    }
    assert min(apart.values()) > 12, min(apart, key=lambda pair: apart[pair])
    jobs_apart = [distance(a, b, vision) for a, b in combinations(colours.COLOURS, 2)]
    assert min(jobs_apart) > 16
    for colour in colours.COLOURS:
        for page in ("#eef1f5", "#1d242d"):  # an idle GPU of light and dark pages
            assert distance(colour, page, vision) > 15


@pytest.mark.parametrize("vision", VISIONS)
def test_the_use_of_links_is_darker_the_more_it_is(vision: str) -> None:
    lightness = [float(lab(colours.heat(use / 10), vision)[0]) for use in range(11)]
    assert all(a > b + 1 for a, b in pairwise(lightness))


def test_words_on_colours_and_pages_have_contrast() -> None:
    for colour, ink in zip(colours.COLOURS, colours.INKS, strict=True):
        assert contrast(colour, ink) >= 4.5
    for scheme in pages.SCHEMES:
        named = dict(re.findall(r"--([a-z]+):(#[0-9a-f]{6})", scheme))
        for name in ("fg", "soft", "yes", "no", "none"):
            assert contrast(named[name], named["bg"]) >= 4.5


def test_a_job_keeps_its_look_and_jobs_near_it_differ() -> None:
    looks = [colours.fill(f"job-{number}") for number in range(1, colours.LOOKS + 1)]
    assert len({*looks}) == colours.LOOKS
    assert colours.fill("train-7") == colours.fill("job-7"), "numbers are of the cluster"
    assert 0 <= colours.look("nightly") < colours.LOOKS
    drawn = "".join(f'<rect fill="{look}"/>' for look in looks)
    defined = set(re.findall(r'pattern id="([a-z0-9]+)"', colours.hatches(drawn)))
    assert defined == set(re.findall(r"url\(#([a-z0-9]+)\)", drawn))
    assert colours.hatches("<rect/>") == ""
