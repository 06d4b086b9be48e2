"""One data loader for jobs that read the same data, where each of them has its own now."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from advisor.errors import InvalidInput
from advisor.hardware.gpus import Gpu
from advisor.plan.copies import MIN_GAIN, Copies
from advisor.plan.rules import Conditions, broken_rule, memory_problem
from advisor.plan.trials import Search
from advisor.plan.values import OneLoader, equal_work
from advisor.prediction.mix_steps import Predicts
from advisor.prediction.prediction import MixPrediction
from advisor.prediction.shared_loader import busy_cores, of_one_loader
from advisor.sharing import Mps, Naive
from advisor.workload.job import Job
from advisor.workload.profile import Profile
from advisor.workload.spec import Workload


def sharing_loader(jobs: Sequence[Job]) -> tuple[Job, ...]:
    """Return `jobs`, whose batches come from one data loader for all that run at the same time.

    Raises:
        InvalidInput: They do not all read the same data through the same loader in equal batches,
            or a profile lacks how busy its loader is.
    """
    first = jobs[0].profile.workload
    for job in jobs:
        _check_loader(job, first)
    return tuple(
        job
        if job.profile.workload.shared_loader
        else replace(job, profile=of_one_loader(job.profile))
        for job in jobs
    )


# What jobs of one loader have in common, in words.
_COMMON = {
    "data": "data",
    "examples_per_epoch": "examples in an epoch",
    "resolution": "sizes of images",
    "sequence_length": "lengths of sequences",
    "table_mib": "tables",
    "batch": "batch sizes",
    "loader_workers": "numbers of loader workers",
}


def _check_loader(job: Job, first: Workload) -> None:
    """Refuse a job that has no loader of its own, or another one than the `first` job has."""
    own, remedy = job.profile.workload, "Leave --share-loader out."
    if not own.loader_workers:
        raise InvalidInput(
            f"{job.name}: its profile has no data loader with workers that jobs could share. "
            "Profile it with its loader, or leave --share-loader out."
        )
    if job.profile.host_s is None:
        raise InvalidInput(
            f"{job.name}: its profile lacks the time of its data loader. Profile it again."
        )
    if job.gpus > 1:
        raise InvalidInput(f"{job.name} reads its data in {job.gpus} parts. {remedy}")
    for name, words in _COMMON.items():
        if getattr(own, name) != getattr(first, name):
            raise InvalidInput(f"{first.name} and {own.name} have different {words}. {remedy}")


def one_loader(
    jobs: Sequence[Job],
    now: MixPrediction,
    gpu: Gpu,
    predictor: Predicts,
    conditions: Conditions,
) -> OneLoader | None:
    """Return what one loader for all `jobs` would gain over `now`; None: nothing, or it cannot be.

    Ways to share are `now`'s, time-slicing and MPS; limits are not searched.
    """
    try:
        sharers = sharing_loader(jobs)
    except InvalidInput:
        return None
    if sharers == tuple(jobs) or len(jobs) < 2:
        return None
    profiles = [each.profile for each in sharers]
    ways: list[Naive | Mps] = [Naive(), Mps()]
    if isinstance(now.sharing, Mps):
        ways.append(now.sharing)
    allowed = [way for way in ways if not broken_rule(sharers, way, gpu, conditions)]
    mixes = [predictor.predict(profiles, way) for way in allowed]
    mixes = [mix for mix in mixes if not memory_problem(mix, gpu, conditions.memory_margin)]
    if not mixes:
        return None
    best = min(mixes, key=lambda mix: equal_work(mix).p50)
    return _gained([each.profile for each in jobs], now, profiles, best)


_Answer = TypeVar("_Answer", Copies, Search)


def with_one_loader(answer: Callable[[Job], _Answer], job: Job) -> _Answer:
    """Return the `answer` for copies of `job`, with what one loader for all of them would gain."""
    own = answer(job)
    try:
        (sharer,) = sharing_loader([job])
    except InvalidInput:
        return own
    if sharer == job:
        return own
    now, shared = (
        each if isinstance(each, Copies) else each.hosts[0].trials.copies
        for each in (own, answer(sharer))
    )
    gained = _gained(
        [job.profile] * now.worthwhile,
        now.at_best.prediction,
        [sharer.profile] * shared.worthwhile,
        shared.at_best.prediction,
    )
    return replace(own, one_loader=gained)


def _gained(
    own: Sequence[Profile], now: MixPrediction, shared: Sequence[Profile], then: MixPrediction
) -> OneLoader | None:
    gain = equal_work(now).p50 / equal_work(then).p50
    if gain < 1 + MIN_GAIN or len(shared) < 2:
        return None
    return OneLoader(
        sharing=then.sharing,
        jobs=len(shared),
        gain=gain,
        cores=busy_cores(shared, then),
        cores_now=busy_cores(own, now),
    )
