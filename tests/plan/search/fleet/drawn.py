"""Small fleets to plan for, by a predictor and a clock that can be counted on."""

from dataclasses import replace

from hypothesis import strategies as st

from advisor.plan.fleet_plan import plan_fleet
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn

NO_MIG = replace(H200, mig=(), memory_slices=0)
AIMS = ("makespan", "mean-completion", "throughput", "energy", "deadlines")
PROFILES = [
    synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002),
    synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.2),
    synthetic.profile("bert-base-finetune-bs16", host_s=0.02, gpu_s=0.015, memory_mib=40_000),
    synthetic.profile("gpt2-small-finetune-bs2", host_s=0.03, gpu_s=0.01, memory_mib=60_000),
    synthetic.profile("dlrm-29gb-bs128", host_s=0.01, gpu_s=0.004, memory_mib=100_000),
]


def drawn_jobs(most=9):
    """Which profile, seconds alone and deadline of each job: `made` makes them."""
    one = st.tuples(
        st.integers(0, len(PROFILES) - 1), st.sampled_from([600, 1200, 3600]),
        st.sampled_from([None, 1200.0, 3000.0, 9000.0]),
    )  # fmt: skip
    return st.lists(one, min_size=1, max_size=most)


def made(drawn):
    found = []
    for at, length_s, due_s in drawn:
        epoch_s = PROFILES[at].workload.steps_per_epoch * PROFILES[at].step_s
        found.append(Job(PROFILES[at], epochs=length_s / epoch_s, deadline_s=due_s))
    return found


class Counting:
    """A clock that stands still while nothing is predicted: a second a prediction."""

    def __init__(self, predictor):
        self._predictor = predictor

    def __call__(self):
        return float(self._predictor.asked)


def planned(jobs, terms, predictor=None):
    predictor = predictor or StandIn()
    return plan_fleet(jobs, NO_MIG, predictor, terms, Counting(predictor))
