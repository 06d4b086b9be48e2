"""How far a run and its jobs are, in words."""

import pytest

from advisor.measure.execution.run_status import status_lines
from advisor.measure.execution.run_view import JobView, job_line
from advisor.workload.plan_document import StepRange


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
        ({"step_s": None, "left_s": None, "predicted": StepRange(0.01, 0.02, 0.03)},
         "running, 30 of 100 steps (30%), not known yet (predicted 20.0 ms, 10.0 to 30.0)"),
        ({"done": 130, "left_s": None, "step_s": None}, "running, 130 steps, 100 planned"),
        ({"steps": None, "left_s": None, "step_s": None}, "running, 30 steps"),
        ({"done": None, "left_s": None, "step_s": None}, "running, no step seen"),
    ],
)  # fmt: skip
def test_a_line_says_how_far_a_job_is(changed, said):
    assert line(**changed) == f"  1 train: {said}"


@pytest.mark.parametrize(
    ("over", "watched", "phases", "said"),
    [
        (True, False, ["ended"], "over"),
        (False, True, ["ended"], "watched"),
        (False, False, ["ended", "running"], "goes on unwatched: `advisor run --resume r1` watches "
                                             "it, `advisor stop r1` ends it"),
        (False, False, ["ended"], "all its jobs have ended; `advisor restore` clears up after it"),
    ],
)  # fmt: skip
def test_a_run_is_said_to_go_on_while_a_job_of_it_lives(over, watched, phases, said):
    jobs = [
        {"number": number, "job": "a", "phase": phase, "fate": None, "detail": None, "steps": 3}
        for number, phase in enumerate(phases, start=1)
    ]
    status = {"id": "r1", "gpu": "g", "since": "now", "over": over, "watched": watched}
    first, *rest = status_lines(status | {"jobs": jobs})
    assert first == f"r1 on g since now: {said}"
    assert len(rest) == len(phases)
