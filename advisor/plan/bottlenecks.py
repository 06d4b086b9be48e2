"""Which resource limits a plan, and which limits each of its jobs."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from advisor.errors import InvalidInput
from advisor.hardware.gpus import Gpu
from advisor.prediction.capacity import MPS_CAPACITY
from advisor.prediction.power import summed_share
from advisor.prediction.prediction import MixPrediction
from advisor.sharing import Sharing
from advisor.sharing.groups import partitions, running_together
from advisor.workload.job import Job
from advisor.workload.profile import Profile
from advisor.workload.spec import Workload
from advisor.workload.store import load_profile, profile_paths

Resource = Literal["GPU time", "SMs", "DRAM bandwidth", "power"]
Limit = Resource | Literal["host path", "own instances", "MPS limits"]
# The share from which a resource counts as full. For SMs it is what training reached under MPS on
# an H200 (`advisor.prediction.capacity`); the others are choices.
FULL: dict[Resource, float] = {
    "GPU time": 0.9,
    "SMs": MPS_CAPACITY,
    "DRAM bandwidth": 0.8,
    "power": 0.95,
}
# Share of its step in the host path from which the host sets a job's pace: a choice.
HOST_BOUND = 0.9


@dataclass(frozen=True, slots=True)
class Use:
    """How much of a resource the jobs use together, as a share of what there is."""

    resource: Resource
    share: float

    @property
    def fullness(self) -> float:
        """The share in use, over the share from which the resource counts as full."""
        return self.share / FULL[self.resource]


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """Which resources limit the jobs of one plan.

    Attributes:
        host_shares: Share of each job's predicted step that its host path takes, 0..1, shape
            (jobs,); None where the host path was not measured.
        gpu_shares: Share of each job's predicted step in which the GPU works for it, likewise.
        alone: Positions of the jobs that have the GPU to themselves while they run.
        uses: How much of each of the GPU's resources is in use, the fullest first; resources that
            were not measured are missing.
        memory: Share of the GPU's memory that the jobs hold.
        cut: What gives the jobs SMs of their own: MIG instances, or MPS limits; None: nothing.
    """

    host_shares: tuple[float | None, ...]
    gpu_shares: tuple[float | None, ...]
    alone: frozenset[int]
    uses: tuple[Use, ...]
    memory: float
    cut: Literal["own instances", "MPS limits"] | None

    @property
    def by_host(self) -> tuple[int, ...]:
        """Positions of the jobs whose pace the host path sets."""
        shares = enumerate(self.host_shares)
        return tuple(at for at, share in shares if share is not None and share >= HOST_BOUND)

    @property
    def limit(self) -> Limit | None:
        """The resource that limits the plan as a whole; None where none is full."""
        return "host path" if len(self.by_host) == len(self.host_shares) else self.of_gpu

    @property
    def of_gpu(self) -> Limit | None:
        """What limits the jobs that do not wait for their hosts; None where nothing is full."""
        if self.cut == "own instances":
            return self.cut
        full = [use.resource for use in self.uses if use.fullness >= 1]
        return full[0] if full else self.cut

    def limit_of(self, job: int) -> Limit | None:
        """What limits the job at the position `job`."""
        if job in self.by_host:
            return "host path"
        if job in self.alone:
            return "GPU time" if (self.gpu_shares[job] or 0.0) >= FULL["GPU time"] else None
        return self.of_gpu

    def use_of(self, job: int) -> float | None:
        """Share in use of what limits the job at `job`, 0..1; None where that has no measure."""
        limit = self.limit_of(job)
        if limit == "host path":
            return self.host_shares[job]
        if job in self.alone:
            return self.gpu_shares[job]
        return next((use.share for use in self.uses if use.resource == limit), None)


def binding(jobs: Sequence[Job], gpu: Gpu, mix: MixPrediction) -> Binding:
    """Which resources limit `jobs` on `gpu`; `mix` is their prediction, in the same order."""
    cut = _cut(mix.sharing, len(jobs))
    runs = [] if cut == "own instances" else running_together(mix.sharing, len(jobs))
    profiles = [job.profile for job in jobs]
    return Binding(
        host_shares=_of_steps(
            [each.host_s and each.host_s * mix.host_stretch for each in profiles], profiles, mix
        ),
        gpu_shares=_of_steps([each.gpu_s for each in profiles], profiles, mix),
        alone=frozenset(run[0] for run in runs if len(run) == 1),
        uses=_uses(jobs, gpu, mix),
        memory=mix.memory_total_mib / mix.memory_capacity_mib,
        cut=cut,
    )


def _of_steps(
    parts_s: Sequence[float | None], profiles: Sequence[Profile], mix: MixPrediction
) -> tuple[float | None, ...]:
    """Seconds of one part of each job's step, measured alone, as shares of the predicted step.

    The slowdown of a step is the GPU's doing. A slower host lengthens the host path and the steps
    that wait for it by the same factor.
    """
    return tuple(
        None if part_s is None else min(1.0, part_s / profile.step_s / answer.slowdown)
        for part_s, profile, answer in zip(parts_s, profiles, mix.jobs, strict=True)
    )


def _uses(jobs: Sequence[Job], gpu: Gpu, mix: MixPrediction) -> tuple[Use, ...]:
    """Use of each resource: jobs that take turns fill GPU time, jobs side by side fill SMs."""
    turns = all(
        part.instance is None and part.sharing.mode in ("serial", "naive")
        for part in partitions(mix.sharing, len(jobs))
    )
    watts = mix.power_cap_w or gpu.power_limit_w
    found: dict[Resource, float | None] = {
        "GPU time": mix.gract if turns or mix.smact is None else None,
        "SMs": None if turns else mix.smact,
        "DRAM bandwidth": _dram(jobs, mix),
        "power": mix.power_w.p50 / watts if mix.power_w and watts else None,
    }
    uses = [Use(each, min(1.0, share)) for each, share in found.items() if share is not None]
    return tuple(sorted(uses, key=lambda use: -use.fullness))


def _dram(jobs: Sequence[Job], mix: MixPrediction) -> float | None:
    """Share of DRAM bandwidth in use, mean over time if all jobs take equally long alone."""
    total, runs = 0.0, running_together(mix.sharing, len(jobs))
    speeds = [[1 / mix.jobs[job].slowdown for job in run] for run in runs]
    takes = [len(each) / sum(each) for each in speeds]
    for run, own, took in zip(runs, speeds, takes, strict=True):
        share = summed_share([jobs[job].profile for job in run], own, "dram_active")
        if share is None:
            return None
        total += share * took / sum(takes)
    return total


def _cut(sharing: Sharing, jobs: int) -> Literal["own instances", "MPS limits"] | None:
    if sharing.instances:
        return "own instances"
    limits = [limit for part in partitions(sharing, jobs) for limit in part.sharing.limits]
    return "MPS limits" if min(limits, default=100) < 100 else None


_WAYS = re.compile(r"(?:-(?:compiled|graph))?(?:-loader\d+)?$")
# A job whose GPU works for less than this share of its step could run far faster: a choice.
_FAR = 2 / 3
# A variant whose step takes less than this share of the job's is shown: a choice.
_FASTER = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class HostBound:
    """A job that a shorter host path would speed up more than any sharing can.

    Attributes:
        host_share: Share of its predicted step that its host path takes, 0..1.
        gpu_share: Share of its step alone in which the GPU works for it, 0..1.
        step_s: Its step alone, as measured.
        variant: Name of the fastest profile of the same work; None where none is faster.
        variant_step_s: Step alone of that profile, as measured.
    """

    job: str
    host_share: float
    gpu_share: float
    step_s: float
    variant: str | None
    variant_step_s: float | None


def host_bound(
    jobs: Sequence[Job], bound: Binding, variants: Sequence[Profile]
) -> tuple[HostBound, ...]:
    """The jobs that their hosts hold far below the pace of the GPU; of equal jobs one.

    `bound` says what limits the jobs under a plan. Faster profiles of the same work are looked for
    among `variants`.
    """
    found: dict[str, HostBound] = {}
    for at in bound.by_host:
        profile, host_share = jobs[at].profile, bound.host_shares[at]
        gpu_share = profile.busy_share
        if host_share is None or gpu_share is None or gpu_share >= _FAR or profile.name in found:
            continue
        work, least_s = profile.workload, _FASTER * profile.step_s
        faster = [v for v in variants if v.step_s < least_s and same_work(v.workload, work)]
        best = min(faster, key=lambda each: each.step_s, default=None)
        found[profile.name] = HostBound(
            job=profile.name, host_share=host_share, gpu_share=gpu_share, step_s=profile.step_s,
            variant=best.name if best else None, variant_step_s=best.step_s if best else None,
        )  # fmt: skip
    return tuple(found.values())


def variants_of(
    jobs: Iterable[Job], gpu: str, profiles: Path | None = None
) -> tuple[tuple[Profile, ...], tuple[str, ...]]:
    """Profiles of the same work as one of `jobs`, with another loader or execution.

    They are recognised by names that end in ``-compiled``, ``-graph`` or ``-loaderN``.

    Returns:
        The profiles, and why files of such a name hold none.
    """
    names = {job.name for job in jobs}
    stems = {_WAYS.sub("", name) for name in names}
    found, refused = [], []
    for name, path in profile_paths(gpu, profiles).items():
        if name not in names and _WAYS.sub("", name) in stems:
            try:
                found.append(load_profile(str(path), gpu, profiles))
            except InvalidInput as error:
                refused.append(str(error))
    return tuple(found), tuple(refused)


def same_work(one: Workload, other: Workload) -> bool:
    """Whether both do the same work, be it in another execution or by another loader."""
    return _work(one) == _work(other)


def _work(workload: Workload) -> Workload:
    """A key that is equal for workloads of the same work; loading input is part of the work.

    Of a script nothing is known but its name.
    """
    loads = int(bool(workload.loader_workers))
    key = replace(
        workload, name="work", execution="eager", loader_workers=loads, examples_per_epoch=None
    )
    if workload.source != "script":
        return key
    name = _WAYS.sub("", workload.name)
    return replace(key, model=name, family=name)
