"""Random questions to the solver, and what it answers beside the program that tries every plan."""

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from advisor.hardware.catalogue import gpu
from advisor.plan.objectives import cost
from advisor.plan.recommendation import Question
from advisor.plan.rules import Conditions
from advisor.plan.search.proposals import OneGpuSolver
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.search import brute_force
from tests.plan.search.toy import Toy

A30, L40S = gpu("a30-24gb"), gpu("l40s-48gb")
# Seven instances, and parts of each, make more plans than can be tried. Parts are tried on the A30.
_LARGE = replace(gpu("a100-40gb"), sources={})
A100 = replace(_LARGE, mig=tuple(each for each in _LARGE.mig if each.name != "1g.5gb"))
OBJECTIVES = ("makespan", "throughput", "mean-completion", "energy", "deadlines")
NAMES = (
    "resnet26-cifar10-bs128", "resnet50-imagenet64-bs128", "bert-base-finetune-bs16",
    "resnet152-imagenet-bs32", "mobilenetv3_large_100-imagenet64-bs32", "gpt2-small-finetune-bs2",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A question."""

    jobs: Any
    gpu: Any
    objective: str
    level: str = "p50"
    root: bool = True

    def lasting(self):
        """The same of jobs so long that what it takes to set instances up is nothing."""
        return replace(self, jobs=[replace(job, epochs=200 * job.epochs) for job in self.jobs])

    def found(self):
        """What the solver finds; None: no plan."""
        question = Question(
            gpu=self.gpu, predictor=Toy(self.gpu), objective=self.objective, level=self.level,
            conditions=Conditions(root=self.root),
        )  # fmt: skip
        solved = OneGpuSolver(self.jobs, question).best(range(len(self.jobs)))
        return None if solved is None else cost(solved, question.objective).at(self.level)

    def least(self, *, phases_on_mig=False):
        """The least cost of any plan, and of any without phases."""
        return brute_force.best(
            self.jobs, self.gpu, self.objective, self.level,
            root=self.root, phases_on_mig=phases_on_mig,
        )  # fmt: skip


def drawn(random, count, kinds, *, ruled=False):
    """So many jobs of some kinds, each kind with its own length and memory.

    Args:
        random: Draws them.
        count: How many.
        kinds: Of how many at most.
        ruled: Whether users, isolation and data-parallel jobs are drawn too.
    """
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
    if ruled:
        made = [
            replace(
                job,
                user=random.choice([None, None, "ada"]),
                isolated=random.random() < 0.2,
                data_parallel=random.random() < 0.15,
            )
            for job in made
        ]
    made[0] = replace(made[0], deadline_s=300.0)
    return sorted((random.choice(made) if n else made[0] for n in range(count)), key=id)


def case(seed, count, objective):
    """A random question about so many jobs."""
    random = Random(f"{seed} {count} {objective}")
    model = random.choice([A30, A30, A100, L40S])
    jobs = drawn(random, count, random.randint(1, count), ruled=random.random() < 0.5)
    root = random.random() < 0.9
    return Case(jobs, model, objective, random.choice(["p50", "p95"]), root)
