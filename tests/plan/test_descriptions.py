"""The same job described in several ways is advised much the same."""

from dataclasses import replace
from random import Random
from statistics import fmean

import pytest

from advisor.api import Advisor
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.objectives import known_cost, tied
from advisor.workload.job import Job
from advisor.workload.minimal_profile import MinimalProfile
from advisor.workload.store import profile_paths

GPU = "h200-141gb"
LOSES, RARELY = 0.08, 0.2
"""Most that plans from poorer descriptions lose on average by the full one: 4 and 5 % on 28 sets,
where always MPS loses 13 %. And the share that may lose over 5 % without a tie."""


def numbers(profile, **changes):
    counters = profile.counters
    return MinimalProfile(
        **{
            "schema": 1,
            "workload": profile.name,
            "gpu": GPU,
            "batch_size": profile.workload.batch,
            "step_s": profile.step_s,
            "memory_mib": profile.memory.device_mib,
            "power_w": profile.power_w,
            "gpu_utilization": counters.gract,
            "memory_utilization": counters.memory_utilization,
            "examples_per_epoch": None,
        }
        | changes
    ).whole()


POORER = {
    "counters": lambda profile: replace(profile, trace=None, mps=None),
    "numbers": numbers,
    "history": lambda profile: numbers(profile, gpu_utilization=round(profile.counters.gract, 2)),
    "duration": lambda profile: numbers(profile, step_s=None, duration_s=3000 * profile.step_s),
}


@pytest.mark.parametrize("sets", [2, pytest.param(14, marks=pytest.mark.exhaustive)])
def test_a_poor_description_of_jobs_has_much_the_same_advice(sets):
    advisor, draw, names = Advisor(GPU), Random(3), sorted(profile_paths(GPU, None))
    lost = {kind: list[float]() for kind in POORER}
    far = 0
    for _ in range(sets):
        drawn = draw.choices(names, k=draw.choice((2, 2, 3, 4)))
        jobs = [Job(advisor.find_profile(name)) for name in drawn]
        best = advisor.recommend(jobs, "throughput").best
        for kind, poorer in POORER.items():
            plan = advisor.recommend([Job(poorer(job.profile)) for job in jobs], "throughput").best
            followed = forecast(Mixes(jobs, advisor.predictor), plan.sharing)
            own, its = (known_cost(each, "throughput").p50 for each in (followed, best))
            lost[kind].append(own / its - 1)
            far += own / its > 1.05 and not tied(followed, best, "throughput")
    assert max(map(fmean, lost.values())) <= LOSES
    assert far <= RARELY * len(POORER) * sets
