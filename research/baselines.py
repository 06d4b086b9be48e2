"""Rules that predict steps without a fitted model, which the model has to beat.

To add one, write one function of the type `Baseline` and one line in `UNFITTED`; it also chooses
plans, by highest throughput.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import exp, log

import numpy as np

from advisor.hardware.gpus import Gpu
from advisor.learn.scores import RunComparison, sharing_of
from advisor.prediction.capacity import capacity_steps as steps_of_mixes
from advisor.prediction.mix_steps import ReplayFunction
from advisor.prediction.prediction import all_known
from advisor.prediction.replay import Effort, Physics, replay_mix
from advisor.sharing import Sharing
from advisor.sharing.groups import together
from advisor.workload.profile import MpsProbe, Profile

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


def capacity_steps(
    profiles: Sequence[Profile], sharing: Sharing, _: Gpu | None = None
) -> list[float] | None:
    """Return the capacity model's steps, uncorrected; a limit stretches the job's GPU path."""
    gpu_s = all_known(profile.gpu_s for profile in profiles)
    step_s = [each.step_s for each in profiles]
    if gpu_s is None or sharing.mode == "serial":
        return None if gpu_s is None else step_s
    if (shared := together(sharing)) is None:
        return None
    counted = [getattr(each.counters, "sm_active", None) for each in profiles]
    sms = [
        1.0 if active is None or not each.busy_share else min(1.0, active / each.busy_share)
        for active, each in zip(counted, profiles, strict=True)
    ]
    columns = map(np.array, (step_s, gpu_s, sms, shared.limits or 100.0))
    return list(map(float, steps_of_mixes(*columns, under_mps=shared.under_mps)))


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
    "capacity": capacity_steps,
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


def with_baselines(
    compared: RunComparison,
    alone: Sequence[Profile],
    gpu: Gpu,
    baselines: Mapping[str, Baseline],
) -> RunComparison:
    """Return `compared` with the step of each job by each of `baselines`."""
    sharing = sharing_of(compared.run)
    steps_s = {name: baseline(alone, sharing, gpu) for name, baseline in baselines.items()}
    jobs = (
        replace(
            job,
            baselines_s={
                name: None if by_name is None else float(by_name[place])
                for name, by_name in steps_s.items()
            },
        )
        for place, job in enumerate(compared.jobs)
    )
    return replace(compared, jobs=tuple(jobs))


def baseline_speedup(compared: RunComparison, name: str) -> float | None:
    """Return the sum of solo over predicted steps by the named rule; None if it is not defined."""
    if (steps_s := all_known(job.baselines_s[name] for job in compared.jobs)) is None:
        return None
    return sum(job.alone_s / s for job, s in zip(compared.jobs, steps_s, strict=True))
