"""What a user's first runs teach of jobs that fill the GPU, on made-up runs."""

from dataclasses import replace

import pytest

from advisor.hardware.catalogue import gpu
from advisor.prediction.fit.replay_cache import ReplayCache
from advisor.prediction.interval import Interval
from advisor.prediction.model_file import load_model
from advisor.validate.folds import Folds
from advisor.validate.predicted_and_measured import JobComparison
from advisor.workload.store import model_path
from research import own_step_score
from research.own_step_score import SeenStep, own_step_table, rows, steps_of
from tests import synthetic

LARGE = synthetic.profile("bert-base-finetune-bs16", host_s=0.004, gpu_s=0.020)
HOST_BOUND = synthetic.profile("resnet26-cifar10-bs128", host_s=0.010, gpu_s=0.002)


def job(predicted_s):
    """A job of 1 s, predicted 0.15 s to either side of `predicted_s`."""
    return JobComparison(
        job="a", family="a", busy_share=1.0, alone_s=0.5, measured_s=1.0,
        predicted_s=Interval(predicted_s - 0.15, predicted_s, predicted_s + 0.15),
        memory_mib=None, measured_memory_mib=None, baselines_s={},
    )  # fmt: skip


@pytest.fixture
def shipped(monkeypatch):
    """The shipped model, whatever it would be fitted to, and two runs as a user's own."""
    model = load_model(model_path(None))
    monkeypatch.setattr(own_step_score, "fit", lambda *_: model)
    monkeypatch.setattr(Folds, "model_without", lambda *_: model)
    monkeypatch.setattr(own_step_score, "_OWN", (2,))


def folds(*runs):
    profiles = {each.name: each for each in (LARGE, HOST_BOUND)}
    return Folds(profiles, runs, runs, (), gpu("h200-141gb"), ReplayCache())


def run(day, sharing="mps", slowdown=2.5):
    made = synthetic.run([LARGE, HOST_BOUND], sharing, slowdown, f"r{day}")
    dated = replace(made.provenance, date=f"2026-11-2{day}T00:00:00+00:00")
    return replace(made, provenance=dated)


@pytest.mark.usefixtures("shipped")
def test_jobs_that_fill_the_gpu_are_predicted_with_the_first_runs_in_whichever_order_they_lie():
    (step,) = steps_of(folds(run(3), run(1), run(2)))
    assert (step.mode, step.own) == ("mps", 2)
    assert step.unseen == step.fitted
    assert abs(step.taught.error) < abs(step.fitted.error)


@pytest.mark.usefixtures("shipped")
def test_later_runs_in_ways_of_which_nothing_was_learnt_are_passed_over():
    assert list(steps_of(folds(run(1), run(2), run(3, "naive")))) == []


def test_each_way_to_share_and_number_of_own_runs_is_a_line():
    steps = [
        SeenStep("mps", 8, job(0.7), job(0.8), job(0.9)),
        SeenStep("mps", 40, job(0.7), job(0.8), job(1.2)),
    ]
    few, many = rows(iter(steps))
    assert (few["mode"], few["own"], many["own"], few["n"]) == ("mps", 8, 40, 1)
    assert few["mape"] == pytest.approx({"unseen": 0.3, "fitted": 0.2, "taught": 0.1})
    assert few["inside"] == {"unseen": 0, "fitted": 0, "taught": 1}


def test_the_document_has_the_table():
    assert "| MPS limits | 40 |" in own_step_table()
