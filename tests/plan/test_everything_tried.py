"""What is ranked for 2 and 3 jobs, beside everything there is to try, predicted one by one.

What is tried: naive, MPS, MPS with one limit of `EQUAL_GRID` for all, those aside that would leave
SMs to nobody if all jobs ran; phases of these and of jobs alone; and MIG instances where two
partitions or more are used, each shared naively or under MPS. All jobs on one instance are the GPU
with fewer SMs, and no plan; nor are phases on instances looked at here.
"""

from dataclasses import replace
from itertools import product

import pytest

from advisor.hardware.catalogue import gpu
from advisor.plan.forecast import CachingPredictor, Mixes, forecast
from advisor.plan.objectives import cost
from advisor.plan.ranking import ranked
from advisor.plan.rules import UNCONDITIONAL, FitsMemory, first_broken, rules
from advisor.plan.search.limit_tuning import worth_trying
from advisor.prediction.cache import once_a_mix
from advisor.prediction.fit.surrogate_fit import with_surrogate
from advisor.prediction.model_file import load_model
from advisor.prediction.physics import replay_mix
from advisor.prediction.predictor import Predictor
from advisor.prediction.surrogate_features import LIMIT_GRID
from advisor.sharing import Group, Mps, Phases, Serial
from advisor.workload.files import MODEL_FILE
from advisor.workload.job import Job
from tests import shelf, synthetic
from tests.plan.search.brute_force import orders
from tests.plan.search.cases import OBJECTIVES
from tests.plan.search.every_plan import each_kind_once, mig_plans, whole_plans

A30 = gpu("a30-24gb")
PROFILES = [
    replace(each, idle_power_w=75.0)
    for each in (
        synthetic.profile(host_s=0.010, gpu_s=0.030, memory_mib=4_000),
        synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002, memory_mib=2_500),
        synthetic.profile(
            "bert-base-finetune-bs16", host_s=0.012, gpu_s=0.009, blocks=90, memory_mib=3_000
        ),
    )
]
LONG, SHORT, MIDDLE = (
    Job(profile, epochs=epochs, deadline_s=deadline_s)
    for profile, epochs, deadline_s in zip(PROFILES, (1, 40, 2), (None, 900.0, 600.0), strict=True)
)
SETS = {
    "two": [LONG, MIDDLE],
    "two-unlike": [SHORT, LONG],
    "copies": [MIDDLE, MIDDLE],
    "three": [LONG, SHORT, MIDDLE],
    "three-with-copies": [LONG, MIDDLE, LONG],
}


@pytest.fixture(scope="module")
def predictor(tmp_path_factory):
    """Of an A30, by a model of an H200 that stands in; whatever it says is to be found."""
    folder = tmp_path_factory.mktemp("shelf")
    shelf.fill(folder)
    model = load_model(folder / "models" / MODEL_FILE)
    model = with_surrogate(model, {gpu(shelf.GPU): PROFILES}, lessons=250)
    return CachingPredictor(Predictor(A30, model, play=once_a_mix(replay_mix)))


def whole(own, jobs):
    """Ways for the jobs `own` of `jobs` to share the whole GPU."""
    for plan in whole_plans(own, A30):
        sharing = plan.group.sharing
        limits = sharing.limits if isinstance(sharing, Mps) else ()
        if not limits or worth_trying(limits[0], len(jobs)):
            yield sharing


def at_once(jobs):
    yield from whole(jobs, jobs)
    for plan in each_kind_once(mig_plans(jobs, A30), jobs):
        if len(plan.partitions) > 1:
            yield plan.group


def in_phases(jobs):
    for order in orders(jobs):
        own = [[jobs[at] for at in group] for group in order]
        ways = [
            [Serial()] if len(group) == 1 else list(whole(some, jobs))
            for group, some in zip(order, own, strict=True)
        ]
        for how in product(*ways):
            yield Phases(
                tuple(
                    Group(tuple(at + 1 for at in group), sharing)
                    for group, sharing in zip(order, how, strict=True)
                )
            )


def forecasts(jobs, predictor, sharings):
    """Of what machine, memory and rules allow."""
    mixes, fits = Mixes(jobs, predictor), FitsMemory(A30)
    for sharing in sharings:
        if first_broken(rules(A30, UNCONDITIONAL), jobs, sharing):
            continue
        if fits.broken(mixes.whole(sharing)) is None:
            yield forecast(mixes, sharing)


@pytest.fixture(scope="module", params=SETS)
def everything(request, predictor):
    jobs = SETS[request.param]
    return jobs, list(forecasts(jobs, predictor, [Serial(), *at_once(jobs), *in_phases(jobs)]))


@pytest.mark.parametrize("level", ["p50", "p95"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_nothing_there_is_to_try_is_better_than_the_best_one_shown(
    everything, predictor, objective, level
):
    jobs, tried = everything
    advised = ranked(jobs, A30, predictor, objective, level=level)
    assert advised.ranked_by == objective
    shown = min(getattr(cost(plan, objective), level) for plan in advised.plans)
    least = min(getattr(cost(each, objective), level) for each in tried)
    assert shown <= 1.005 * least


@pytest.mark.parametrize("level", ["p50", "p95"])
@pytest.mark.parametrize("objective", ["makespan", "throughput", "mean-completion"])
def test_hardly_any_limits_for_two_jobs_are_better_than_those_shown(predictor, objective, level):
    jobs = SETS["two"]
    vectors = [Mps(tuple(map(float, each))) for each in product(LIMIT_GRID, repeat=2)]
    tried = list(forecasts(jobs, predictor, vectors))
    advised = ranked(jobs, A30, predictor, objective, level=level)
    shown = min(getattr(cost(plan, objective), level) for plan in advised.plans)
    assert shown <= 1.03 * min(getattr(cost(each, objective), level) for each in tried)
