"""A few of the drills of `benchmarks.faults`, which `make check-all` runs by the hundred."""

from benchmarks.faults import drilled


def test_whatever_fault_meets_a_script_at_whatever_line_nothing_is_left_and_nothing_hangs():
    ends = list(drilled(range(0, 46, 4), seed=1, plans=("limits", "two GPUs")))
    assert [each for each in ends if not each.good] == []
