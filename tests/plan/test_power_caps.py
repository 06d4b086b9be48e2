from dataclasses import replace

import pytest

from advisor import Advisor, recommend
from advisor.errors import InvalidInput
from advisor.hardware.catalogue import gpu
from advisor.launch.commands import with_commands
from advisor.plan.candidates import Candidate, Forecaster, as_asked
from advisor.plan.cap_choice import CAP_SHARES, cap_choices, under_caps
from advisor.plan.objectives import cost
from advisor.plan.ranking import ranked
from advisor.plan.recommendation import Question
from advisor.plan.rules import Conditions
from advisor.prediction.predictor import Predictor
from advisor.report.documents import recommendation_document
from advisor.report.headline import gain
from advisor.sharing import Naive, Serial
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import H200
from tests.plan.test_energy import Metered

LONG = Job(synthetic.profile("resnet50-cifar10-bs500", host_s=0.02, gpu_s=0.02))
OTHER = Job(synthetic.profile("resnet26-cifar10-bs500", host_s=0.01, gpu_s=0.008))
ALLOWED = Conditions(power_caps=True)


class Hot(Metered):
    """Whatever runs draws so many watts."""

    def __init__(self, power_w=650.0):
        super().__init__()
        self.power_w = power_w

    def predict(self, profiles, sharing):
        mix = super().predict(profiles, sharing)
        return replace(mix, power_w=mix.power_w.scaled(self.power_w / mix.power_w.p50))


def question(objective="energy", conditions=ALLOWED, model=H200):
    return Question(gpu=model, predictor=Hot(), objective=objective, conditions=conditions)


def priced(candidate, jobs, asked):
    return cost(Forecaster(jobs, asked).forecast(candidate), asked.objective).p50


def test_the_cap_of_a_plan_is_the_cheapest_of_those_that_may_be_chosen():
    jobs, asked = [LONG, OTHER], question()
    ((best,), _) = under_caps([as_asked(2, Naive())], jobs, asked)
    every = [
        priced(replace(as_asked(2, Naive()), power_cap_w=cap_w), jobs, asked)
        for cap_w in (None, *cap_choices(H200))
    ]
    assert cost(best, "energy").p50 == pytest.approx(min(every))
    assert best.prediction.power_cap_w in cap_choices(H200)
    assert best.energy_j.p50 < every[0]


def test_a_plan_that_draws_little_has_no_cap():
    jobs = [LONG, OTHER]
    asked = replace(question(), predictor=Metered())
    assert under_caps([as_asked(2, Naive())], jobs, asked) == ([], [])


def test_no_cap_makes_a_job_late_that_is_in_time_without_it():
    jobs = [LONG, OTHER]
    ((capped,), _) = under_caps([as_asked(2, Naive())], jobs, question())
    free = Forecaster(jobs, question()).forecast(as_asked(2, Naive()))
    between_s = (free.makespan_s + capped.makespan_s) / 2
    due = [replace(LONG, deadline_s=between_s), OTHER]
    found, _ = under_caps([as_asked(2, Naive())], due, question())
    assert all(each.ends_s[0].p50 <= between_s < capped.ends_s[0].p50 for each in found)
    hopeless = [replace(LONG, deadline_s=free.makespan_s / 2), OTHER]
    assert len(under_caps([as_asked(2, Naive())], hopeless, question())[0]) == 1


def test_capped_plans_stand_beside_uncapped_ones_and_say_what_they_are():
    advised = with_commands(ranked([LONG, OTHER], H200, Hot(), "energy", ALLOWED))
    capped = [plan for plan in advised.plans if plan.prediction.power_cap_w is not None]
    assert 0 < len(capped) < len(advised.plans)
    assert advised.serial.prediction.power_cap_w is None
    for plan in capped:
        watts = f"{plan.prediction.power_cap_w:g}"
        assert f"power cap of {watts} W, not measured" in plan.why
        assert f'  sudo nvidia-smi -i "$GPU" --power-limit={watts} || exit' in plan.commands
        assert not plan.prediction.confirmed_on_hardware
        assert plan.speedup_vs_serial == pytest.approx(advised.serial.makespan_s / plan.makespan_s)
    document = recommendation_document(advised)
    assert {None, *(plan.prediction.power_cap_w for plan in capped)} == {
        plan["power_cap_w"] for plan in document["plans"]
    }


def test_serial_under_a_cap_gains_over_serial_without_one():
    advised = ranked([LONG], H200, Hot(690.0), "energy", ALLOWED)
    (capped,) = (plan for plan in advised.plans if plan.prediction.power_cap_w is not None)
    assert isinstance(capped.sharing, Serial)
    assert gain(advised, capped).p50 > 1
    assert gain(advised, advised.serial).p50 == 1


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (question("makespan"), "makes no job faster"),
        (question(conditions=replace(ALLOWED, root=False)), "root"),
        (question(model=replace(H200, power_limit_w=None)), "not known"),
    ],
)
def test_where_no_cap_is_looked_at_the_reason_is_said(asked, why):
    found, ((problem),) = under_caps([as_asked(2, Naive())], [LONG, OTHER], asked)
    assert found == []
    assert why in problem.why


def test_caps_below_the_least_that_a_gpu_takes_are_not_chosen():
    assert cap_choices(replace(H200, power_limit_min_w=500.0)) == (630.0, 560.0)
    assert len(cap_choices(gpu("a100-40gb"))) == len(CAP_SHARES)


def test_without_leave_no_plan_has_a_cap():
    advised = ranked([LONG, OTHER], H200, Hot(), "energy")
    assert {plan.prediction.power_cap_w for plan in advised.plans} == {None}


def test_a_plan_that_does_not_fit_has_no_cap_either():
    big = Job(synthetic.profile("resnet152-imagenet-bs512", memory_mib=100_000.0))
    candidates = [Candidate(jobs=(1, 2), sharing=Naive())]
    assert under_caps(candidates, [big, big], question()) == ([], [])


def test_a_cap_is_given_or_chosen_and_not_both():
    with pytest.raises(InvalidInput, match="leave one"):
        recommend(["cnn-cifar10-bs128"], power_cap_w=400.0, conditions=ALLOWED)


def test_another_cap_changes_what_was_predicted_without_one_and_predicts_nothing_anew(monkeypatch):
    jobs, asked = ["cnn-cifar10-bs128", "resnet26-cifar10-bs128"], []
    free = Advisor()
    without = free.predict(jobs, "mps")
    apart = replace(free, power_cap_w=400.0).predict(jobs, "mps")
    predict = Predictor.predict

    def noted(own, profiles, sharing):
        asked.append((len(profiles), sharing.mode))
        return predict(own, profiles, sharing)

    monkeypatch.setattr(Predictor, "predict", noted)
    capped = free.under(400.0).predict(jobs, "mps")
    assert capped == apart != without
    assert set(asked) <= {(1, "serial")}  # each in its turn: by its own power
