"""How far a job of a run is, in words."""

import pytest

from advisor.measure.execution.run_view import JobView, job_line


def line(**changed):
    known = {
        "number": 1, "name": "train", "phase": "running", "fate": None, "detail": None,
        "done": 30, "steps": 100, "step_s": 0.02, "predicted": None, "outside": False,
        "memory_mib": None, "left_s": 1.4, "silent_s": None, "log": "job-1-train.log",
    }  # fmt: skip
    return job_line(JobView(**known | changed))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "running, 30 of 100 steps (30%), 20.0 ms a step (not predicted with these others), "
             "about 0:01 left"),
        ({"done": 130, "left_s": None, "step_s": None}, "running, 130 steps, 100 planned"),
        ({"steps": None, "left_s": None, "step_s": None}, "running, 30 steps"),
        ({"done": None, "left_s": None, "step_s": None}, "running, no step seen"),
    ],
)  # fmt: skip
def test_a_line_says_how_far_a_job_is(changed, said):
    assert line(**changed) == f"  1 train: {said}"
