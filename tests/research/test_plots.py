from xml.etree import ElementTree

import pytest

from research.svg import Axis, Chart, Series, picture

DECADES = Axis(label="ms", low=1.0, high=100.0, ticks=((10.0, "10"),), log=True)
SHARE = Axis(label="a < b", low=0.0, high=1.0, ticks=((0.5, "50 %"),))


def drawn(*series):
    return picture("Made up", [Chart(title="one", x=DECADES, y=SHARE, series=series)])


def test_equal_factors_take_equal_room_on_a_logarithmic_axis():
    assert [DECADES.place(each) for each in (1, 10, 100)] == pytest.approx([0, 0.5, 1])


def test_what_lies_beyond_an_axis_is_drawn_at_its_end():
    assert (SHARE.place(-3), SHARE.place(7)) == (0, 1)


def test_a_picture_is_well_formed_and_says_what_it_shows():
    dots = Series(points=[(10.0, 0.5)], kind="dots", colour="#000000", name="jobs")
    root = ElementTree.fromstring(drawn(dots))
    words = [each.text for each in root.iter() if each.text and each.text.strip()]
    assert words[0] == "Made up"
    assert {"one", "jobs", "10", "50 %", "a < b"} <= set(words)
    assert "M125.0 125.0h0" in drawn(dots)


def test_nothing_to_draw_is_an_empty_chart_and_no_broken_file():
    ElementTree.fromstring(drawn(Series(points=[], kind="line", colour="#000000")))


def test_the_same_numbers_are_the_same_bytes():
    line = Series(points=[(1.0, 0.1), (50.0, 0.9)], kind="dashed", colour="#000000")
    assert drawn(line) == drawn(line)
