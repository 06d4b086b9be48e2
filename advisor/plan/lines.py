"""Lines of jobs on MIG instances: each is a small GPU, whose jobs run one after another."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

from advisor.hardware.gpus import Gpu
from advisor.hardware.mig import profile_of
from advisor.plan import step
from advisor.plan.job_sets import Cut, Members, allowed_cuts
from advisor.plan.rules import broken_rule, memory_problem
from advisor.plan.values import Question
from advisor.sharing import Hybrid, Instance, Mig, Naive, Part, Place, Serial
from advisor.sharing.groups import simplest, without_phases
from advisor.simulation.turns import set_spans
from advisor.workload.job import Job


class Alone(NamedTuple):
    """A job with one instance to itself.

    Attributes:
        takes_s: Seconds; its slowdown where each job's time alone is the unit.
        added_j: Joules beyond those of a GPU without jobs.
    """

    takes_s: float
    added_j: float


RunsAlone = Callable[[int, str], Alone | None]
"""Kind of a job and MIG profile -> how it runs there; None: it does not fit, or may not."""


class Lined(NamedTuple):
    """Jobs in lines, numbered in the order in which they came, from 1; estimates of one GPU.

    `ends_s` has the shape (jobs,); for throughput, in units of each job's time alone.
    """

    sharing: Hybrid | Mig | Serial
    ends_s: tuple[float, ...]
    added_j: float


class Instances:
    """Estimates lines of `jobs`, one of each kind, on the instances of a GPU.

    Estimates assume that jobs on other instances do not slow a job; forecasts of plans do not.
    """

    def __init__(
        self, jobs: Sequence[Job], question: Question, idle_w: float, *, in_seconds: bool
    ) -> None:
        self._jobs, self._question, self._idle_w = jobs, question, idle_w
        self._in_seconds = in_seconds
        self._alone: dict[tuple[int, str], Alone | None] = {}

    @cached_property
    def cuts(self) -> tuple[Cut, ...]:
        """The ways to cut the GPU into undivided instances that the conditions allow."""
        every = allowed_cuts(self._question)
        return tuple(cut for cut in every if len(cut.instances) > 1 and not any(cut.parts))

    def alone(self, kind: int, profile: str) -> Alone | None:
        """Predict a job of `kind` alone on an instance, or the whole GPU if `profile` is empty.

        None: it does not fit, or may not run there.
        """
        if (kind, profile) not in self._alone:
            sharing = Mig((Instance(profile),)) if profile else Serial()
            self._alone[kind, profile] = self._predicted(self._jobs[kind], sharing)
        return self._alone[kind, profile]

    def lined(self, order: Members, cut: Cut) -> Lined | None:
        """Line jobs up on the instances of `cut`, as `lined`."""
        answer = lined(order, cut, self._question.gpu, self.alone)
        if answer is None or self._in_seconds:
            return answer
        span = max(answer.ends_s)
        if without_phases(answer.sharing) is not None:  # no job waits: each end is its slowdown
            span = sum(set_spans(answer.sharing, answer.ends_s))
        return answer._replace(ends_s=(span,) * len(order))

    def _predicted(self, job: Job, sharing: Mig | Serial) -> Alone | None:
        step()
        question = self._question
        if broken_rule([job], sharing, question.gpu, question.conditions):
            return None
        mix = question.predictor.predict([job.profile], sharing)
        if memory_problem(mix, question.gpu, question.conditions.memory_margin):
            return None
        (answer,) = mix.jobs
        takes_s = (job.work_steps or 0.0) * answer.paced_s.at(question.level)
        watts = 0.0 if mix.power_w is None else mix.power_w.at(question.level) - self._idle_w
        slowdown = answer.slowdown_at(question.level)
        return Alone(takes_s if self._in_seconds else slowdown, watts * takes_s)


def lined(order: Members, cut: Cut, gpu: Gpu, alone: RunsAlone) -> Lined | None:
    """Line kinds of jobs up in this order, each where it ends soonest; None: one fits nowhere.

    If two ends are equal, the smaller instance is used. A single job has the whole GPU.
    """
    if len(order) == 1:
        only = alone(order[0], "")
        return only and Lined(Serial(), (only.takes_s,), only.added_j)
    names = [each.profile for each in cut.instances]
    sizes = [profile_of(gpu, name).compute_slices for name in names]
    free_s, lines = [0.0] * len(sizes), [list[int]() for _ in sizes]
    ends_s, added_j = list[float](), 0.0
    for number, kind in enumerate(order, start=1):
        ends = [
            (free_s[at] + own.takes_s, sizes[at], at, own)
            for at, name in enumerate(names)
            if (own := alone(kind, name)) is not None
        ]
        if not ends:
            return None
        end_s, _, best, own = min(ends)
        free_s[best] = end_s
        lines[best].append(number)
        ends_s.append(end_s)
        added_j += own.added_j
    places = [
        Place(each, (Part(tuple(line), Serial() if len(line) > 1 else Naive()),))
        for each, line in zip(cut.instances, lines, strict=True)
        if line
    ]
    return Lined(simplest(Hybrid(tuple(places))), tuple(ends_s), added_j)
