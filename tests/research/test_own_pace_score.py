"""What earlier runs of a job teach of its pace, on shipped runs."""

import pytest

from research.own_pace_score import own_pace_table, rows, steps_of
from tests import synthetic

HOST_BOUND = synthetic.profile("resnet26-cifar10-bs128", host_s=0.010, gpu_s=0.002)
PROFILES = {HOST_BOUND.name: HOST_BOUND}


def test_a_run_is_predicted_with_those_before_it_that_day_alone():
    runs = [
        synthetic.run([HOST_BOUND] * 2, "mps", slowdown=1.44, run_id=f"r{at}") for at in range(3)
    ]
    first, _, second, _, third, _ = steps_of("h200-141gb", PROFILES, runs)
    assert [each.earlier for each in (first, second, third)] == [0, 1, 2]
    assert first.plain == first.paced
    assert abs(third.paced) < abs(second.paced) < abs(second.plain) == abs(first.plain)


def test_each_class_of_earlier_runs_is_a_line():
    step = {"mode": "naive", "earlier": 1, "plain": -0.2, "paced": 0.1,
            "inside_plain": False, "inside_paced": True}  # fmt: skip
    assert list(rows([step, step | {"earlier": 0}, step | {"earlier": 9, "paced": 0.3}])) == [
        ("naive", "1", "1", "20.0 %", "10.0 %", "0.0 %", "100.0 %"),
        ("naive", "4 and more", "1", "20.0 %", "30.0 %", "0.0 %", "100.0 %"),
    ]


@pytest.mark.parametrize("words", ["earlier runs of the job", "| MPS limits | 4 and more |"])
def test_the_document_has_the_table(words):
    assert words in own_pace_table()
