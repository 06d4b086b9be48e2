"""How far steps are off of jobs that have SMs of their own and one memory, as compute instances.

    python -m research.compute_mates > benchmarks/slices/mates.json

Nobody here can create compute instances. Jobs under MPS limits that add up to at most 100 % have
the same: SMs that no other job has, and bandwidth and L2 together with the others. Each job's
profile is moved to the SMs of its limit as it would be to a compute instance; scored are jobs that
keep the GPU busy there, on cores like the ones that they were profiled on. `alone` is what no
traffic of others would give.
"""

import json
from collections.abc import Iterator, Sequence
from statistics import mean
from typing import Any

import numpy as np

from advisor.hardware.catalogue import gpu
from advisor.hardware.gpu_partition import whole_gpu
from advisor.prediction.fit.observation import ObservedRun, shared_runs
from advisor.prediction.interval import Interval
from advisor.prediction.mig_instances import slowed_by_traffic
from advisor.prediction.mix_pace import around_alone
from advisor.prediction.model_file import Model, load_model
from advisor.prediction.partition_transfer import on_partition, step_on
from research.files import PROFILES, measured, rounded
from research.slice_cases import HOPPER

_BUSY = 0.9


def steps_of(run: ObservedRun, model: Model) -> Iterator[tuple[Interval, Interval, float]]:
    """Predicted, without the others' traffic, and measured, of the jobs of `run` that tell."""
    physics = model.of(run.gpu).physics
    parts = [whole_gpu(run.gpu).limited(each) for each in run.sharing.limits]
    there = [
        on_partition(each, part, physics) for each, part in zip(run.profiles, parts, strict=True)
    ]
    traffic = [(each.counters.dram_active or 0.0) if each.counters else 0.0 for each in there]
    for at, (profile, part, moved) in enumerate(zip(run.profiles, parts, there, strict=True)):
        if not run.telling[at] or (moved.busy_share or 0.0) < _BUSY:
            continue
        step_s = step_on(profile, part, physics)
        alone = around_alone(moved, step_s.p50, model).times(step_s.scaled(1 / step_s.p50))
        slowed = slowed_by_traffic(sum(traffic) - traffic[at], moved.busy_share)
        yield alone.times(slowed), alone, float(run.measured_s[at])


def runs_apart(key: str) -> Iterator[ObservedRun]:
    """Real runs on the GPU `key` whose limits leave every job SMs of its own."""
    profiles, runs = measured(PROFILES / key)
    for each in shared_runs(profiles, runs, gpu(key)):
        sms = sum(whole_gpu(each.gpu).limited(limit).sms for limit in each.sharing.limits)
        traced = all(profile.trace is not None for profile in each.profiles)
        if each.sharing.limits and sms <= each.gpu.sms and traced:
            yield each


def scored(jobs: int, found: Sequence[tuple[Interval, Interval, float]]) -> dict[str, Any]:
    """Errors and coverage of `found`, of runs of so many jobs; 0: of any number."""
    off = [float(np.log(slowed.p50 / measured_s)) for slowed, _, measured_s in found]
    off_alone = [float(np.log(alone.p50 / measured_s)) for _, alone, measured_s in found]
    return {
        "jobs": jobs,
        "steps": len(found),
        "mape": float(np.mean(np.abs(np.expm1(off)))),
        "bias": mean(off),
        "alone_bias": mean(off_alone),
        "inside": float(mean(each[0].contains(each[2]) for each in found)),
    }


def scores() -> dict[str, Any]:
    """By GPU, of all runs and by the number of jobs."""
    model = load_model(PROFILES.parent / "models" / "sharing.json")
    said: dict[str, Any] = {}
    for key in HOPPER:
        by_jobs: dict[int, list[tuple[Interval, Interval, float]]] = {}
        for run in runs_apart(key):
            by_jobs.setdefault(len(run.profiles), []).extend(steps_of(run, model))
        every = [each for found in by_jobs.values() for each in found]
        kinds = [(0, every), *sorted(by_jobs.items())]
        said[key] = [scored(jobs, found) for jobs, found in kinds if found]
    return said


if __name__ == "__main__":
    print(json.dumps({"schema": 1, "scores": rounded(scores(), ".3f")}, indent=1))
