"""Changes to jobs that make them faster in any sharing, each with its predicted gain.

A job waits for its loader, for its own kernel launches or for the GPU, or host and GPU wait for
each other, and what helps against one does not help against the other. A remedy changes the profile
of a job; then the mix is predicted again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil

from advisor.hardware.catalogue import Gpu
from advisor.plan.bottlenecks import binding
from advisor.plan.host_bound import Remedy, RemedyKind, same_work
from advisor.prediction.execution_transfer import CAPTURED, COMPILED, Effects, executed
from advisor.prediction.host_loader import with_loader, with_workers
from advisor.prediction.interval import Interval
from advisor.prediction.mix_prediction import MixPrediction
from advisor.prediction.running_ahead import running_ahead
from advisor.prediction.surrogate_answers import Predicts
from advisor.prediction.trace import waiting_step
from advisor.sharing import Arrangement, Naive
from advisor.sharing.traversal import running_together, without_phases
from advisor.workload.job import Job
from advisor.workload.profile import Profile
from advisor.workload.spec import Execution

# The least gain that is worth a change.
_WORTH = 1.05
# Most workers, as a multiple of those measured: nobody knows whether disks sustain more.
_MOST_TIMES_WORKERS = 4

_EXECUTIONS: Mapping[RemedyKind, Execution] = {"CUDA graph": "graph", "torch.compile": "compiled"}


_Change = Callable[[Profile], Profile]
_StepOf = Callable[[Sequence[Profile]], Interval]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A change to jobs of a mix.

    Attributes:
        where: Positions of the jobs that change.
        by: What becomes of each of them.
        best: The same if all goes well, and `worst` if nothing does; None: nobody knows better.
    """

    kind: RemedyKind
    where: Sequence[int]
    by: _Change
    best: _Change | None = None
    worst: _Change | None = None
    workers: int | None = None


def remedies(
    jobs: Sequence[Job], gpu: Gpu, mix: MixPrediction, predictor: Predicts,
    variants: Sequence[Profile] = (),
) -> tuple[Remedy, ...]:  # fmt: skip
    """Remedies for `jobs`, of equal jobs one, best first.

    What gains too little is left out, but for torch's compiler where a job waits for its launches,
    of which people expect much.

    Args:
        jobs: In the order of `mix`.
        gpu: The GPU on which they run.
        mix: Their prediction by `predictor`; for phases no remedy is looked for.
        predictor: Predicts the changed jobs.
        variants: Profiles of the same work in other executions: where there is one, what was
            measured alone takes the place of what such a change does to other jobs.
    """
    sharing = without_phases(mix.sharing)
    if sharing is None:
        return ()
    by_host = binding(jobs, gpu, mix).by_host
    waiting_first = sorted(range(len(jobs)), key=lambda at: at not in by_host)
    one_of_each = {jobs[at].profile.name: at for at in reversed(waiting_first)}.values()
    found = [
        each
        for at in one_of_each
        for each in _of_job([job.profile for job in jobs], at, sharing=sharing, mix=mix,
                            predictor=predictor, variants=variants, waits=at in by_host)
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda each: -each.gain.p50))


def _of_job(
    profiles: Sequence[Profile], at: int, *, sharing: Arrangement, mix: MixPrediction,
    predictor: Predicts, variants: Sequence[Profile], waits: bool,
) -> Iterator[Remedy]:  # fmt: skip
    """What is worth it for the job at `at`, which `waits` for its host or for the GPU."""
    mates = next(run for run in running_together(sharing, len(profiles)) if at in run)
    step = partial(_step, predictor, sharing, at)
    found = [*_for_both(profiles, at)]
    found += _for_host(profiles, at, mates) if waits else _for_gpu(profiles, at)
    for each in (_as_measured(candidate, profiles[at], variants) for candidate in found):
        gain = _gain(each, profiles, step, mix.jobs[at].step_s)
        if gain.p50 >= _WORTH or (waits and each.kind == "torch.compile"):
            alone = _gain_alone(each, profiles[at], predictor)
            yield Remedy(job=profiles[at].name, kind=each.kind, workers=each.workers,
                         gain=gain, alone=alone)  # fmt: skip
    if waits and (fused := _fused(profiles, at, mates, mix)) is not None:
        yield fused


def _gain(
    change: _Candidate, profiles: Sequence[Profile], step: _StepOf, now: Interval
) -> Interval:
    """A job's step `now` over its `step` when jobs of `profiles` have changed.

    The errors of both are taken to be correlated; what nobody knows of the change comes on top.
    """

    def after(by: _Change) -> Interval:
        return step(_replaced(profiles, change.where, by))

    usual = after(change.by)
    gains = [now.p05 / usual.p05, now.p50 / usual.p50, now.p95 / usual.p95]
    gain = Interval(min(gains), gains[1], max(gains))
    if change.best is None or change.worst is None:
        return gain
    ends = [usual.p50 / after(by).p50 for by in (change.best, change.worst)]
    return gain.times(Interval(min(1.0, *ends), 1.0, max(1.0, *ends)))


