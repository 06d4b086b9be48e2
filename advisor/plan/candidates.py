"""Candidate plans for one GPU: their forecasts, the search for them, and their power caps."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import prod

import numpy as np

from advisor.errors import InvalidInput, counted
from advisor.hardware.gpus import Gpu
from advisor.plan import ObjectiveName
from advisor.plan.candidate_space import Proposal, Space, in_phases
from advisor.plan.forecast import Mixes, forecast, serial_s
from advisor.plan.job_sets import WHOLE_GPU, Kinds, Option
from advisor.plan.objectives import OBJECTIVES, costs_of_ways, known_cost
from advisor.plan.rules import Conditions, broken_rule, memory_problem
from advisor.plan.values import Forecast, LeftOut, Question
from advisor.prediction.mix_steps import Predicts, SurrogatePredictor
from advisor.prediction.power import capped, check_cap
from advisor.prediction.prediction import MixPrediction, all_known
from advisor.sharing import Arrangement, Group, Instance, Mig, Mps, Queue, Sharing
from advisor.sharing.groups import in_turn, instance_sets
from advisor.simulation.events import PlacedJobs, from_the_start
from advisor.workload.job import Job
from advisor.workload.profile import Profile


class Forecaster:
    """Forecasts `jobs` under each sharing; each mix is predicted once."""

    def __init__(self, jobs: Sequence[Job], question: Question) -> None:
        self.jobs = tuple(jobs)
        self._question = question
        self._mixes: dict[float | None, Mixes] = {}

    def mixes(self, power_cap_w: float | None = None) -> Mixes:
        """Return the jobs, predicted under a power cap."""
        if power_cap_w not in self._mixes:
            predictor, gpu = self._question.predictor, self._question.gpu
            if power_cap_w is not None:
                predictor = CappedPredictor(predictor, gpu, power_cap_w)
            self._mixes[power_cap_w] = Mixes(self.jobs, predictor)
        return self._mixes[power_cap_w]

    def forecast(self, sharing: Sharing, power_cap_w: float | None = None) -> Forecast | LeftOut:
        """Forecast the jobs under `sharing`; or say why it is not allowed."""
        mixes = self.mixes(power_cap_w)
        gpu, conditions = self._question.gpu, self._question.conditions
        problem = broken_rule(self.jobs, sharing, gpu, conditions)
        if not problem:
            problem = memory_problem(mixes.whole(sharing), gpu, conditions.memory_margin)
        if problem:
            return LeftOut(str(sharing), problem)
        result = forecast(mixes, sharing)
        if power_cap_w is None or result.makespan_s is None:
            return result
        # A cap that a plan chooses is part of what it gains over serial, which has none.
        return replace(result, speedup_vs_serial=serial_s(self.mixes()) / result.makespan_s)


@dataclass(frozen=True, slots=True)
class CappedPredictor:
    """Predicts as `predictor` does, on a GPU capped at `cap_w` watts.

    The effect of a cap was learnt on other GPUs, so no answer counts as confirmed on hardware.

    Raises:
        InvalidInput: `gpu` cannot be set to that cap.
    """

    predictor: Predicts
    gpu: Gpu
    cap_w: float

    def __post_init__(self) -> None:
        check_cap(self.cap_w, self.gpu)

    def predict(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction:
        """Predict; raise `InvalidInput` where the power of a job is not known."""
        mix = self.predictor.predict(profiles, sharing)
        if sharing.mode == "serial":
            turns = [self.predictor.predict([profile], sharing) for profile in profiles]
            powers = [_power_w(turn) for turn in turns]
        else:
            powers = [_power_w(mix)] * len(profiles)
        return capped(mix, powers, self.cap_w, self.gpu)

    def surrogate(self, profiles: Sequence[Profile]) -> SurrogatePredictor | None:
        """Return the surrogate without the cap: which limits are best hardly depends on it."""
        return self.predictor.surrogate(profiles)


def _power_w(mix: MixPrediction) -> float:
    if mix.power_w is None:
        names = ", ".join(sorted({job.job for job in mix.jobs}))
        raise InvalidInput(
            f"a power cap needs the power of every job, which was not measured of all of {names}. "
            "Profile them again on a GPU that meters power, or leave the cap out."
        )
    return mix.power_w.p50


# The most sets of jobs that are searched: those of 8 jobs.
MOST_SETS = 256
# How many plans of each kind are forecast, and how many of few jobs, whose forecasts are quick. How
# instances slow each other shows only in the forecast.
_FORECAST, _FORECAST_OF_FEW, _FEW = 3, 6, 3


def proposed(
    jobs: Sequence[Job], question: Question
) -> tuple[list[Sharing], list[LeftOut], bool | None]:
    """Find the best few plans on MIG instances and in phases; and what is left out, and why.

    The third value is whether the predictor itself predicted every set of jobs, not its surrogate;
    None: no set was looked at.
    """
    if len(jobs) == 1:
        return [], [], None
    if prod(1 + copies for copies in Kinds(jobs).copies) > MOST_SETS:
        why = f"{len(jobs)} jobs make too many sets to look at each"
        return [], [LeftOut("MIG, and phases", why)], None
    space = Space(jobs, question)
    exact = space.exact
    few = exact or len(jobs) <= _FEW
    most = _FORECAST_OF_FEW if few else _FORECAST
    apart = list(islice(space.one_job_each(), _FORECAST if few else 1))
    plans = apart.copy()
    fixed = question.conditions.instances is not None
    phased = list(in_phases(space))
    for way in (space.on_instances(), phased):
        plans += islice(way if fixed else filter(_cut_up, way), most)
    # Groups on instances seem cheaper than they are, because they slow each other.
    plans += islice((each for each in phased if not each[1].instances), 1)
    left_out = [] if apart else [LeftOut("mig", _no_layout(jobs, question))]
    queues = [] if fixed else _queues(jobs, space)[:1]
    return [*queues, *(sharing for _, sharing in plans)], left_out, exact


# Jobs that a queue runs at once.
_AT_ONCE = (2, 3, 4)


def _queues(jobs: Sequence[Job], space: Space) -> list[Sharing]:
    """Return queues of `jobs` under MPS, best first by estimates; none if a length is not known.

    The longest jobs start first, unless the objective has an order of its own.
    """
    work = all_known(job.work_steps for job in jobs)
    if work is None or len(jobs) <= _AT_ONCE[0]:
        return []
    by = space.objective if space.objective.in_seconds else OBJECTIVES["makespan"]
    line = sorted(range(len(jobs)), key=lambda at: (by.turn(jobs[at]), -(jobs[at].alone_s or 0)))
    numbers = tuple(at + 1 for at in line)
    queues = [in_turn([Group(numbers, Queue(Mps(), most))])
              for most in _AT_ONCE if most < len(jobs)]  # fmt: skip
    kind = {at: kind for kind, places in enumerate(space.sets.positions) for at in places}
    slowdowns = space.outcome(Option(WHOLE_GPU, Mps())).slowdowns

    def pace(seats: PlacedJobs) -> list[float]:
        slowed = slowdowns[space.sets.number([kind[seat.job] for seat in seats])]
        return [1 / (jobs[each.job].alone_step_s * slowed[kind[each.job]]) for each in seats]

    ends_s = [from_the_start(queue, work, pace).ends_s for queue in queues]
    order = np.argsort(costs_of_ways(by, jobs, np.array(ends_s), np.array(ends_s)), kind="stable")
    return [queues[at] for at in order]


def _cut_up(plan: Proposal) -> bool:
    """Check that jobs use more than one partition at once; all in one is just a smaller GPU."""
    cut = instance_sets(plan[1])
    return not cut or any(len(each.partitions) > 1 for each in cut)


def _no_layout(jobs: Sequence[Job], question: Question) -> str:
    """Why no plan gives each of `jobs` a MIG instance of its own."""
    gpu = question.gpu
    if not gpu.mig:
        return f"{gpu.key} has no MIG"
    if (there := question.conditions.instances) is not None:
        return (
            f"{counted(len(jobs), 'job')}, and {counted(len(there), 'MIG instance')} without root"
        )
    one_each = Mig((Instance(gpu.mig[0].name),) * len(jobs))
    if problem := broken_rule(jobs, one_each, gpu, question.conditions):
        return problem
    return f"no layout has an instance with enough memory for each of the {len(jobs)} jobs"


CAP_SHARES = (0.9, 0.8, 0.7, 0.6)
"""Caps that a plan may have, as shares of the GPU's own limit: a choice. Boards may refuse less."""


