"""Groups of jobs one after another, from what is predicted of each."""

from collections.abc import Sequence
from math import prod

from advisor.prediction.mix_prediction import Interval, MixPrediction
from advisor.sharing import Sharing


def in_phases(
    sharing: Sharing, groups: Sequence[Sequence[int]], answers: Sequence[MixPrediction]
) -> MixPrediction:
    """One answer for all jobs, each while its own group runs.

    Power, activity and the weighted speedup are means over the time that the groups take if all
    jobs are equally long alone; when every job is a group of its own, they are those of serial.

    Args:
        sharing: Of all jobs.
        groups: Positions of the jobs of each, increasing, shape (groups, jobs of it).
        answers: What was predicted of each, its jobs in that order.
    """
    jobs = {
        at: job
        for group, answer in zip(groups, answers, strict=True)
        for at, job in zip(group, answer.jobs, strict=True)
    }
    takes = [len(answer.jobs) / answer.weighted_speedup for answer in answers]
    shares = [each / sum(takes) for each in takes]
    fullest = max(answers, key=lambda each: each.memory_total_mib / each.memory_capacity_mib)
    return MixPrediction(
        gpu=fullest.gpu,
        sharing=sharing,
        jobs=tuple(jobs[at] for at in sorted(jobs)),
        memory_total_mib=fullest.memory_total_mib,
        memory_capacity_mib=fullest.memory_capacity_mib,
        oom_probability=1 - prod(1 - answer.oom_probability for answer in answers),
        weighted_speedup=len(jobs) / sum(takes),
        power_w=_mean_interval([answer.power_w for answer in answers], shares),
        gract=_mean([answer.gract for answer in answers], shares),
        smact=_mean([answer.smact for answer in answers], shares),
        confirmed_on_hardware=all(answer.confirmed_on_hardware for answer in answers),
        estimated_from=fullest.estimated_from,
        power_cap_w=fullest.power_cap_w,
        wide_because=next((each.wide_because for each in answers if each.wide_because), None),
    )


def _mean(values: Sequence[float | None], shares: Sequence[float]) -> float | None:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return sum(value * share for value, share in zip(known, shares, strict=True))


def _mean_interval(values: Sequence[Interval | None], shares: Sequence[float]) -> Interval | None:
    """The mean, all errors going the same way."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    levels = zip(*((each.p05, each.p50, each.p95) for each in known), strict=True)
    return Interval(
        *(sum(v * share for v, share in zip(level, shares, strict=True)) for level in levels)
    )
