import pytest

from advisor.prediction.interval import Interval
from advisor.report import units


@pytest.mark.parametrize(
    ("low", "middle", "high", "said"),
    [
        (0.0072, 0.008, 0.0088, "8.00 ms (7.20-8.80)"),
        (1.0, 1.25, 1.5, "1.25 s (1.00-1.50)"),
        (100, 119, 130, "119 s (100-130)"),
        (660, 738, 846, "12.3 min (11.0-14.1)"),
        (7200, 9000, 10800, "2.50 h (2.00-3.00)"),
        (864_000, 950_400, 1_036_800, "11.0 d (10.0-12.0)"),
    ],
)
def test_a_time_has_three_digits_a_unit_and_its_interval(low, middle, high, said):
    assert units.seconds(Interval(low, middle, high)) == said


def test_what_is_not_known_is_not_a_zero():
    for figure in (units.seconds, units.joules, units.watts, units.share):
        assert figure(None) == "not measured"


def test_a_factor_that_is_certain_has_no_interval():
    assert units.times(Interval(1, 1, 1)) == "1.00x"
    assert units.times(Interval(1.2, 1.5, 1.8)) == "1.50x (1.20-1.80)"


def test_energy_and_memory_choose_units_that_read_well():
    assert units.joules(Interval(1.8e5, 3.6e5, 5.4e5)) == "100 Wh (50.0-150)"
    assert units.joules(Interval(3.6e6, 7.2e6, 1.08e7)) == "2.00 kWh (1.00-3.00)"
    assert units.gib(Interval(1024, 2048, 3072)) == "2.00 GiB (1.00-3.00)"


def test_equal_things_are_counted():
    assert units.collapsed(["a"]) == "a"
    assert units.collapsed(["a", "a", "a"]) == "a x3"


@pytest.mark.parametrize(
    ("ordered", "said"),
    [([], ""), ([3], "3"), ([3, 4], "3,4"), ([1, 2, 3, 7, 9, 10], "1-3,7,9,10")],
)
def test_numbers_in_a_row_are_said_by_their_ends(ordered, said):
    assert units.numbers(ordered) == said
