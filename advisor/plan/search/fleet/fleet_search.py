"""The best plan for many jobs on equal GPUs that can be found in a given time.

It begins with greedy plans and takes steps from the best of them: some of its groups are formed
anew, jobs swap places, CP-SAT recombines all groups that are known, the one-GPU solver looks for
better ways to share within groups. Thousands of groups are estimated, and every group of a plan is
predicted before the plan counts, so that what is optimised is what is reported. Time only ends the
steps, which are the same whatever time there is: more of it never makes a plan worse.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic

from advisor.errors import NothingFits
from advisor.plan.recommendation import Question
from advisor.plan.search.fleet.group_pool import MOST_TOGETHER, GroupPool
from advisor.plan.search.fleet.grouping import greedy_groups
from advisor.plan.search.fleet.local_search import Improver, Incumbent
from advisor.plan.search.fleet.packing import bound, packed, quick_plans
from advisor.plan.search.fleet.placement import (
    FleetGroup,
    PlacedGroup,
    Problem,
    arranged,
    roughly_arranged,
)
from advisor.plan.search.fleet.queue_order import soonest_first
from advisor.plan.search.job_sets import Kinds, Members

# Rounds of small changes between two recombinations; rounds without gain that end the search.
_RECOMBINED, _STALE = 4, 5
# Greedy plans whose estimated cost is more than this times the best are not predicted.
_TOO_COSTLY = 1.1
# Up to this number of sets of jobs, every one is predicted, which gives a bound on all plans.
_EVERY_MEMBER_SET = 80
# How many of these sets the one-GPU solver then looks at: with limits, other groups may be best.
_SHARED_BETTER = 16
# Share of the time limit that the one-GPU solver is assumed to need for its first group.
_THOROUGH = 0.25

Clock = Callable[[], float]
"""Seconds from any moment on."""


@dataclass(frozen=True, slots=True)
class FleetSearchResult:
    """The plan found, all of its groups predicted, and a bound on better ones.

    Attributes:
        cost: Cost of the plan, as of `Problem.cost`.
        bound: Lower bound of plans that run at most `MOST_TOGETHER` jobs at once on a GPU; None:
            not known.
        complete: Whether every group was looked at; then `bound` is of plans whose groups are
            time-sliced or under MPS without limits.
        groups: Number of groups looked at.
        predicted: Number of groups predicted.
        seconds: Seconds that the search took.
        in_time: Whether the search ended before its time was up.
    """

    plan: tuple[PlacedGroup, ...]
    cost: float
    bound: float | None
    complete: bool
    groups: int
    predicted: int
    seconds: float
    in_time: bool

    @property
    def gap(self) -> float | None:
        """Share of the cost that a better plan might save, 0..1; None: not known."""
        if self.bound is None:
            return None
        return max(0.0, 1 - self.bound / self.cost) if self.cost > 0 else 0.0


class FleetSolver:
    """Improves a plan step by step while there is time.

    Raises:
        NothingFits: A job fits on no GPU, not even alone.
    """

    def __init__(
        self, kinds: Kinds, problem: Problem, question: Question, limit_s: float,
        clock: Clock = monotonic,
    ) -> None:  # fmt: skip
        self._kinds, self._problem = kinds, problem
        self._clock, self._began_s, self._limit_s = clock, clock(), limit_s
        self._pool = GroupPool(kinds, problem, question, self._in_time)
        self._incumbent = Incumbent(problem, self._one_by_one())
        self._improver = Improver(self._pool, problem, self._incumbent)
        self._known_bound: float | None = None

    def best(self) -> FleetSearchResult:
        """The best plan found."""
        ended = all(self._in_time() for _ in self._steps())
        problem = self._problem
        plan = soonest_first(self._incumbent.plan, problem, self._known())
        cost = problem.cost(plan)
        least = problem.objective.least_cost(problem, problem.gpus * MOST_TOGETHER)
        bounds = [each for each in (self._known_bound, least) if each is not None]
        return FleetSearchResult(
            plan=plan, cost=cost, bound=min(cost, max(bounds)) if bounds else None,
            complete=self._known_bound is not None, groups=self._pool.member_sets,
            predicted=self._pool.predicted, seconds=self._clock() - self._began_s, in_time=ended,
        )  # fmt: skip

    def _in_time(self) -> bool:
        return self._left_s() > 0

    def _left_s(self) -> float:
        return self._began_s + self._limit_s - self._clock()

    def _one_by_one(self) -> tuple[PlacedGroup, ...]:
        """A group of each job alone."""
        groups = []
        for kind, job in enumerate(self._kinds.jobs):
            group = self._pool.alone(kind)
            if group is None:
                raise NothingFits(
                    f"{job.name} does not fit on a GPU even alone. Use a smaller batch, or a GPU "
                    f"with more memory."
                )
            groups += [group] * self._problem.counts[kind]
        return arranged(groups, self._problem)

    def _steps(self) -> Iterator[None]:
        """The steps of the search in order; the time is checked between them."""
        yield
        first, others = self._greedy_plans()
        for member_sets in first:
            self._improver.offer(member_sets)
            yield
        yield from self._improved()
        if not (yield from self._share_better()):
            return
        for member_sets in others:
            most = self._problem.cost(self._incumbent.plan) * _TOO_COSTLY
            if self._estimated_cost(member_sets) <= most:
                self._improver.offer(member_sets)
                yield
        yield from self._improved()
        if self._looked_at_all():
            yield
            yield from self._share_better(self._most_promising())
        self._pack()
        yield
        yield from self._share_better()

    def _greedy_plans(self) -> tuple[list[list[Members]], list[list[Members]]]:
        """Greedy plans: those to predict at once, and those to predict later.

        Where groups can be estimated, the plan that is estimated best comes first; else all come
        first.
        """
        found = list(greedy_groups(self._kinds, self._problem, self._pool.may))
        if not self._pool.has_estimates:
            return found, []
        found.sort(key=self._estimated_cost)
        return found[:1], found[1:]

    def _estimated_cost(self, member_sets: Sequence[Members]) -> float:
        groups = self._pool.estimated(member_sets)
        return self._problem.cost(roughly_arranged(groups, self._problem))

    def _improved(self) -> Iterator[None]:
        """Alternate small changes and recombination until neither has helped for long."""
        stale = number = 0
        while stale < _STALE:
            gained, number = self._improver.round(), number + 1
            yield
            if number % _RECOMBINED == 0:
                gained = self._recombined() or gained
                yield
            stale = 0 if gained else stale + 1

    def _recombined(self) -> bool:
        """Offer a cover of light predicted groups; whether it improves the plan."""
        plans = quick_plans(self._known(), self._problem, self._left_s())
        return any([self._incumbent.offer(plan) for plan in plans])

    def _pack(self) -> None:
        """Offer the best plan of all predicted groups, order and time included."""
        groups = self._known()
        self._incumbent.offer(
            packed(groups, self._problem, self._left_s(), self._incumbent.plan).plan
        )

    def _known(self) -> list[FleetGroup]:
        groups = [*self._pool.groups, *(each.group for each in self._incumbent.plan)]
        return list({id(each): each for each in groups}.values())

    def _looked_at_all(self) -> bool:
        """Predict every group where there are few, so that a bound on all plans is known."""
        if self._pool.every_member_set(_EVERY_MEMBER_SET) is None:
            return False
        groups = self._pool.groups
        found = packed(groups, self._problem, self._left_s(), self._incumbent.plan)
        self._incumbent.offer(found.plan)
        self._known_bound = found.bound
        if not found.in_time and self._in_time():
            self._known_bound = max(found.bound, bound(groups, self._problem, self._left_s()))
        return True

    def _most_promising(self) -> list[Members]:
        """The sets of jobs that save most by sharing a GPU, compared with each job alone."""

        def kept(group: FleetGroup) -> float:
            alone = [self._pool.best((kind,)) for kind in group.members]
            return self._problem.weight(group) / sum(map(self._problem.weight, filter(None, alone)))

        shared = [each for each in self._pool.groups if len(each.members) > 1]
        ordered = dict.fromkeys(each.members for each in sorted(shared, key=kept))
        return list(ordered)[:_SHARED_BETTER]

    def _share_better(self, asked: Sequence[Members] | None = None) -> Generator[None, None, bool]:
        """Solve the groups `asked` for, else those of the plan, longest first.

        The one-GPU solver may find better ways to share within a group.

        Returns:
            Whether there was time for all; if not, nothing else is tried, or a little more time
            might find less.
        """
        longest_s = self._limit_s * _THOROUGH
        for members in _longest_first(self._incumbent.plan) if asked is None else asked:
            began_s = self._clock()
            if self._left_s() <= longest_s:
                return False
            if better := self._pool.thorough.group(members):
                self._pool.offer(better)
                groups = [each.group for each in self._incumbent.plan]
                self._incumbent.offer_groups([
                    better if each.members == members else each for each in groups
                ])  # fmt: skip
            longest_s = max(longest_s, self._clock() - began_s)
            yield
        return True


def _longest_first(plan: Sequence[PlacedGroup]) -> list[Members]:
    """The groups of `plan` in which jobs share a GPU, longest first."""
    runs_s = {each.group.members: each.group.runs_s for each in plan}
    shared = [members for members in runs_s if len(members) > 1]
    return sorted(shared, key=lambda members: -runs_s[members])
