"""Which resource limits a plan, and which limits each of its jobs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from advisor.hardware.catalogue import Gpu
from advisor.prediction.mix_prediction import MixPrediction
from advisor.prediction.power import summed_share
from advisor.prediction.utilisation_model import MPS_CAPACITY
from advisor.sharing import Sharing
from advisor.sharing.traversal import partitions, running_together
from advisor.workload.job import Job
from advisor.workload.profile import Profile

Resource = Literal["GPU time", "SMs", "DRAM bandwidth", "power"]
Limit = Resource | Literal["host path", "own instances", "MPS limits"]
# The share from which a resource counts as full. For SMs it is what training reached under MPS on
# an H200 (`advisor.prediction.utilisation_model`); the others are choices.
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
