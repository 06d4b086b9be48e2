"""Points of the plan space: what each of several equal GPUs runs, and how.

A sharing says how one GPU is shared. Beside it a plan may choose the batch size of a job that
allows a choice, a power cap, and which of several equal GPUs runs which jobs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, groupby, product

from advisor.english import counted, is_or_are
from advisor.errors import InvalidInput
from advisor.hardware.catalogue import Gpu
from advisor.plan.rules import Rule, first_broken
from advisor.prediction.power_cap import check_cap
from advisor.sharing import Sharing
from advisor.sharing.modes import check_once
from advisor.sharing.traversal import check_count
from advisor.workload.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One GPU: its jobs, and how they share it.

    Attributes:
        jobs: Numbers of its jobs among all that were asked for, from 1, increasing.
        sharing: Its numbers and limits count in `jobs`: 1 is the first of them.
        batches: Examples a step of each of `jobs`; empty: each as it was asked for.
        power_cap_w: What the GPU may draw at most; None: its own limit.

    Raises:
        InvalidInput: These jobs cannot share so, or the batches are for more or fewer.
    """

    jobs: tuple[int, ...]
    sharing: Sharing
    batches: tuple[int, ...] = ()
    power_cap_w: float | None = None

    def __post_init__(self) -> None:
        if not self.jobs or self.jobs[0] < 1 or list(self.jobs) != sorted(set(self.jobs)):
            raise InvalidInput(f"a GPU's jobs are numbers from 1, increasing, got {self.jobs}")
        check_count(self.sharing, len(self.jobs))
        if self.batches and len(self.batches) != len(self.jobs):
            raise InvalidInput(
                f"{counted(len(self.batches), 'batch size')} for {counted(len(self.jobs), 'job')}"
            )

    def chosen(self, asked: Sequence[Job]) -> tuple[Job, ...]:
        """The jobs of this GPU, each at the batch size that is chosen.

        Args:
            asked: All jobs, in the order in which they were asked for.

        Raises:
            InvalidInput: There is no such job, or it does not allow that batch size.
        """
        if self.jobs[-1] > len(asked):
            raise InvalidInput(f"there is no job {self.jobs[-1]}; there are {len(asked)}")
        own = [asked[number - 1] for number in self.jobs]
        batches = self.batches or tuple(job.batch for job in own)
        return tuple(map(_at_batch, own, batches))


@dataclass(frozen=True, slots=True)
class Deployment:
    """Several equal GPUs; each job is on one of them, and a GPU that is missing here is idle.

    Raises:
        InvalidInput: There is no GPU, or a job is on two.
    """

    gpus: tuple[Setup, ...]

    def __post_init__(self) -> None:
        if not self.gpus:
            raise InvalidInput("a deployment has at least one GPU")
        check_once(tuple(job for setup in self.gpus for job in setup.jobs))


def forbidden(
    deployment: Deployment, asked: Sequence[Job], gpu: Gpu, most_gpus: int, rules: Sequence[Rule]
) -> str | None:
    """Why `deployment` of the jobs `asked` is none; None where it is one.

    Raises:
        InvalidInput: It names jobs, batch sizes or power caps that do not exist.
    """
    if len(deployment.gpus) > most_gpus:
        return (
            f"it takes {counted(len(deployment.gpus), 'GPU')}, and there {is_or_are(most_gpus)} "
            f"{most_gpus}"
        )
    placed = {job for setup in deployment.gpus for job in setup.jobs}
    if missing := set(range(1, len(asked) + 1)) - placed:
        return f"job {min(missing)} is on no GPU"
    for setup in deployment.gpus:
        if setup.power_cap_w is not None:
            check_cap(setup.power_cap_w, gpu)
        if reason := first_broken(rules, setup.chosen(asked), setup.sharing):
            return reason
    return None


def batch_choices(jobs: Sequence[Job]) -> Iterator[tuple[Job, ...]]:
    """`jobs` at every combination of their batch sizes, as they are first.

    Copies that swap their batch sizes make no new combination, where they stand side by side.
    """
    copies = [list(same) for _, same in groupby(jobs)]
    kinds = [combinations_with_replacement(each[0].variants, len(each)) for each in copies]
    for combination in product(*kinds):
        yield tuple(job for same in combination for job in same)


def _at_batch(job: Job, batch: int) -> Job:
    for variant in job.variants:
        if variant.batch == batch:
            return variant
    allowed = ", ".join(str(each.batch) for each in job.variants)
    raise InvalidInput(f"{job.name} has no profile at batch size {batch}. It may have {allowed}.")
