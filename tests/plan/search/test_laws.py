"""Whatever the solver proposes can be: hardware, memory and rules allow it."""

from itertools import islice

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.hardware.catalogue import gpu
from advisor.hardware.mig_layouts import place
from advisor.plan.candidates import Forecaster
from advisor.plan.recommendation import Forecast, Question
from advisor.plan.rules import Conditions, first_broken, rules
from advisor.plan.search.proposals import Solver, proposed
from advisor.sharing import Hybrid, Mig
from advisor.sharing.traversal import check_count, instance_sets, memories
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.search.cases import OBJECTIVES
from tests.plan.search.toy import Toy

NAMES = ("resnet26-cifar10-bs128", "resnet50-imagenet64-bs128", "bert-base-finetune-bs16")

kinds = st.builds(
    lambda name, gpu_s, mib, epochs, user, isolated, parallel: Job(
        synthetic.profile(name, gpu_s=gpu_s, memory_mib=mib), epochs=epochs, user=user,
        isolated=isolated, data_parallel=parallel, deadline_s=600.0,
    ),
    st.sampled_from(NAMES), st.floats(0.001, 0.05), st.sampled_from([500, 3000, 9000, 20000]),
    st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from([None, "ada", "ben"]),
    st.sampled_from([False, False, True]), st.sampled_from([False, False, True]),
)  # fmt: skip
job_sets = st.lists(kinds, min_size=1, max_size=3).flatmap(
    lambda made: st.lists(st.sampled_from(made), min_size=2, max_size=6)
)


def proposals(jobs, question):
    solver = Solver(jobs, question)
    yield from solver.whole()
    yield from islice(solver.on_instances(), 5)
    yield from solver.in_phases(5)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(job_sets, st.sampled_from(["a30-24gb", "a100-40gb", "l40s-48gb"]),
       st.sampled_from(OBJECTIVES), st.booleans())  # fmt: skip
def test_what_is_proposed_breaks_no_rule_and_fits_the_hardware(jobs, key, objective, root):
    model = gpu(key)
    conditions = Conditions(root=root, memory_margin=0.1)
    question = Question(gpu=model, predictor=Toy(model), objective=objective, conditions=conditions)
    forecaster = Forecaster(jobs, question)
    for each in proposals(jobs, question):
        sharing = each.candidate.sharing
        check_count(sharing, len(jobs))
        assert first_broken(rules(model, conditions), jobs, sharing) is None
        for hybrid in instance_sets(sharing):
            assert place(model, hybrid.instances) == hybrid.instances
        for memory in memories(sharing, len(jobs)):
            mates = [jobs[number - 1] for part in memory for number in part.jobs]
            assert sum(job.profile.memory.device_mib for job in mates) <= model.memory_mib
        assert isinstance(forecaster.forecast(each.candidate), Forecast)


def asked(model="a100-40gb", objective="makespan", **conditions):
    known = gpu(model)
    return Question(
        gpu=known, predictor=Toy(known), objective=objective, conditions=Conditions(**conditions)
    )


def test_plans_on_instances_come_cheapest_first_and_each_once():
    jobs = [Job(synthetic.profile(name, gpu_s=0.01, memory_mib=2000)) for name in NAMES]
    found = list(islice(Solver(jobs, asked()).on_instances(), 200))
    costs = [each.cost for each in found]
    assert costs == sorted(costs)
    assert len({str(each.candidate.sharing) for each in found}) == len(found)


def test_without_root_nothing_lies_on_instances():
    jobs = [Job(synthetic.profile(name)) for name in NAMES]
    for each in proposed(jobs, asked(root=False)).candidates:
        assert not isinstance(each.sharing, Mig | Hybrid)
        assert not instance_sets(each.sharing)