def cap_choices(gpu: Gpu) -> tuple[float, ...]:
    """Return power caps, in whole watts, for plans on `gpu`; none if its limit is unknown."""
    if gpu.power_limit_w is None:
        return ()
    watts = (float(round(share * gpu.power_limit_w)) for share in CAP_SHARES)
    return tuple(cap_w for cap_w in watts if cap_w >= (gpu.power_limit_min_w or 0.0))


def under_caps(
    sharings: Sequence[Sharing], forecaster: Forecaster, question: Question
) -> list[Forecast]:
    """Forecast `sharings` under their best cap that makes no further job late, if one helps."""
    capped = []
    for sharing in sharings:
        free = forecaster.forecast(sharing)
        if isinstance(free, LeftOut):
            continue
        in_time = [free]
        for cap_w in cap_choices(question.gpu):
            plan = forecaster.forecast(sharing, cap_w)
            assert isinstance(plan, Forecast), "a cap takes no memory"
            if plan.late(question.level) <= free.late(question.level):
                in_time.append(plan)
        costs = [known_cost(each, question.objective).at(question.level) for each in in_time]
        if least := costs.index(min(costs)):
            capped.append(in_time[least])
    return capped


def why_no_caps(gpu: Gpu, objective: ObjectiveName, conditions: Conditions) -> str | None:
    """Say why no plan on `gpu` chooses a power cap although it may; None where plans do."""
    if not conditions.root:
        return "setting one takes root, and there is none"
    if not OBJECTIVES[objective].saves_energy:
        return f"a cap makes no job faster, and plans are ranked by {objective}"
    if not cap_choices(gpu):
        return f"the power limit of {gpu.key} is not known"
    return None
