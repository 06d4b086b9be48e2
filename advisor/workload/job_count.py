"""How many jobs a question may name, and what is said of more."""

from collections.abc import Sequence

from advisor.errors import InvalidInput
from advisor.workload.job import Job

# MPS serves 48 clients up to CUDA 13.0; more jobs are of no use on one GPU.
MAX_JOBS = 48
# Most jobs for many GPUs: with more, a search does not end within its time limit.
_MAX_SPREAD = 16 * MAX_JOBS


def most_jobs(gpus: int) -> int:
    """Most jobs that a question about `gpus` equal GPUs may name."""
    return min(MAX_JOBS * gpus, _MAX_SPREAD)


def checked_copies(copies: int, where: str, gpus: int) -> int:
    """`copies`, checked to be a possible number of jobs for so many GPUs.

    Raises:
        InvalidInput: It is not.
    """
    allowed = f"Use 1 to {most_jobs(gpus)}."
    if copies < 0:
        raise InvalidInput(f"{where}: there cannot be {copies} copies of a job. {allowed}")
    if copies == 0:
        raise InvalidInput(f"{where}: with 0 copies there is no job; leave it out. {allowed}")
    if copies > most_jobs(gpus):
        raise InvalidInput(f"{where}: {copies:,} copies are {_too_many(gpus)}")
    return copies


def job_set(jobs: Sequence[Job], gpus: int = 1) -> tuple[Job, ...]:
    """`jobs`, checked to be a possible number for `gpus` equal GPUs.

    Raises:
        InvalidInput: There is none, or there are too many.
    """
    if not jobs:
        raise InvalidInput("no job is given. Name at least one: `advisor profiles` lists them.")
    if len(jobs) > most_jobs(gpus):
        raise InvalidInput(f"{len(jobs)} jobs are {_too_many(gpus)}")
    return tuple(jobs)


def _too_many(gpus: int) -> str:
    """Why there are too many jobs, and what to do."""
    most = most_jobs(gpus)
    where = "on one GPU" if gpus == 1 else f"on {gpus} GPUs"
    why = "MPS serves no more" if most == MAX_JOBS * gpus else "a search holds no more"
    on_more = (
        f"`advisor recommend --gpus N` plans {MAX_JOBS} for each GPU, {_MAX_SPREAD} at most; "
        if most < _MAX_SPREAD
        else ""
    )
    return (
        f"more than the {most} that are planned at once {where}: {why}. Use 1 to {most}; {on_more}"
        f"`advisor simulate --trace-in FILE` takes more, which wait for their turn."
    )
