"""Colours of jobs: told apart with any colour vision, and seen on both grounds."""

from itertools import combinations

import numpy as np
import pytest

from advisor.report.chart_parts import ESTIMATE_COLOUR, JOB_COLOURS, SURE_COLOUR, ink_on

# Machado, Oliveira and Fernandes (2009), severity 1, of linear RGB.
VISION = {
    "usual": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
               [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                 [-0.011820, 0.042940, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                [0.004733, 0.691367, 0.303900]],
}  # fmt: skip
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
GROUNDS = {"light": "#FFFFFF", "dark": "#171614"}


def linear(colour):
    """Red, green and blue of ``#RRGGBB`` as amounts of light, 0..1."""
    written = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(written <= 0.04045, written / 12.92, ((written + 0.055) / 1.055) ** 2.4)


def lab(light):
    """Of amounts of light, the place in CIE's space, in which distances are differences seen."""
    x, y, z = XYZ @ np.clip(light, 0, 1) / (0.9505, 1, 1.089)
    x, y, z = (np.cbrt(each) if each > 0.008856 else 7.787 * each + 16 / 116 for each in (x, y, z))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one, other):
    low, high = sorted(float(XYZ[1] @ linear(each)) for each in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("vision", VISION)
def test_jobs_and_what_figures_stand_on_are_told_apart_with_any_colour_vision(vision):
    pairs = [*combinations(JOB_COLOURS, 2), (SURE_COLOUR, ESTIMATE_COLOUR)]
    for pair in pairs:
        one, other = (lab(VISION[vision] @ linear(each)) for each in pair)
        assert np.linalg.norm(one - other) > 15, pair


@pytest.mark.parametrize("ground", GROUNDS)
def test_each_colour_is_seen_on_light_and_on_dark_ground(ground):
    for colour in (*JOB_COLOURS, SURE_COLOUR, ESTIMATE_COLOUR):
        assert contrast(colour, GROUNDS[ground]) > 1.9, colour


def test_words_on_a_jobs_colour_can_be_read():
    written = {"white": "#FFFFFF", "black": "#000000"}
    assert all(contrast(each, written[ink_on(each)]) > 4.5 for each in JOB_COLOURS)
