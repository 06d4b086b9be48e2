"""Learns from the user's own runs how fast the host's part of each job is there."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import exp, log
from statistics import median

from advisor.prediction.fit.observation import MeasuredGpu
from advisor.prediction.host_transfer import log_beyond_host
from advisor.prediction.model_file import Model
from advisor.prediction.own_pace import OwnPace, date_of
from advisor.prediction.predictor import Predictor
from advisor.sharing import parse_sharing
from advisor.sharing.traversal import together
from advisor.workload.profile import Profile
from advisor.workload.run import Run

# The host sets the pace where a step is predicted to be this close to the host's path, in logs.
_HOST_BOUND = 0.1

# Of runs that a profile counts as: with as many runs of one's own, the truth is taken to lie in the
# middle. Of 0, 1 and 3, 1 was best, though by little, where `research.own_pace_score` predicts each
# run with those before it that day.
_PROFILE_COUNTS = 1


def with_own_paces(model: Model, everyone: Iterable[MeasuredGpu]) -> Model:
    """`model` with what the users' own runs among those of `everyone` say of their jobs' pace."""
    found = {
        each.gpu.key: own_paces(each.profiles, each.own, Predictor(each.gpu, model))
        for each in everyone
    }
    return replace(model, own_paces={key: paces for key, paces in found.items() if paces})


def own_paces(
    profiles: Mapping[str, Profile], runs: Iterable[Run], predictor: Predictor
) -> dict[str, OwnPace]:
    """By name: what `runs` say of the jobs whose pace the host sets in them.

    Args:
        profiles: By name; runs of other workloads are skipped.
        runs: All on the GPU of `predictor`; those on MIG instances and in groups are skipped.
        predictor: Of hosts as fast as those of the profiles.
    """
    logs: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        for name, behind in host_behind(run, profiles, predictor).items():
            logs[name].append(behind)
    return {name: pace_by(each, profiles[name]) for name, each in logs.items()}


def pace_by(logs: Sequence[float], profile: Profile) -> OwnPace:
    """What runs say of `profile`; of each, how far the host was behind, as of `host_behind`."""
    drawn = median(logs) * len(logs) / (len(logs) + _PROFILE_COUNTS)
    return OwnPace(slowdown=exp(drawn), runs=len(logs), profiled=date_of(profile))


def host_behind(
    run: Run, profiles: Mapping[str, Profile], predictor: Predictor
) -> dict[str, float]:
    """By name: log of the measured over the predicted step of host-bound jobs, median of copies."""
    names = [tenant.workload.name for tenant in run.tenants]
    sharing = together(parse_sharing(run.sharing))
    if not run.shows_pace or sharing is None or any(name not in profiles for name in names):
        return {}
    jobs = predictor.predict([profiles[name] for name in names], sharing).jobs
    found: dict[str, list[float]] = defaultdict(list)
    for name, tenant, job in zip(names, run.tenants, jobs, strict=True):
        profile = profiles[name]
        if profile.host_s is None:  # of bare numbers, which do not say what the host does
            continue
        if log_beyond_host(profile, job.step_s.p50) < _HOST_BOUND:
            found[name].append(log(tenant.step_s / job.step_s.p50))
    return {name: median(each) for name, each in found.items()}