def _gain_alone(change: _Candidate, job: Profile, predictor: Predicts) -> Interval | None:
    """The gain of the job when it has the GPU for itself; None where the change needs its mates."""
    if change.kind == "shared loading":
        return None
    step = partial(_step, predictor, Naive(), 0)
    return _gain(replace(change, where=(0,)), [job], step, step([job]))


def _step(
    predictor: Predicts, sharing: Arrangement, at: int, profiles: Sequence[Profile]
) -> Interval:
    return predictor.predict(profiles, sharing).jobs[at].step_s


def _for_both(profiles: Sequence[Profile], at: int) -> Iterator[_Candidate]:
    """What helps the job at `at` and its copies if host and GPU wait for each other."""
    if waiting_step(profiles[at]) is not None:
        yield _Candidate(kind="no waits", where=_copies(profiles, at), by=running_ahead)


def _for_host(profiles: Sequence[Profile], at: int, mates: Sequence[int]) -> Iterator[_Candidate]:
    """Changes that may help the job at `at`, which waits for its host, and its copies."""
    job, copies = profiles[at], _copies(profiles, at)
    if job.host is not None and job.host.waits_for_loader:
        if (workers := _workers_wanted(job)) is not None:
            yield _Candidate(kind="loader workers", workers=workers, where=copies,
                             by=partial(with_workers, workers=workers))  # fmt: skip
        alike = [mate for mate in mates if _reads_the_same(profiles[mate], job)]
        if len(alike) > 1:
            share = 1 / len(alike)
            yield _Candidate(kind="shared loading", where=alike,
                             by=partial(with_loader, times=share, cpu=share))  # fmt: skip
    elif job.workload.execution == "eager" and job.gpu_s is not None:
        yield _in_execution("CUDA graph", copies, CAPTURED)
        yield from _for_gpu(profiles, at)


def _for_gpu(profiles: Sequence[Profile], at: int) -> Iterator[_Candidate]:
    """Changes that may shorten the GPU part of the job at `at` and its copies."""
    job = profiles[at]
    if job.workload.execution == "eager" and job.gpu_s is not None and job.trace is not None:
        yield _in_execution("torch.compile", _copies(profiles, at), COMPILED)


def _copies(profiles: Sequence[Profile], at: int) -> list[int]:
    """Positions of the jobs that equal the one at `at`, and of itself."""
    return [number for number, each in enumerate(profiles) if each.name == profiles[at].name]


def _in_execution(kind: RemedyKind, where: Sequence[int], effects: Effects) -> _Candidate:
    best, usual, worst = (partial(executed, effect=effect) for effect in effects)
    return _Candidate(kind=kind, where=where, by=usual, best=best, worst=worst)


def _as_measured(candidate: _Candidate, job: Profile, variants: Sequence[Profile]) -> _Candidate:
    """`candidate` by the profile of the job in that execution, where one of `variants` is it."""
    wanted = _EXECUTIONS.get(candidate.kind)
    measured = [
        each for each in variants
        if each.workload.execution == wanted and same_work(each.workload, job.workload)
    ]  # fmt: skip
    if not measured:
        return candidate
    return replace(candidate, by=lambda _: measured[0], best=None, worst=None)


def _replaced(profiles: Sequence[Profile], where: Sequence[int], change: _Change) -> list[Profile]:
    return [change(each) if at in where else each for at, each in enumerate(profiles)]


def _workers_wanted(job: Profile) -> int | None:
    """Fewest loader workers that keep up with the job; None where it has as many."""
    host, has = job.host, job.workload.loader_workers
    if host is None or host.loader_s is None or not has:
        return None
    enough_s = max(host.main_s or 0.0, job.gpu_s or 0.0)
    wanted = ceil(has * host.loader_s / enough_s) if enough_s else _MOST_TIMES_WORKERS * has
    wanted = min(wanted, _MOST_TIMES_WORKERS * has)
    return wanted if wanted > has else None


def _reads_the_same(one: Profile, other: Profile) -> bool:
    """Whether one loader could feed both jobs: equal examples in batches of equal size."""
    if one.host is None or not one.host.waits_for_loader:
        return False
    ours, theirs = (
        (w.batch, w.resolution, w.classes, w.sequence_length, w.data, w.examples_per_epoch)
        for w in (one.workload, other.workload)
    )
    return ours == theirs


def _fused(
    profiles: Sequence[Profile], at: int, mates: Sequence[int], mix: MixPrediction
) -> Remedy | None:
    """One process that trains all copies of a job in each step: one set of launches for all."""
    job = profiles[at]
    copies = sum(profiles[mate].name == job.name for mate in mates)
    waits = job.host is not None and job.host.waits_for_loader
    if copies < 2 or waits or job.host_s is None or job.gpu_s is None:
        return None
    step_s = max(job.host_s, copies * job.gpu_s)
    now = mix.jobs[at].step_s
    gain = Interval(now.p05 / step_s, now.p50 / step_s, now.p95 / step_s)
    if gain.p50 < _WORTH:
        return None
    return Remedy(job=job.name, kind="fusing", workers=None, gain=gain)
