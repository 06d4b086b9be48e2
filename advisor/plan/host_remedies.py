"""Remedies for jobs that wait for their hosts, each with its predicted gain.

A job waits for its loader or for its own kernel launches, and what helps against one does not help
against the other. A remedy changes the host path in the profile of a job; then the mix is predicted
again.
"""

from collections.abc import Callable, Iterator, Sequence
from math import ceil

from advisor.hardware.catalogue import Gpu
from advisor.plan.bottlenecks import binding
from advisor.plan.host_bound import Remedy, RemedyKind
from advisor.plan.recommendation import Predicts
from advisor.prediction.host_loader import with_loader, with_workers
from advisor.prediction.host_transfer import on_host
from advisor.prediction.mix_prediction import Interval, MixPrediction
from advisor.sharing.traversal import running_together, without_phases
from advisor.workload.job import Job
from advisor.workload.profile import Profile

# The least gain that is worth a change.
_WORTH = 1.05
# Most workers, as a multiple of those measured: nobody knows whether disks sustain more.
_MOST_TIMES_WORKERS = 4
# Step of a CUDA graph over the busy time of the eager step: 1.0 to 1.17 in 10 pairs of profiles on
# an H200 and an H100, 1.08 in the median; and its spread. At most a fiftieth of the host path was
# left.
_GRAPH_GPU, _GRAPH_SPREAD, _GRAPH_HOST = 1.08, 0.08, 0.02


def host_remedies(
    jobs: Sequence[Job], gpu: Gpu, mix: MixPrediction, predictor: Predicts
) -> tuple[Remedy, ...]:
    """Remedies for those of `jobs` that wait for their hosts; of equal jobs one, best first.

    Torch's compiler alone is no remedy: of four jobs measured, it shortened the host path of two,
    and lengthened the steps of two that waited for it. What helps is that it captures CUDA graphs.

    Args:
        jobs: In the order of `mix`.
        gpu: The GPU on which they run.
        mix: Their prediction by `predictor`; for phases no remedy is looked for.
        predictor: Predicts the changed jobs.
    """
    sharing = without_phases(mix.sharing)
    if sharing is None:
        return ()
    profiles = [job.profile for job in jobs]
    found: list[Remedy] = []
    seen: set[str] = set()
    for at in binding(jobs, gpu, mix).by_host:
        if profiles[at].name in seen:
            continue
        seen.add(profiles[at].name)
        mates = next(run for run in running_together(sharing, len(jobs)) if at in run)
        for kind, workers, changed in _changes(profiles, at, mates):
            there = predictor.predict(changed, sharing).jobs[at].step_s
            if kind == "CUDA graph":
                there = there.times(_GRAPH)
            gain = _gain(mix.jobs[at].step_s, there)
            if gain.p50 >= _WORTH:
                found.append(Remedy(job=profiles[at].name, kind=kind, workers=workers, gain=gain))
        if (fused := _fused(profiles, at, mates, mix)) is not None:
            found.append(fused)
    return tuple(sorted(found, key=lambda each: -each.gain.p50))


_GRAPH = Interval(_GRAPH_GPU * (1 - _GRAPH_SPREAD), _GRAPH_GPU, _GRAPH_GPU * (1 + _GRAPH_SPREAD))


def _gain(now: Interval, then: Interval) -> Interval:
    """Step `now` over step `then`, end by end: the errors of both are taken to be correlated."""
    ends = [now.p05 / then.p05, now.p50 / then.p50, now.p95 / then.p95]
    return Interval(min(ends), now.p50 / then.p50, max(ends))


_Change = tuple[RemedyKind, int | None, list[Profile]]


def _changes(profiles: Sequence[Profile], at: int, mates: Sequence[int]) -> Iterator[_Change]:
    """Changes that may help the job at `at` and its copies, each with all profiles after it."""
    job = profiles[at]
    copies = [number for number, each in enumerate(profiles) if each.name == job.name]
    if job.host is not None and job.host.waits_for_loader:
        if (workers := _workers_wanted(job)) is not None:
            wanted = with_workers(job, workers)
            yield "loader workers", workers, _replaced(profiles, copies, lambda _: wanted)
        alike = [mate for mate in mates if _reads_the_same(profiles[mate], job)]
        if len(alike) > 1:
            share = 1 / len(alike)
            yield (
                "shared loading",
                None,
                _replaced(profiles, alike, lambda each: with_loader(each, share, cpu=share)),
            )
    elif job.workload.execution == "eager" and job.gpu_s is not None:
        yield "CUDA graph", None, _replaced(profiles, copies, _captured)


def _captured(job: Profile) -> Profile:
    return on_host(job, _GRAPH_HOST)


def _replaced(
    profiles: Sequence[Profile], where: Sequence[int], change: Callable[[Profile], Profile]
) -> list[Profile]:
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
