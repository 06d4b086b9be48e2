"""Learns the pace of each job from the user's own runs of it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Literal

from advisor.learn.observations import MeasuredGpu
from advisor.prediction.find_profile import find_profile
from advisor.prediction.host import is_gpu_bound, log_beyond_host
from advisor.prediction.model import Model, OwnPace, OwnStep
from advisor.prediction.predictor import Predictor
from advisor.prediction.wrappers import date_of
from advisor.sharing import Mode, parse_sharing
from advisor.sharing.groups import together, without_idle_limits
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from advisor.workload.store import tenants_of

Part = Literal["host"] | Mode
"""The evidence of a run on a job: its host's pace, or its steps in a mode, on a GPU it fills."""

# The host sets the pace where a step is predicted to be this close to the host's path, in logs.
_HOST_BOUND = 0.1

# A profile counts as so many runs: with as many own runs, the truth is taken to lie in the middle.
# Of 0, 1 and 3, 1 was best, though by little, where each run is predicted with those before it that
# day.
_PROFILE_COUNTS = 1

# The modes in which runs teach a job's steps. Under time slicing, predictions of such jobs are
# within 1 % once fitted to these runs: they got no better, and intervals missed more often.
_TAUGHT: tuple[Mode, ...] = ("mps", "mps-limits")

# A prediction of jobs together counts as so many runs. Of 1, 3, 6 and 10, 3 was best, though by
# little, where runs of an H200 are predicted with those before them by models that never saw the
# family: MAPE of 5.0 % under MPS and 5.5 % under limits fell to 4.0 and 4.6 %. With one factor for
# both it fell to 4.5 and 4.9 %. If the model is fitted to the same runs, less is left to learn.
_PREDICTION_COUNTS = 3


def with_own_paces(
    model: Model, measured: Iterable[MeasuredGpu], folder: Path | None = None
) -> Model:
    """Return `model` with the paces of jobs in the users' own runs among those of `measured`.

    They are relative to the profiles of `folder` as answers use them, on one host for all GPUs.
    """
    by_gpu = {}
    for each in measured:
        names = tenants_of(each.own) & each.profiles.keys()
        profiles = {name: find_profile(name, each.gpu, folder) for name in names}
        by_gpu[each.gpu.key] = own_paces(profiles, each.own, Predictor(each.gpu, model))
    return replace(model, own_paces={key: paces for key, paces in by_gpu.items() if paces})


def own_paces(
    profiles: Mapping[str, Profile], runs: Iterable[Run], predictor: Predictor
) -> dict[str, OwnPace]:
    """Return the pace of each job in `runs`, by name.

    Args:
        profiles: By name; runs of other workloads are skipped.
        runs: All on the GPU of `predictor`; those on MIG instances and in groups are skipped.
        predictor: Of hosts as fast as those of the profiles.
    """
    logs_of: dict[str, dict[Part, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for (name, part), behind in _logs_of_run(run, profiles, predictor).items():
            logs_of[name][part].append(behind)
    return {
        name: OwnPace(
            slowdown=_drawn(host, _PROFILE_COUNTS) if (host := parts.get("host")) else 1.0,
            runs=len(parts.get("host", ())),
            profiled=date_of(profiles[name]),
            beside={
                mode: OwnStep(factor=_drawn(logs, _PREDICTION_COUNTS), runs=len(logs))
                for mode in _TAUGHT
                if (logs := parts.get(mode))
            },
        )
        for name, parts in logs_of.items()
    }


def _drawn(logs: Sequence[float], before: int) -> float:
    """The factor that `logs` show, drawn to 1 as by `before` runs."""
    return exp(median(logs) * len(logs) / (len(logs) + before))


def _logs_of_run(
    run: Run, profiles: Mapping[str, Profile], predictor: Predictor
) -> dict[tuple[str, Part], float]:
    """The log of measured over predicted step by name and evidence, median of copies."""
    sharing = together(parse_sharing(run.sharing))
    if not run.shows_pace or sharing is None or not profiles.keys() >= {*run.names}:
        return {}
    mode = without_idle_limits(sharing).mode if len(run.tenants) > 1 else None
    jobs = predictor.predict([profiles[name] for name in run.names], sharing).jobs
    logs: dict[tuple[str, Part], list[float]] = defaultdict(list)
    for name, tenant, job in zip(run.names, run.tenants, jobs, strict=True):
        profile, step_s = profiles[name], job.step_s.p50
        if profile.host_s is None:  # of bare numbers, which do not contain the host's path
            continue
        if log_beyond_host(profile, step_s) < _HOST_BOUND:
            logs[name, "host"].append(log(tenant.step_s / step_s))
        elif mode in _TAUGHT and is_gpu_bound(profile):
            logs[name, mode].append(log(tenant.step_s / step_s))
    return {key: median(of_copies) for key, of_copies in logs.items()}
