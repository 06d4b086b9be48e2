"""What pinning gained, from runs of jobs pinned to cores and free to move."""

import pytest

from research.pinning_score import gains, pinning_table, rows
from tests import synthetic

JOB = synthetic.profile("resnet50-imagenet64-bs128")


def ran(name, jobs, slowdown):
    return synthetic.run([JOB] * jobs, "naive", slowdown, f"pinning-{name}")


def test_a_job_that_was_slower_when_free_to_move_gained_by_pinning():
    (alone,) = gains([ran("0-one-few-pinned", 1, 1.0), ran("0-one-few-free", 1, 1.5)])
    assert (alone.jobs, alone.sharing, alone.steps) == (JOB.name, "alone", 1)
    assert alone.median == pytest.approx(1.5)


def test_jobs_that_ran_together_are_summed_up_without_those_that_ran_alone():
    runs = [
        ran(f"{device}-{mix}-all-{how}", jobs, slowdown)
        for mix, jobs in (("one", 1), ("mps-two", 2))
        for device, free in (("0", 0.8), ("1", 1.2))
        for how, slowdown in (("pinned", 1.0), ("free", free * jobs))
    ]
    *_, together = gains(runs)
    assert (together.jobs, together.steps) == ("all", 4)
    shares = (together.least, together.median, together.most)
    assert shares == pytest.approx((1.6, 2.0, 2.4))


def test_a_mix_that_ran_in_one_way_only_says_nothing():
    assert list(gains([ran("0-one-few-pinned", 1, 1.0)])) == []


def test_the_table_shows_what_was_measured():
    assert "| all that ran together | - | as many as needed | 30 |" in pinning_table()
    (cells,) = rows([{
        "jobs": JOB.name, "sharing": "alone", "cores": "few", "steps": 2, "median": 1.224,
        "least": 1.22, "most": 1.23,
    }])  # fmt: skip
    assert cells[-3:] == ("1.22x", "1.22x", "1.23x")
