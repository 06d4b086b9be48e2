"""Two plans compared from names and files."""

from collections.abc import Sequence
from pathlib import Path

from advisor.api.advice import DEFAULT_GPU, predict
from advisor.errors import InvalidInput
from advisor.hardware.catalogue import gpu as known_gpu
from advisor.launch.plan_file import Planned, read_plan
from advisor.plan.comparison import Comparison, compare
from advisor.plan.recommendation import Forecast, Objective
from advisor.workload.job import Job
from advisor.workload.staleness import Present


def explain(  # noqa: PLR0913 - each says one thing, all but three by its name
    plans: tuple[str | Planned, str | Planned],
    jobs: Sequence[Job],
    gpu: str = DEFAULT_GPU,
    *,
    objective: Objective = "makespan",
    models: Path | None = None,
    power_cap_w: float | None = None,
    calibration: Path | None = None,
    present: Present | None = None,
) -> Comparison:
    """What changes for `jobs` on `gpu` from the first of `plans` to the second, and why.

    Args:
        plans: Ways of sharing as `predict` takes them, or plans read from files.
        jobs: Theirs; of a plan from a file, its own.
        gpu: Catalogue key.
        objective: What they are compared by.
        models: As of `advisor.api.advice.recommend`, like those that follow.
        power_cap_w: For plans that have none of their own.
        calibration: As there.
        present: As there.

    Raises:
        InvalidInput: A way of sharing is none, or one for other jobs.
        NothingFits: The GPU cannot be cut up like that.
    """

    def forecast(plan: str | Planned) -> Forecast:
        own = plan if isinstance(plan, Planned) else None
        return predict(
            jobs,
            plan.sharing if isinstance(plan, Planned) else plan,
            gpu,
            models=models,
            power_cap_w=(own and own.power_cap_w) or power_cap_w,
            calibration=calibration,
            present=present,
        )

    first, second = plans
    return compare(jobs, known_gpu(gpu), (forecast(first), forecast(second)), objective)


def plan_named(word: str, profiles: Path | None = None) -> str | Planned:
    """The plan file that `word` names, where it ends in .json; else the way of sharing it is.

    Raises:
        InvalidInput: The file holds no plan.
    """
    return read_plan(Path(word), profiles) if word.endswith(".json") else word


def check_gpu_of_plan(asked: str | None, planned: str, file: str) -> None:
    """See that a plan in a file is for the GPU asked for, where one is.

    Raises:
        InvalidInput: It is for another.
    """
    if asked is not None and asked != planned:
        raise InvalidInput(f"--gpu {asked}: {file} is a plan for {planned}. Leave --gpu out.")


def of_the_same_jobs(plans: Sequence[Planned]) -> Planned:
    """The first of `plans`, which have one set of jobs on one kind of GPU.

    Raises:
        InvalidInput: They have not.
    """
    first, *others = plans
    for other in others:
        if (other.gpu, other.jobs) != (first.gpu, first.jobs):
            raise InvalidInput(
                "the two plan files are of different jobs or GPUs. Export both plans for the same "
                "jobs, in the same order: `advisor export --format json`."
            )
    return first
