"""The solver against a program that tries every plan."""

from dataclasses import replace
from random import Random

import pytest

from advisor.gpu.catalogue import gpu
from advisor.planning.solver import table
from advisor.planning.solver.one_gpu import OneGpu
from advisor.planning.solver.space import Question
from advisor.workload.job import Job
from tests import synthetic
from tests.planning.solver import brute_force
from tests.planning.solver.toy import Toy

A30, L40S = gpu("a30-24gb"), gpu("l40s-48gb")
OBJECTIVES = (
    "makespan", "throughput", "mean-completion", "energy", "energy-epoch", "fairness", "deadlines",
)  # fmt: skip
NAMES = (
    "resnet26-cifar10-bs128", "resnet50-imagenet64-bs128", "bert-base-finetune-bs16",
    "resnet152-imagenet-bs32", "mobilenetv3_large_100-imagenet64-bs32", "gpt2-small-finetune-bs2",
)  # fmt: skip


def drawn(random, count, kinds):
    """So many jobs of some kinds, each kind with its own length and memory."""
    made = [
        Job(
            replace(
                synthetic.profile(
                    name,
                    host_s=random.choice([0.005, 0.01, 0.02]),
                    gpu_s=random.uniform(0.001, 0.03),
                    memory_mib=random.choice([1000, 3000, 6000, 11000]),
                ),
                idle_power_w=75.0,
            ),
            epochs=random.choice([0.5, 1, 2, 3]),
            deadline_s=random.choice([None, 100.0, 1000.0]),
        )
        for name in NAMES[:kinds]
    ]
    made[0] = replace(made[0], deadline_s=300.0)
    return sorted((random.choice(made) if n else made[0] for n in range(count)), key=id)


def solved(jobs, model, objective, level="p50"):
    question = Question(gpu=model, predictor=Toy(model), objective=objective, level=level)
    return OneGpu(jobs, question).best(range(len(jobs)))


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("level", ["p50", "p95"])
@pytest.mark.parametrize("seed", range(12))
def test_no_plan_without_mig_is_better_than_the_one_found(objective, level, seed):
    random = Random(f"{objective} {level} {seed}")
    jobs = drawn(random, random.randint(2, 4), random.randint(1, 4))
    found = solved(jobs, L40S, objective, level)
    least, _ = brute_force.best(jobs, L40S, objective, level)
    assert getattr(found.cost, level) == pytest.approx(least, rel=1e-6)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", range(12))
def test_no_plan_with_mig_is_better_than_the_one_found(objective, seed):
    random = Random(f"{objective} {seed}")
    jobs = drawn(random, random.randint(2, 3), random.randint(1, 3))
    found = solved(jobs, A30, objective)
    least, _ = brute_force.best(jobs, A30, objective)
    assert found.cost.p50 <= least * (1 + 1e-6)


@pytest.mark.parametrize(
    ("objective", "count"),
    [("makespan", 2), ("energy", 2), ("fairness", 2), ("mean-completion", 2), ("throughput", 3)],
)
def test_no_groups_on_instances_one_after_another_are_better(objective, count):
    random = Random(f"phases {objective}")
    # So long that which instances stay between two groups is nothing.
    jobs = [replace(job, epochs=200 * job.epochs) for job in drawn(random, count, 2)]
    found = solved(jobs, A30, objective)
    least, _ = brute_force.best(jobs, A30, objective, phases_on_mig=True)
    assert found.cost.p50 == pytest.approx(least, rel=1e-4)


@pytest.mark.parametrize("count", [5, 6])
@pytest.mark.parametrize("objective", ["makespan", "mean-completion", "fairness", "deadlines"])
def test_no_groups_of_more_jobs_are_better(monkeypatch, count, objective):
    for module in (table, brute_force):
        monkeypatch.setattr(module, "EQUAL_GRID", (57,) if count == 5 else ())
    jobs = drawn(Random(f"{count} {objective}"), count, 5)
    least, _ = brute_force.best(jobs, L40S, objective)
    assert solved(jobs, L40S, objective).cost.p50 == pytest.approx(least, rel=1e-6)


@pytest.mark.parametrize("objective", ["throughput", "energy-epoch"])
def test_no_rooms_of_more_jobs_are_better(objective):
    jobs = drawn(Random(objective), 4, 4)
    _, least = brute_force.best(jobs, A30, objective)
    assert solved(jobs, A30, objective).cost.p50 <= least * (1 + 1e-6)
