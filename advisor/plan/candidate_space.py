"""Plans for some jobs on one GPU, in the order of cost if partitions are independent."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import count, islice
from math import isfinite, prod
from typing import NamedTuple

import numpy as np

from advisor.errors import counted
from advisor.plan.job_sets import (
    WHOLE_GPU,
    Kinds,
    Members,
    Option,
    Outcomes,
    PartitionKind,
    Sets,
    estimated_answers,
    options,
    outcomes,
    predicted_answers,
)
from advisor.plan.objectives import OBJECTIVES, PhaseGroup, Turn, costs_of_ways
from advisor.plan.partitions import (
    Assignment,
    AssignmentSearch,
    Bounds,
    Choice,
    Cut,
    Price,
    SetScores,
    cut_into,
    cuts,
)
from advisor.plan.rules import broken_rule
from advisor.plan.values import LeftOut, Question
from advisor.prediction.power import idle_power_w
from advisor.prediction.prediction import all_known
from advisor.prediction.trace import Floats
from advisor.sharing import (
    Group,
    Hybrid,
    Instance,
    Mig,
    Mps,
    Naive,
    Part,
    Place,
    Queue,
    Serial,
    Sharing,
)
from advisor.sharing.groups import in_turn, instance_sets, simplest
from advisor.simulation.events import (
    MIG_MODE_S,
    Bools,
    Indices,
    PlacedJobs,
    from_the_start,
    repartition_s,
)
from advisor.workload.job import Job

Proposal = tuple[float, Sharing]
"""A plan for all jobs, after its estimated cost if MIG instances do not slow each other."""


class Space:
    """The outcome of every set of `jobs` in every partition of a GPU, each computed once.

    Attributes:
        exact: Whether costs are exact as far as partitions do not slow each other: without a
            surrogate model, the predictor itself predicts every set.
        awake_w: Power of a GPU that is awake, before what its jobs add.
    """

    def __init__(self, jobs: Sequence[Job], question: Question) -> None:
        self.sets, self.question = Sets(jobs), question
        self.objective = OBJECTIVES[question.objective]
        profiles = [job.profile for job in self.sets.jobs]
        self._estimates = surrogate = question.predictor.surrogate(profiles)
        self.exact = surrogate is None
        if surrogate is None:
            self.awake_w = idle_power_w(profiles) or 0.0
        else:
            self.awake_w = surrogate.model.of(surrogate.gpu).power.awake_w
        self._outcomes: dict[Option, Outcomes] = {}
        self._scores: dict[Option, SetScores] = {}
        self._hybrids: dict[int, AssignmentSearch] = {}

    def jobs_in(self, chosen: int) -> int:
        """Return the number of jobs in the set `chosen`."""
        return int(self.sets.sizes[chosen])

    def outcome(self, option: Option) -> Outcomes:
        """Return the outcome of every set of jobs under `option`."""
        if option not in self._outcomes:
            partitions = [WHOLE_GPU] if option.partition == WHOLE_GPU else self._partitions
            together = [each for partition in partitions for each in options(partition)]
            if self._estimates is None:
                answers = [predicted_answers(each, self.sets, self.question, self.awake_w)
                           for each in together]  # fmt: skip
            else:
                margin = self.question.conditions.memory_margin
                answers = estimated_answers(together, self.sets, self._estimates, margin)
            for each, own in zip(together, answers, strict=True):
                self._outcomes[each] = outcomes(each, own, self.sets, self.question)
        return self._outcomes[option]

    def scores(self, option: Option) -> SetScores:
        """Return the scores of every set under `option`."""
        if option not in self._scores:
            outcome = self.outcome(option)
            numbers = self.objective.scores(outcome)
            forbidden = ~outcome.allowed
            if option.partition == WHOLE_GPU and self.question.conditions.instances is not None:
                forbidden = np.ones_like(forbidden)
            self._scores[option] = SetScores(*numbers).without(forbidden)
        return self._scores[option]

    def price(self, jobs: int) -> Price:
        """Return what turns scores into cost and tie-breaker, where `jobs` jobs run at once."""
        return lambda most, total: self.objective.price(most, total, self.awake_w, jobs)

    def cost(self, most: float | Floats, total: float | Floats, jobs: int | Indices) -> Floats:
        """Compute the cost of groups of so many jobs; for means over jobs, that times the jobs."""
        price, _ = self.objective.price(np.asarray(most), np.asarray(total), self.awake_w, jobs)
        return np.asarray(price * jobs) if self.objective.per_job else price

    def on_instances(self) -> Iterator[Proposal]:
        """Propose all plans on MIG instances, cheapest first."""
        everything = self.sets.everything
        plans = self.hybrids(self.jobs_in(everything)).in_order(everything)
        return ((each.cost, self.sharing_of([each])) for each in plans)

    def one_job_each(self) -> Iterator[Proposal]:
        """Propose all plans in which each job has its own MIG instance, cheapest first."""
        everything, crowded = self.sets.everything, self.sets.sizes > 1
        search = self.hybrids(self.jobs_in(everything))
        whole = [cut for cut in search.bounds.cuts if not any(cut.parts)]
        scores = {
            partition: [(option, own.without(crowded)) for option, own in ways[:1]]
            for partition, ways in search.bounds.scores.items()
        }
        bounds = Bounds(self.sets, whole, scores)
        plans = AssignmentSearch(bounds, search.price, search.allowed).in_order(everything)
        return ((each.cost, self.sharing_of([each])) for each in plans)

    def sharing_of(
        self, placements: Sequence[Choice | Assignment], members: Members | None = None
    ) -> Sharing:
        """Return the sharing of groups in turn; of equal jobs, the first is in the first group.

        Jobs are numbered among all, or among `members`, the kinds of the jobs that there are.
        """
        free = [list(own) for own in self.sets.positions]
        if members is not None:
            free = [[at for at, own in enumerate(members) if own == kind]
                    for kind in range(len(free))]  # fmt: skip

        def numbers(chosen: int) -> tuple[int, ...]:
            return tuple(sorted(free[kind].pop(0) + 1 for kind in self.sets.tenants[chosen]))

        groups: list[Group | Hybrid] = []
        for placement in placements:
            if isinstance(placement, Assignment):
                groups.append(hybrid(placement, numbers))
            else:
                own = numbers(placement.chosen)
                sharing = placement.option.of(len(own)) if len(own) > 1 else Serial()
                groups.append(Group(own, sharing))
        first, *others = groups
        return simplest(first) if isinstance(first, Hybrid) and not others else in_turn(groups)

    def hybrids(self, jobs: int) -> AssignmentSearch:
        """Return the search for plans on MIG instances, where `jobs` jobs run at once."""
        if jobs not in self._hybrids:
            self._hybrids[jobs] = AssignmentSearch(self._bounds, self.price(jobs), self._allowed)
        return self._hybrids[jobs]

    @cached_property
    def _bounds(self) -> Bounds:
        scores: dict[PartitionKind, list[tuple[Option, SetScores]]] = {}
        for partition in self._partitions:
            scores[partition] = []
            for option in options(partition):
                own = self.scores(option)  # a job alone in a partition is no MPS client
                own = own.without(self.sets.sizes == 1) if option.sharing.under_mps else own
                scores[partition].append((option, own))
        return Bounds(self.sets, self._cuts, scores)

    @cached_property
    def _cuts(self) -> tuple[Cut, ...]:
        gpu, conditions = self.question.gpu, self.question.conditions
        if conditions.instances is not None:
            return (cut_into(gpu, conditions.instances),)
        return cuts(gpu) if gpu.mig and conditions.root else ()

    @cached_property
    def _partitions(self) -> list[PartitionKind]:
        """The kinds of partitions of all cuts, each once."""
        return list(dict.fromkeys(partition for cut in self._cuts for partition in cut.partitions))

    @cached_property
    def _allowed(self) -> dict[str, Bools]:
        """The sets, by MIG profile, that fit in its memory and keep isolated jobs alone."""
        allowed = {}
        for profile in {each.profile for cut in self._cuts for each in cut.instances}:
            ways = [self.outcome(option).allowed for option in options(PartitionKind(profile))]
            allowed[profile] = np.logical_or.reduce(ways)
        return allowed


def hybrid(assignment: Assignment, jobs: Callable[[int], tuple[int, ...]]) -> Hybrid:
    """Return the sharing of `assignment`; `jobs` maps each of its sets in turn to job numbers."""
    cut = assignment.cut
    parts: dict[int, list[Part]] = {}
    for at, choice in zip(cut.instance_at, assignment.partitions, strict=True):
        if choice.chosen:
            own = jobs(choice.chosen)
            part = Part(own, choice.option.of(len(own)), choice.option.partition.slices)
            parts.setdefault(at, []).append(part)
    return Hybrid(tuple(Place(cut.instances[at], tuple(own)) for at, own in parts.items()))


# Most labels kept for each set of jobs, of those that no other beats in every respect.
_MOST_KEPT = 12


def in_phases(space: Space) -> Iterator[Proposal]:
    """Propose plans that run all jobs in two groups or more one after another, the best first.

    This is a dynamic program. Its state is the set of jobs that are done; its labels are sequences
    of groups that end there, kept apart by how they leave the GPU set up. A label that another
    beats in every respect is dropped. A group on MIG instances uses the way that is best for the
    group alone, so the search may lose the seconds that a cheaper change of instances would save.
    """
    jobs, everything = space.jobs_in(space.sets.everything), space.sets.everything
    labels = labels_of_sets(space, jobs - 1).get(everything, [])
    labels.sort(key=lambda each: space.objective.of_phases(each.cost, each.worst, jobs))
    groups_before = set[object]()
    for cost, worst, groups in labels:
        mark = frozenset((each.chosen, each.placement) for each in groups)
        if space.objective.order_matters or mark not in groups_before:
            groups_before.add(mark)
            sharing = space.sharing_of([group.placement for group in groups])
            if sharing != Serial():
                yield space.objective.of_phases(cost, worst, jobs), sharing


class Label(NamedTuple):
    """A sequence of groups in the order in which they run, with the two sums of the objective."""

    cost: float
    worst: float
    groups: tuple[PhaseGroup, ...]


_Labels = dict[tuple[int, bool], list[Label]]
"""Labels of one set: by the set-up that they leave, and by whether the GPU was ever cut up."""


def labels_of_sets(space: Space, most: int) -> dict[int, list[Label]]:
    """Return the best sequences of groups of each set of jobs, of at most `most` jobs each."""
    table, everything = _GroupTable(space), space.sets.everything
    groups = {chosen: list(table.groups(chosen)) for chosen in range(1, everything + 1)
              if space.jobs_in(chosen) <= most}  # fmt: skip
    reached: dict[int, _Labels] = {0: {(_NOT_SET_UP, False): [Label(0.0, 0.0, ())]}}
    for done in sorted(range(everything), key=space.jobs_in):
        if done in reached:
            inside = space.sets.inside(everything - done).tolist()
            coming = [group for chosen in inside for group in groups.get(chosen, ())]
            _append(table, done, coming, reached)
    return {
        chosen: [each for labels in of_set.values() for each in labels]
        for chosen, of_set in reached.items() if chosen
    }  # fmt: skip


def _append(
    table: "_GroupTable", done: int, coming: Sequence[PhaseGroup], reached: dict[int, _Labels]
) -> None:
    """Append each group of `coming`, of jobs that are left, to each label that ends in `done`."""
    space, after = table.space, table.space.objective.after
    left = space.jobs_in(space.sets.everything) - space.jobs_in(done)
    setups = {group.setup for group in coming}
    for (setup, was_cut), labels in reached[done].items():
        turns = {new: Turn(table.pause_s(setup, new), left, table.idle_w) for new in setups}
        for group in coming:
            key = group.setup, was_cut or group.on_instances
            kept = reached.setdefault(done + group.chosen, {}).setdefault(key, [])
            for label in labels:
                cost, worst = after((label.cost, label.worst), group, turns[group.setup])
                _keep(kept, cost, worst, label, group)


def _keep(kept: list[Label], cost: float, worst: float, before: Label, group: PhaseGroup) -> None:
    """Keep `before` followed by `group` unless another label beats it; drop those that it beats."""
    for label in kept:  # no generator: most are looked at once, and dropped
        if label.cost <= cost and label.worst <= worst:
            return
    kept[:] = [each for each in kept if each.cost < cost or each.worst < worst]
    kept.append(Label(cost, worst, (*before.groups, group)))
    if len(kept) > _MOST_KEPT:
        kept.sort(key=lambda each: each.cost * max(each.worst, 1e-9))
        kept.pop()


# The set-up before the first group: this one finds the GPU as it needs it.
_NOT_SET_UP = -1


class _GroupTable:
    """The groups that the jobs of a set can form, and the pauses between two groups."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.idle_w = idle_power_w([job.profile for job in space.sets.jobs]) or 0.0
        self._setups: list[Group | Hybrid] = []
        self._numbers: dict[object, int] = {}
        self._costs: dict[Option, tuple[list[float], list[float]]] = {}
        self._pauses_s: dict[tuple[int, int], float] = {}

    def groups(self, chosen: int) -> Iterator[PhaseGroup]:
        """Ways for the set `chosen` to share the GPU, without those beaten in every respect."""
        space, jobs = self.space, self.space.jobs_in(chosen)
        ways: dict[bool, list[PhaseGroup]] = {}
        for option in options(WHOLE_GPU)[: None if jobs > 1 else 1]:
            most, cost = (own[chosen] for own in self._on_whole_gpu(option))
            same = ways.setdefault(option.sharing == Naive(), [])
            quick = not space.objective.uses_deadlines
            if not isfinite(cost) or (
                quick and any(each.time_s <= most and each.cost <= cost for each in same)
            ):
                continue
            group = self._group(chosen, Choice(option, chosen), most, cost)
            if quick or not any(each.beats(group) for each in same):
                same[:] = [each for each in same if not group.beats(each)]
                same.append(group)
        kept = [group for same in ways.values() for group in same]
        yield from kept
        # The best way on MIG instances, if its bound is below every way on the whole GPU, where
        # MIG mode is entered and left for this group alone.
        turn, least = Turn(2 * MIG_MODE_S, jobs, self.idle_w), np.inf
        for group in kept:
            cost, worst = space.objective.after((0.0, 0.0), group, turn)
            least = min(least, space.objective.of_phases(cost, worst, jobs))
        hybrids = space.hybrids(jobs)
        if hybrids.least(chosen) < least:
            for assignment in islice(hybrids.in_order(chosen), 1):
                parts = [each for each in assignment.partitions if each.chosen]
                scores = [(space.scores(each.option), each.chosen) for each in parts]
                most = max(float(own.most[part]) for own, part in scores)
                total = sum(float(own.total[part]) for own, part in scores)
                yield self._group(chosen, assignment, most, float(space.cost(most, total, jobs)))

    def _on_whole_gpu(self, option: Option) -> tuple[list[float], list[float]]:
        """The largest score of each set under `option`, and its cost."""
        if option not in self._costs:
            own, sizes = self.space.scores(option), np.maximum(self.space.sets.sizes, 1)
            cost = self.space.cost(own.most, own.total, sizes)
            self._costs[option] = own.most.tolist(), cost.tolist()
        return self._costs[option]

    def pause_s(self, before: int, after: int) -> float:
        """Seconds between a group of the set-up `before` and one of the set-up `after`."""
        if before == _NOT_SET_UP:
            return 0.0
        if (before, after) not in self._pauses_s:
            pause_s = repartition_s(self._setups[before], self._setups[after])
            self._pauses_s[before, after] = pause_s
        return self._pauses_s[before, after]

    def _group(
        self, chosen: int, placement: Choice | Assignment, most: float, cost: float
    ) -> PhaseGroup:
        placed = [placement] if isinstance(placement, Choice) else placement.partitions
        ends = self.space.objective.uses_deadlines
        time_s, due = self._timed([each for each in placed if each.chosen]) if ends else (most, ())
        return PhaseGroup(
            chosen=chosen, placement=placement, setup=self._setup(placement),
            jobs=self.space.jobs_in(chosen), time_s=time_s, cost=cost, due=due,
        )  # fmt: skip

    def _timed(self, parts: Sequence[Choice]) -> tuple[float, tuple[tuple[float, float], ...]]:
        """Seconds until the last job ends, and `PhaseGroup.due`."""
        sets, last_s = self.space.sets, 0.0
        due: dict[int, tuple[float, float]] = {}
        for part in parts:
            ends_s = self.space.outcome(part.option).ends_s[part.chosen]
            last_s = max(last_s, float(ends_s.max()))
            for kind in sets.tenants[part.chosen]:
                deadline_s = sets.jobs[kind].deadline_s
                if deadline_s is not None:
                    before_s, _ = due.get(kind, (0.0, 0.0))
                    due[kind] = max(before_s, float(ends_s[kind])), deadline_s
        return last_s, tuple(due[kind] for kind in sorted(due))

    def _setup(self, placement: Choice | Assignment) -> int:
        """A key of the instances and MPS daemons that a group needs."""
        under_mps = isinstance(placement, Choice) and placement.option.sharing.under_mps
        if isinstance(placement, Choice) and under_mps in self._numbers:
            return self._numbers[under_mps]
        needs: Group | Hybrid
        stays: object = under_mps
        if isinstance(placement, Choice):
            needs = Group((1,), Mps() if under_mps else Naive())
        else:
            numbers, sizes = count(1), self.space.sets.sizes
            needs = hybrid(placement, lambda chosen: tuple(islice(numbers, sizes[chosen])))
            stays = frozenset(
                (memory[0].instance, tuple(part.sharing.under_mps for part in memory))
                for memory in needs.memories
            )
        number = self._numbers.setdefault(stays, len(self._setups))
        if number == len(self._setups):
            self._setups.append(needs)
        return number


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
