"""What callers of the library may write, and what is said of anything else."""

from collections.abc import Iterable
from functools import cache
from numbers import Real
from pathlib import Path
from typing import Any

from advisor.errors import InvalidInput, with_article
from advisor.hardware.gpus import gpu_meant
from advisor.plan.rules import Conditions
from advisor.prediction.prediction import LEVELS
from advisor.sharing import Sharing, parse_sharing
from advisor.workload.job import Arrival, Job, job_set, parse_jobs
from advisor.workload.profile import FindsProfiles, Profile

JobLike = str | Profile | Job
"""A job: ``"NAME[:COPIES][@EPOCHS]"``, or a profile file's path; or what these stand for."""

JobsLike = Iterable[JobLike]

_SHOWN = 60  # characters of what was given instead


def jobs_meant(asked: JobsLike, load: FindsProfiles, key: str, gpus: int = 1) -> tuple[Job, ...]:
    """The jobs that `asked` stands for; a profile stands for one epoch of it.

    Args:
        asked: As a caller wrote them.
        load: Finds a profile by its name, or the path of its file.
        key: Of the GPU that they are to run on.
        gpus: Equal GPUs that there are.

    Raises:
        InvalidInput: They are no list, or one is no job; a name, count or file is wrong; or a
            profile is of another GPU.
    """
    load = cache(load)
    found: list[Job] = []
    for each in listed("jobs", asked, "names"):
        match each:
            case Job():
                found.append(each)
            case Profile():
                found.append(Job(each))
            case str():
                found += parse_jobs([each], load, gpus)
            case _:
                raise InvalidInput(f"a job is a name, a Profile or a Job; got {_shown(each)}")
    if strangers := {job.profile.gpu for job in found} - {key}:
        raise InvalidInput(
            f"profiles of {', '.join(sorted(strangers))} say nothing of {key}. Name the jobs, and "
            f"they are estimated; measure them on {with_article(key)}; or ask about the other GPU."
        )
    return job_set(found, gpus)


def sharing_meant(asked: str | Sharing) -> Sharing:
    """The sharing that `asked` stands for.

    Raises:
        InvalidInput: It is neither a sharing nor the notation of one.
    """
    if isinstance(asked, str):
        return parse_sharing(asked)
    of_kind("a way to share", asked, Sharing, "'mps=50,50'")
    return asked


def listed(what: str, asked: Any, of: str) -> list[Any]:
    """What a caller gave where a list belongs; messages call it `what`, and its members `of`.

    Raises:
        InvalidInput: It is no list, or a word that would be taken letter by letter.
    """
    if isinstance(asked, str | Profile | Job | Arrival) or not isinstance(asked, Iterable):
        raise InvalidInput(f"{what} are a list of {of}, as [{_shown(asked)}]")
    return list(asked)


def of_kind(what: str, asked: object, kind: Any, example: str) -> None:
    """Check that `asked` is of that `kind`; messages call it `what`, and say what to write.

    Raises:
        InvalidInput: It is of another kind.
    """
    if not isinstance(asked, kind):
        raise InvalidInput(f"{what} is written as {example}; got {_shown(asked)}")


def number_meant(what: str, asked: object, *, counts: bool = False) -> None:
    """Check that `asked` is a number, or None, which says nothing.

    Args:
        what: What messages call it.
        asked: As a caller wrote it.
        counts: Whether it is to be a whole number of at least 1.

    Raises:
        InvalidInput: It is something else.
    """
    if asked is None or (isinstance(asked, int) and asked >= 1):
        return
    if counts or not isinstance(asked, Real):
        kind = "whole number of at least 1" if counts else "number"
        raise InvalidInput(f"{what} is a {kind}; got {_shown(asked)}")


def path_meant(what: str, asked: object) -> Path | None:
    """The path that `asked` stands for, which may be a word, or None.

    Raises:
        InvalidInput: It is no path; the message calls it `what`.
    """
    if isinstance(asked, str):
        return Path(asked)
    if asked is not None and not isinstance(asked, Path):
        raise InvalidInput(f"{what} is a path, e.g. 'mine'; got {_shown(asked)}")
    return asked


def check_fleet(fleet: object, key: str) -> None:
    """Check that `fleet` is one, of the GPU called `key`.

    Raises:
        InvalidInput: It is not: what is known of the one GPU says nothing of another.
    """
    from advisor.simulation.simulate import Fleet

    of_kind("a fleet", fleet, Fleet, f"Fleet({key!r}, 1, 'first-come')")
    if isinstance(fleet, Fleet) and gpu_meant(fleet.gpu).key != key:
        raise InvalidInput(f"a fleet of {fleet.gpu} is asked about by Advisor({fleet.gpu!r})")


def check_ranking(conditions: object, level: object) -> None:
    """Check what else plans are ranked by than an objective.

    Raises:
        InvalidInput: These are no conditions, or no point of an interval.
    """
    of_kind("conditions", conditions, Conditions, "advisor.plan.rules.Conditions(root=False)")
    if level not in LEVELS:
        raise InvalidInput(f"level is one of {', '.join(LEVELS)}; got {_shown(level)}")


def _shown(value: object) -> str:
    """A value in a message: a job by its name, and nothing at length."""
    if isinstance(value, Profile | Job):
        return value.name
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
