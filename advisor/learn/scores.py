"""Compares a real run with its prediction, and with the baselines that it has to beat.

To add a rule that predicts steps, write one function of the type `Baseline` and one line in
`UNFITTED`; it also chooses plans, by highest throughput.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from typing import Annotated, Literal

import numpy as np

from advisor.documents import As, Mark, in_document
from advisor.errors import InvalidInput, UnknownName
from advisor.hardware.gpus import Gpu
from advisor.prediction.capacity import capacity_steps
from advisor.prediction.mix_steps import Predicts, ReplayFunction
from advisor.prediction.prediction import Interval, all_known
from advisor.prediction.replay import Effort, Physics, replay_mix
from advisor.sharing import Arrangement, Serial, Sharing, parse_sharing
from advisor.sharing.groups import together, without_phases
from advisor.workload.profile import MpsProbe, Profile
from advisor.workload.run import Run

# Seconds of a step of each job, shape (jobs,); None if it is not defined for the mix.
Baseline = Callable[[Sequence[Profile], Sharing, Gpu], Sequence[float] | None]


def as_if_alone(profiles: Sequence[Profile], _: Sharing, _gpu: Gpu) -> list[float]:
    """Return the solo step of each job: sharing costs nothing."""
    return [profile.step_s for profile in profiles]


def _shares(jobs: int, sharing: Sharing) -> list[float]:
    """The part of the GPU of each job: its MPS limit, or else an equal part."""
    equal = 1.0 if sharing.mode == "serial" else 1 / jobs
    return [limit / 100 for limit in sharing.limits] or [equal] * jobs


def _busy_shares(profiles: Sequence[Profile], sharing: Sharing) -> Sequence[float] | None:
    """Busy shares of jobs on one GPU; None on MIG, if jobs wait, or where a profile has none."""
    if sharing.mode in ("mig", "hybrid", "phases", "queue"):
        return None
    return all_known(profile.busy_share for profile in profiles)


def fair_share(profiles: Sequence[Profile], sharing: Sharing, _: Gpu) -> list[float] | None:
    """Compute steps where each job runs at ``min(1, share / busy share)`` of its pace."""
    if (busy := _busy_shares(profiles, sharing)) is None:
        return None
    rows = zip(profiles, busy, _shares(len(profiles), sharing), strict=True)
    return [profile.step_s * max(1.0, used / share) for profile, used, share in rows]


def summed_utilisation(profiles: Sequence[Profile], sharing: Sharing, _: Gpu) -> list[float] | None:
    """Add up utilisations; past a full GPU every job slows by their sum.

    The simplest rule of placing jobs by GPU utilisation alone, which Horus (Yeung et al., IEEE
    TPDS 33(1), 2022) found a good proxy of interference. It is not their scheduler: theirs
    predicts the utilisation too, and here it is measured.
    """
    if (busy := _busy_shares(profiles, sharing)) is None:
        return None
    full = 1.0 if sharing.mode == "serial" else max(1.0, sum(busy))
    return [profile.step_s * full for profile in profiles]


def miso(profiles: Sequence[Profile], sharing: Sharing, _: Gpu) -> list[float] | None:
    """Return the step of each job alone under an MPS limit of its part, whatever the others do.

    Our reading of MISO (Li et al., SoCC 2022), which learns the pace on a MIG slice from runs under
    MPS limits. There the jobs run together; here each profile has such runs. Time slices are not
    covered, nor are profiles without a probe.
    """
    if sharing.mode not in ("serial", "mps", "mps-limits"):
        return None
    if (probes := all_known(profile.mps for profile in profiles)) is None:
        return None
    rows = zip(profiles, probes, _shares(len(profiles), sharing), strict=True)
    return [profile.step_s * _slowdown(probe, share) for profile, probe, share in rows]


def _slowdown(probe: MpsProbe, share: float) -> float:
    """Interpolate the slowdown with `share` of the SMs, in logs; proportional below the lowest."""
    runs = sorted((*probe.limited, probe.unlimited), key=lambda run: run.limit_pct)
    log_shares = np.log([run.limit_pct / 100 for run in runs])
    log_slower = np.log([run.step_s / probe.unlimited.step_s for run in runs])
    log_share = log(share)
    below = max(0.0, float(log_shares[0]) - log_share)
    return max(1.0, exp(float(np.interp(log_share, log_shares, log_slower)) + below))


UNFITTED: Mapping[str, Baseline] = {
    "alone": as_if_alone,
    "fair-share": fair_share,
    "summed-utilisation": summed_utilisation,
    "miso": miso,
    "capacity": lambda profiles, sharing, _: capacity_steps(profiles, sharing),
}


def baselines(physics: Physics, play: ReplayFunction = replay_mix) -> Mapping[str, Baseline]:
    """Return every baseline by name; `play` replays with the constants `physics`."""

    def replay_alone(
        profiles: Sequence[Profile], sharing: Sharing, gpu: Gpu
    ) -> Sequence[float] | None:
        """Replay without regression; None on MIG, of phases, or where a profile has no trace."""
        if sharing.mode == "serial":
            return as_if_alone(profiles, sharing, gpu)
        shared = together(sharing)
        steps = None if shared is None else play(profiles, shared, gpu, physics, Effort())
        return None if steps is None else tuple(map(float, steps))

    return {**UNFITTED, "replay": replay_alone}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobComparison:
    """One tenant of a run.

    Attributes:
        alone_s: Its solo step, from its profile.
        baselines_s: Each baseline's step, by name; None if it is not defined.
        memory_mib: Predicted device memory of the process; None if not predicted.
    """

    job: str
    family: str
    alone_s: float
    measured_s: float
    predicted_s: Interval
    baselines_s: Annotated[Mapping[str, float | None], Mark.LEFT_OUT]
    memory_mib: float | None = None

    @property
    @in_document
    def error(self) -> float:
        """Predicted over measured step, minus 1."""
        return self.predicted_s.p50 / self.measured_s - 1

    @property
    @in_document
    def inside(self) -> bool:
        """True if the measured step lies in the predicted interval."""
        return self.predicted_s.contains(self.measured_s)


@dataclass(frozen=True, slots=True)
class RunComparison:
    """All tenants of one run, in its order."""

    run: Annotated[Run, As("id")]
    jobs: tuple[JobComparison, ...]

    @property
    @in_document
    def sharing(self) -> str:
        return "serial" if len(self.jobs) == 1 else self.run.sharing

    @property
    @in_document
    def measured_memory_mib(self) -> tuple[float | None, ...]:
        """Device memory of each process; None: not measured."""
        memories = (tenant.memory for tenant in self.run.tenants)
        return tuple(None if memory is None else memory.device_mib for memory in memories)

    @property
    @in_document
    def measured_speedup(self) -> float:
        """Sum over jobs of solo step over measured step."""
        return sum(job.alone_s / job.measured_s for job in self.jobs)

    @property
    @in_document
    def predicted_speedup(self) -> float:
        """Sum over jobs of solo step over predicted step."""
        return sum(job.alone_s / job.predicted_s.p50 for job in self.jobs)

    def baseline_speedup(self, name: str) -> float | None:
        """Return the speedup by the named baseline; None if it is not defined."""
        if (steps_s := all_known(job.baselines_s[name] for job in self.jobs)) is None:
            return None
        return sum(job.alone_s / s for job, s in zip(self.jobs, steps_s, strict=True))


def sharing_of(run: Run) -> Arrangement:
    """Return how the tenants of `run` shared; a tenant alone on the GPU without MPS is serial.

    Raises:
        InvalidInput: It says that they ran in phases: those are several runs.
    """
    sharing = without_phases(parse_sharing(run.sharing))
    if sharing is None:
        raise InvalidInput(f"{run.id}: {run.sharing} is several runs. Record each group as one.")
    return Serial() if len(run.tenants) == 1 and sharing.mode == "naive" else sharing


View = Literal["raw", "host-checked"]
"""The profiles to predict a run from: as they were measured, or converted to the host of the run by
a check of it and by the last step of each job alone there, where these were recorded."""


def profiles_of(run: Run, profiles: Mapping[str, Profile]) -> tuple[Profile, ...]:
    """Return the solo profile of each tenant of `run` in its order.

    Raises:
        UnknownName: A tenant has none.
    """
    for name in run.names:
        if name not in profiles:
            remedy = (
                f"Run {run.id} cannot be compared without; measure it: `advisor profile {name}`"
            )
            raise UnknownName("profile", name, profiles, remedy)
    return tuple(profiles[name] for name in run.names)


def compare(
    run: Run,
    alone: Sequence[Profile],
    predictor: Predicts,
    gpu: Gpu,
    baselines: Mapping[str, Baseline],
) -> RunComparison:
    """Predict `run` from its tenants' profiles alone and compare it with the measurement."""
    jobs = predictor.predict(alone, sharing_of(run)).jobs
    compared = compared_run(run, alone, [job.step_s for job in jobs], gpu, baselines)
    pairs = zip(compared.jobs, jobs, strict=True)
    return replace(compared, jobs=tuple(replace(c, memory_mib=p.memory_mib) for c, p in pairs))


def compared_run(
    run: Run,
    alone: Sequence[Profile],
    steps_s: Sequence[Interval],
    gpu: Gpu,
    baselines: Mapping[str, Baseline],
) -> RunComparison:
    """Compare `run` with the predicted step of each tenant, and with `baselines`."""
    sharing = sharing_of(run)
    rivals = {name: baseline(alone, sharing, gpu) for name, baseline in baselines.items()}
    rows = enumerate(zip(run.tenants, alone, steps_s, strict=True))
    return RunComparison(
        run,
        tuple(
            JobComparison(
                job=tenant.workload.name,
                family=tenant.workload.family,
                alone_s=profile.step_s,
                measured_s=tenant.step_s,
                predicted_s=step_s,
                baselines_s={
                    name: None if each is None else float(each[place])
                    for name, each in rivals.items()
                },
            )
            for place, (tenant, profile, step_s) in rows
        ),
    )
