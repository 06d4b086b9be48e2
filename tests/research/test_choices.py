"""The plan that comes first, judged by real runs of several ways."""

from hypothesis import given
from hypothesis import strategies as st

from advisor.prediction.prediction import Interval, interval_around
from advisor.sharing import Mps, Naive, Serial
from research.choices import first_way

intervals = st.builds(
    lambda middle, reach: interval_around(middle, -reach, reach),
    st.floats(0.2, 2.0), st.floats(0.001, 0.5),
)  # fmt: skip


def test_a_harder_way_comes_first_only_by_a_real_lead():
    sure, wide = Interval(0.99, 1.0, 1.01), Interval(0.5, 0.99, 2.0)
    assert first_way({Mps(): wide, Naive(): sure, Serial(): Interval(2, 2, 2)}) == Naive()
    assert first_way({Mps(): Interval(0.5, 0.51, 0.52), Naive(): sure}) == Mps()
    limits = {
        Mps((50.0, 50.0)): Interval(0.4, 0.4, 0.4),
        Mps((60.0, 40.0)): Interval(0.3, 0.3, 0.3),
    }
    assert first_way({Mps(): sure, **limits}) == Mps((60.0, 40.0))


@given(intervals)
def test_of_equally_fast_ways_the_simplest_comes_first(time):
    assert first_way({Mps((50.0, 50.0)): time, Mps(): time, Naive(): time}) == Naive()
    assert first_way({Mps(): time, Serial(): time}) == Serial()
