"""A few of the drills of `benchmarks.faults`, which `make check-all` runs by the hundred."""

from functools import partial

from benchmarks import run_faults
from benchmarks.faults import drilled, outcome


def test_whatever_fault_meets_a_script_at_whatever_line_nothing_is_left_and_nothing_hangs():
    run = partial(outcome, 1, 60.0, ("limits", "two GPUs"))
    assert [each for each in drilled(range(0, 46, 23), run) if not each.good] == []


def test_whatever_ends_the_process_that_starts_a_run_its_jobs_end_or_can_be_ended():
    run = partial(run_faults.outcome, 1, 60.0)
    assert [each for each in drilled(range(1), run) if not each.good] == []
