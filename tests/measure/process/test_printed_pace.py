"""Steps of a job that prints its pace, counted from its output as it comes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.measure.process.job_keeper import PrintedPace
from advisor.measure.process.progress_file import blank, progress_in

LINES = b"starting\nrate 400 examples/s\nnothing\nrate 400 examples/s\nrate 800 examples/s\n"


def paced(folder, pieces):
    """What is read after pieces of output that came at their moments, seconds."""
    file = folder / "progress"
    file.unlink(missing_ok=True)
    pace = PrintedPace("rate ([0-9.e-]+)", batch=100, progress=str(blank(file)))
    for printed, now in pieces:
        pace.add(printed, now)
    return progress_in(file)


def test_steps_pass_at_the_pace_that_was_printed_last(tmp_path):
    pieces = [(b"rate 400\n", 10.0), (b"rate 400\n", 11.0), (b"rate 600\n", 11.5)]
    found = paced(tmp_path, pieces)
    assert (found.steps, found.at_s) == (7, 11.5), "4 a second for a second, then 6 for half of one"
    found = paced(tmp_path, [*pieces, (b"rate 600\n", 11.6)])
    assert (found.steps, found.at_s) == (7, pytest.approx(11.5)), "the last whole step, and when"


@given(cuts=st.lists(st.integers(0, len(LINES)), max_size=6).map(sorted))
def test_lines_count_once_whole_however_they_arrive(cuts, tmp_path_factory):
    bounds = [0, *cuts, len(LINES)]
    pieces = [(LINES[first:last], 5.0) for first, last in pairwise(bounds)]
    found = paced(tmp_path_factory.mktemp("paced"), [*pieces, (b"rate 400\n", 6.0)])
    assert (found.steps, found.at_s) == (4, 6.0)


@pytest.mark.parametrize(
    "odd", [b"rate 0\n", b"rate e\n", b"rate 1e300\n", b"rate .\n", b"\n\xff\n"]
)
def test_a_figure_that_is_no_pace_counts_for_nothing(tmp_path, odd):
    pieces = [(b"rate 400\n", 1.0), (odd, 2.0), (b"rate 400\n", 3.0)]
    assert paced(tmp_path, pieces).steps == 8


def test_a_progress_bar_is_read_too(tmp_path):
    pieces = [(b"\r 5% rate 400", 10.0), (b"\r10% rate 400", 11.0), (b"\r15% rate 400", 12.0)]
    assert paced(tmp_path, pieces).steps == 4, "the last figure may go on"
