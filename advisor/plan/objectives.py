"""What makes one plan better than another, always as a cost: the lower, the better."""

from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from advisor.plan.recommendation import Forecast, Objective
from advisor.prediction.mix_prediction import LEVELS, Interval, JobPrediction, Level, MixPrediction
from advisor.sharing import Phases, Serial
from advisor.sharing.parts import at_once
from advisor.timeline.outcome import around


def cost(forecast: Forecast, objective: Objective) -> Interval | None:
    """What `forecast` costs; None where it cannot be said.

    Returns:
        makespan: seconds until the last job ends. energy: joules until then. energy-epoch and
        energy-example: joules of one epoch, or one example, of each job while all run, together.
        throughput: time to do what serial does in a unit of time. fairness: the same for the job
        that fares worst, if serial gives each an equal share of the time. mean-completion: seconds
        until a job ends, on average. deadlines: the largest share of the time until its deadline
        that a job takes; above 1 that job is late.
    """
    match objective:
        case "makespan":
            return forecast.makespan_interval_s
        case "mean-completion" | "deadlines":
            return _completion(forecast, objective)
        case "energy":
            return forecast.energy_j
        case "energy-epoch" | "energy-example":
            whole = objective == "energy-epoch"
            jobs = forecast.prediction.jobs
            return _summed([job.energy_epoch_j if whole else job.energy_example_j for job in jobs])
        case "throughput" | "fairness":
            return _of_paces(forecast.prediction, objective)


def tied(one: Interval, other: Interval) -> bool:
    """Whether two costs are equal within our error: a median lies in the other's interval."""
    return one.contains(other.p50) or other.contains(one.p50)


def possible(forecasts: Sequence[Forecast], objective: Objective) -> tuple[Objective, str | None]:
    """What `forecasts` can be ranked by, and why where it is not `objective`."""

    def known(asked: Objective) -> bool:
        return all(cost(each, asked) is not None for each in forecasts)

    if known(objective):
        return objective, None
    if objective in ("energy", "energy-epoch") and known("energy-example"):
        return "energy-example", f"{objective} needs to know how long an epoch of every job is"
    if known("makespan") and objective == "deadlines":
        return "makespan", "deadlines needs a job that has one: deadline_s in a file of jobs"
    if known("makespan"):
        return "makespan", f"{objective} needs the power of every job, which was not measured"
    return "throughput", f"{objective} needs to know how long an epoch of every job is"


def throughput(mix: MixPrediction, level: Level) -> float:
    """Work that the jobs of `mix` do in the time in which serial does 1, costs being at `level`."""
    return 1 / _of_paces(mix, "throughput").at(level)


def _of_paces(mix: MixPrediction, objective: Literal["throughput", "fairness"]) -> Interval:
    """Of how fast the jobs run, whatever is to run of each."""
    if isinstance(mix.sharing, Serial) and mix.power_cap_w is None:
        return Interval(1.0, 1.0, 1.0)
    jobs = mix.jobs
    at_levels = [slowdowns(jobs, level) for level in LEVELS]
    if isinstance(mix.sharing, Phases):
        at_levels = [_with_waiting(mix.sharing, each) for each in at_levels]
    # In turn, each job has its whole speed for its part of the time.
    turns = len(jobs) if isinstance(mix.sharing, Serial) else 1
    # In phases a job whose mates are faster has less of its group's time: it may fare worse for it.
    if objective == "throughput":
        return around([turns / sum(1 / each for each in level) for level in at_levels])
    return around([turns * max(level) / len(jobs) for level in at_levels])


def _completion(
    forecast: Forecast, objective: Literal["mean-completion", "deadlines"]
) -> Interval | None:
    """Of when each job ends; None where that is not known, or no job has a deadline."""
    if forecast.ends_s is None:
        return None
    if objective == "mean-completion":
        return Interval(*(fmean(end.at(level) for end in forecast.ends_s)
                          for level in LEVELS))  # fmt: skip
    pairs = zip(forecast.ends_s, forecast.deadlines_s, strict=True)
    due = [(end, deadline_s) for end, deadline_s in pairs if deadline_s is not None]
    if not due:
        return None
    return Interval(*(max(end.at(level) / deadline_s for end, deadline_s in due)
                      for level in LEVELS))  # fmt: skip


def _summed(values: Sequence[Interval | None]) -> Interval | None:
    """The sum, all errors going the same way; None where one is not known."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return Interval(*(sum(each.at(level) for each in known) for level in LEVELS))


def slowdowns(jobs: Sequence[JobPrediction], level: Level) -> list[float]:
    """How many times as long as alone a step of each job takes, at `level`."""
    return [job.slowdown * job.step_s.at(level) / job.step_s.p50 for job in jobs]


def _with_waiting(phases: Phases, running: Sequence[float]) -> list[float]:
    """Slowdowns that count the time in which other groups run, all jobs being as long alone."""
    waiting = list(running)
    groups = at_once(phases, len(running))
    takes = [len(group) / sum(1 / running[job] for job in group) for group in groups]
    for group, each in zip(groups, takes, strict=True):
        for job in group:
            waiting[job] *= sum(takes) / each
    return waiting
