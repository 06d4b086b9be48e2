"""A host that is slower than predicted, as the first second of its jobs shows it."""

import pytest

from advisor.run.host_pace import infer_host_factor, rest_of_run
from tests import synthetic

HOST, GPU = synthetic.profile(host_s=0.01, gpu_s=0.002), synthetic.profile(gpu_s=0.03)


def test_the_host_is_as_predicted_if_its_jobs_are():
    assert infer_host_factor([HOST, GPU], [0.01, 0.03], [0.01, 0.03]) == 1


def test_a_slow_host_shows_in_host_bound_jobs_and_the_more_the_more_of_them_run():
    one, three = (infer_host_factor([HOST] * n, [0.01] * n, [0.013] * n) for n in (1, 3))
    assert 1 < one < three < 1.3
    assert 1 < infer_host_factor([GPU], [0.06], [0.078]) < one


def test_a_gpu_bound_job_keeps_its_pace_better_than_a_host_bound_one():
    widths = [each.p95 / each.p05 for each in (rest_of_run(GPU, 0.05), rest_of_run(HOST, 0.05))]
    assert widths == pytest.approx([1.04, 1.19], abs=0.01)
