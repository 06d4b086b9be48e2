"""What every objective must answer, whichever it is."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from advisor.plan import ObjectiveName
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.objectives import OBJECTIVES, cost, rankable_by
from advisor.plan.objectives.objective import Awake, Objective
from advisor.plan.recommendation import Question
from advisor.plan.search.candidate_space import Space
from advisor.plan.search.fleet.placement import FleetGroup, Problem, dealt
from advisor.plan.search.partitions import WHOLE, options
from advisor.sharing import Serial, parse_sharing
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.search.cases import A30, case
from tests.plan.search.toy import Toy
from tests.plan.stand_in import StandIn

NAMES = get_args(ObjectiveName)
JOBS = [
    Job(synthetic.profile("resnet26-cifar10-bs500", host_s=0.01, gpu_s=0.01), deadline_s=2.0),
    Job(synthetic.profile("resnet50-cifar10-bs500", host_s=0.02, gpu_s=0.02), epochs=2),
]
EVERY = pytest.mark.parametrize("name", NAMES)


def seen(sharing, jobs=JOBS):
    return forecast(Mixes(jobs, StandIn()), parse_sharing(sharing))


def test_each_name_has_one_objective_and_each_objective_its_name():
    assert set(OBJECTIVES) == set(NAMES)
    assert all(each.name == name for name, each in OBJECTIVES.items())


@EVERY
def test_an_objective_says_what_it_is_in_words_of_its_own(name):
    own = OBJECTIVES[name]
    others = [each for each in OBJECTIVES.values() if each is not own]
    assert own.choice not in [each.choice for each in others]
    assert own.measure not in [each.measure for each in others]


@EVERY
def test_something_can_be_computed_where_the_objective_cannot(name):
    plain = JOBS[0].profile
    lasting = [Job(replace(plain, workload=replace(plain.workload, examples_per_epoch=None)))]
    ranked_by, note = rankable_by([seen("serial", lasting)], name)
    assert cost(seen("serial", lasting), ranked_by) is not None
    assert (note is None) == (ranked_by == name)
    assert OBJECTIVES[name].instead[-1][0] == "throughput"


@EVERY
def test_the_headline_names_the_gain(name):
    ranked_by, _ = rankable_by([seen("mps")], name)
    paid = cost(seen("mps"), ranked_by)
    assert "1.7x" in OBJECTIVES[ranked_by].headline(paid, "9 of it", "1.7x")


@EVERY
def test_a_price_grows_with_the_largest_and_with_the_sum(name):
    awake = Awake(100.0, 3)
    total = np.array([-3.0, -2.0, -1.0])  # a throughput sums speeds below 0
    for most, sums in ((np.array([1.0, 2.0, 3.0]), total[:1]), (np.ones(1), total)):
        first, second = OBJECTIVES[name].price(most, sums, awake)
        assert (np.diff(np.broadcast_to(first, 3)) >= 0).all()
        assert (np.diff(np.broadcast_to(second, 3)) >= 0).all()


@EVERY
def test_slower_limits_never_cost_less(name):
    slowdowns = np.array([[1.0, 2.0], [1.5, 2.5]])
    costs = OBJECTIVES[name].of_limits(slowdowns, lambda: 10 * slowdowns, np.array([30.0, np.inf]))
    assert costs[0] < costs[1]


@EVERY
@pytest.mark.parametrize("sharing", ["naive", "mps"])
def test_what_the_search_adds_up_is_what_a_forecast_says(name, sharing):
    jobs = case("of each objective", 2, name).jobs
    exact = cost(forecast(Mixes(jobs, Toy(A30)), parse_sharing(sharing)), name)
    space = Space(jobs, Question(gpu=A30, predictor=Toy(A30), objective=name))
    (option,) = [each for each in options(WHOLE)[:2] if str(each.sharing) == sharing]
    scores, everyone = space.scores(option), int(np.argmax(space.sets.sizes))
    found, _ = space.price(2)(scores.most[everyone], scores.total[everyone])
    assert found == pytest.approx(exact.p50, rel=1e-6)


@EVERY
def test_a_group_alone_costs_in_phases_what_it_costs_at_once(name):
    scores = OBJECTIVES[name].of_group(3.0, -2.0, Awake(100.0, 2))
    found = OBJECTIVES[name].of_phases(*scores, 2)
    assert np.isfinite(found)


FLEETS = [name for name in NAMES if isinstance(OBJECTIVES[name], Objective)]


@pytest.mark.parametrize("name", FLEETS)
def test_no_plan_of_several_gpus_costs_less_than_the_least(name):
    alone = [
        FleetGroup(
            members=(kind,), sharing=Serial(), ends_s=(end_s,), energy_j=end_s, predicted=True
        )
        for kind, end_s in enumerate((1.0, 2.0, 4.0))
    ]
    problem = Problem(
        objective=OBJECTIVES[name], gpus=2, counts=(1, 1, 1), alone_s=(1.0, 2.0, 4.0),
        least_s=(1.0, 2.0, 4.0), deadlines_s=(None, None, 3.0), idle_power_w=10.0,
    )  # fmt: skip
    least = problem.objective.least_cost(problem, 16)
    assert (least or 0.0) <= problem.cost(dealt(alone, 2))
    assert problem.rank(dealt(alone, 3)) <= problem.rank(dealt(alone, 1))
