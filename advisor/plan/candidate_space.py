"""Plans for some jobs on one GPU, in the order of cost if partitions are independent."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
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
from advisor.plan.objectives import OBJECTIVES, PhaseGroup, costs_of_ways
from advisor.plan.partitions import (
    Assignment,
    AssignmentSearch,
    Choice,
    Cut,
    SetScores,
    cut_into,
    cuts,
)
from advisor.plan.progress import step
from advisor.plan.rules import broken_rule
from advisor.plan.values import LeftOut, Question
from advisor.prediction.power import idle_power_w
from advisor.prediction.trace import Floats
from advisor.sharing import (
    Group,
    Hybrid,
    Instance,
    Mig,
    Mps,
    Part,
    Place,
    Queue,
    Serial,
    Sharing,
)
from advisor.sharing.groups import in_turn, instance_sets, simplest
from advisor.simulation.events import PlacedJobs
from advisor.simulation.turns import MIG_MODE_S, from_the_start, repartition_s, task_of
from advisor.workload.job import Job


class Space:
    """The outcome of every set of `jobs` in every partition of a GPU, each computed once.

    Without a surrogate model, costs are `exact` as far as partitions do not slow each other.
    `awake_w` is the power of a GPU that is awake, before what its jobs add.
    """

    def __init__(self, jobs: Sequence[Job], question: Question) -> None:
        self.sets, self.question = Sets(jobs), question
        self.objective = OBJECTIVES[question.objective]
        profiles = [job.profile for job in self.sets.jobs]
        self._estimates = surrogate = question.predictor.surrogate(profiles)
        self.exact = surrogate is None
        self.by_replays = surrogate is not None and surrogate.replays
        self.idle_w = idle_power_w(profiles) or 0.0
        self.awake_w = (
            self.idle_w if surrogate is None else surrogate.model.of(surrogate.gpu).power.awake_w
        )
        self._outcomes: dict[Option, Outcomes] = {}
        self._scores: dict[Option, SetScores] = {}

    def jobs_in(self, chosen: int) -> int:
        """Return the number of jobs in the set `chosen`."""
        return int(self.sets.sizes[chosen])

    def outcome(self, option: Option) -> Outcomes:
        """Return the outcome of every set of jobs under `option`."""
        if option not in self._outcomes:
            partitions = [WHOLE_GPU] if option.partition == WHOLE_GPU else self._partitions
            together = [each for partition in partitions for each in options(partition)]
            if self._estimates is None:
                answers = [
                    predicted_answers(each, self.sets, self.question, self.awake_w)
                    for each in together
                ]
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
            forbidden = ~outcome.allowed
            if option.partition == WHOLE_GPU and self.question.conditions.instances is not None:
                forbidden = np.ones_like(forbidden)
            self._scores[option] = SetScores(*self.objective.scores(outcome)).without(forbidden)
        return self._scores[option]

    def price(self, most: Floats, total: Floats) -> tuple[Floats, Floats]:
        """Turn scores into the cost of jobs that run at once, and a tie-breaker."""
        return self.objective.price(most, total, self.awake_w)

    @cached_property
    def instances(self) -> AssignmentSearch:
        """The search for the plans on MIG instances that the conditions allow."""
        plain = self.question.conditions.mig == "plain"
        return self._one_each if plain else self._search_of(self._cuts)

    @cached_property
    def _one_each(self) -> AssignmentSearch:
        """The search for plans on MIG instances with a job on each."""
        return self._search_of([cut for cut in self._cuts if not any(cut.parts)], one_each=True)

    def _search_of(self, cuts: Sequence[Cut], *, one_each: bool = False) -> AssignmentSearch:
        scores: dict[PartitionKind, list[tuple[Option, SetScores]]] = {}
        for partition in dict.fromkeys(kind for cut in cuts for kind in cut.partitions):
            scores[partition] = []
            for option in options(partition)[: 1 if one_each else None]:
                own = self.scores(option)  # a job alone in a partition is no MPS client
                own = own.without(self.sets.sizes == 1) if option.sharing.under_mps else own
                own = own.without(self.sets.sizes > 1) if one_each else own
                scores[partition].append((option, own))
        allowed = {}
        for profile in {each.profile for cut in cuts for each in cut.instances}:
            ways = [self.outcome(option).allowed for option in options(PartitionKind(profile))]
            allowed[profile] = np.logical_or.reduce(ways)
        return AssignmentSearch(self.sets, cuts, scores, self.price, allowed)

    def on_instances(self, *, one_each: bool = False) -> Iterator[Sharing]:
        """Propose all plans on MIG instances, cheapest first; `one_each`: each job on its own."""
        search = self._one_each if one_each else self.instances
        return (self.sharing_of([each]) for each in search.in_order(self.sets.everything))

    def sharing_of(
        self, placements: Sequence[Choice | Assignment], members: Members | None = None
    ) -> Sharing:
        """Return the sharing of groups in turn; of equal jobs, the first is in the first group.

        Jobs are numbered among all, or among `members`, the kinds of the jobs that there are.
        """
        free = [list(own) for own in self.sets.positions]
        if members is not None:
            free = [
                [at for at, own in enumerate(members) if own == kind] for kind in range(len(free))
            ]

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

    @cached_property
    def _cuts(self) -> tuple[Cut, ...]:
        gpu, conditions = self.question.gpu, self.question.conditions
        if conditions.instances is not None:
            return (cut_into(gpu, conditions.instances),)
        every = cuts(gpu) if gpu.mig and conditions.root else ()
        return tuple(each for each in every if conditions.mig == "any" or not any(each.parts))

    @cached_property
    def _partitions(self) -> list[PartitionKind]:
        """The kinds of partitions of all cuts, each once."""
        return list(dict.fromkeys(partition for cut in self._cuts for partition in cut.partitions))


def hybrid(assignment: Assignment, jobs: Callable[[int], tuple[int, ...]]) -> Hybrid:
    """Return the sharing of `assignment`; `jobs` maps each of its sets in turn to job numbers."""
    cut = assignment.cut
    parts: dict[int, list[Part]] = {}
    for at, choice in zip(cut.instance_at, assignment.placed, strict=True):
        if choice.chosen:
            own = jobs(choice.chosen)
            part = Part(own, choice.option.of(len(own)), choice.option.partition.slices)
            parts.setdefault(at, []).append(part)
    return Hybrid(tuple(Place(cut.instances[at], tuple(own)) for at, own in parts.items()))


# Most labels kept for each set of jobs, of those that no other beats in every respect.
_MOST_KEPT = 12


def in_phases(space: Space) -> Iterator[Sharing]:
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
    for _, _, groups in labels:
        mark = frozenset((each.chosen, each.placement) for each in groups)
        if space.objective.order_matters or mark not in groups_before:
            groups_before.add(mark)
            sharing = space.sharing_of([group.placement for group in groups])
            if sharing != Serial():
                yield sharing


class Label(NamedTuple):
    """A sequence of groups in the order in which they run, with the two sums of the objective."""

    cost: float
    worst: float
    groups: tuple[PhaseGroup, ...]


_Labels = dict[tuple[object, bool], list[Label]]
"""Labels of one set: by the set-up that they leave, and by whether the GPU was ever cut up."""


def labels_of_sets(space: Space, most: int) -> dict[int, list[Label]]:
    """Return the best sequences of groups of each set of jobs, of at most `most` jobs each."""
    everything, after = space.sets.everything, space.objective.after
    needs: dict[object, Group | Hybrid] = {}
    groups = {
        chosen: _groups(space, chosen, needs)
        for chosen in range(1, everything + 1)
        if space.jobs_in(chosen) <= most
    }

    @cache
    def pause_s(before: object, new: object) -> float:
        return repartition_s(needs[before], needs[new]) if before in needs else 0.0

    reached: dict[int, _Labels] = {0: {(None, False): [Label(0.0, 0.0, ())]}}
    for done in sorted(range(everything), key=space.jobs_in):
        left = space.jobs_in(everything) - space.jobs_in(done)
        step()
        inside = space.sets.inside(everything - done).tolist() if done in reached else ()
        coming = [group for chosen in inside for group in groups.get(chosen, ())]
        for (setup, was_cut), labels in reached.get(done, {}).items():
            for group in coming:
                key = group.setup, was_cut or isinstance(group.placement, Assignment)
                kept = reached.setdefault(done + group.chosen, {}).setdefault(key, [])
                pause = pause_s(setup, group.setup)
                for label in labels:
                    sums = after((label.cost, label.worst), group, pause, left, space.idle_w)
                    _keep(kept, *sums, label, group)
    return {
        chosen: [each for labels in of_set.values() for each in labels]
        for chosen, of_set in reached.items()
        if chosen
    }


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


def _groups(space: Space, chosen: int, needs: dict[object, Group | Hybrid]) -> list[PhaseGroup]:
    """Ways for the set `chosen` to share the GPU that none beats; notes each set-up in `needs`."""
    jobs, objective = space.jobs_in(chosen), space.objective
    kept: list[PhaseGroup] = []
    for option in options(WHOLE_GPU)[: None if jobs > 1 else 1]:
        under_mps = option.sharing.under_mps
        needs[under_mps] = Group((1,), option.sharing)
        group = _group(space, [Choice(option, chosen)], Choice(option, chosen), under_mps)
        if isfinite(group.cost) and not any(
            each.setup == under_mps and each.beats(group) for each in kept
        ):
            kept = [each for each in kept if each.setup != under_mps or not group.beats(each)]
            kept.append(group)
    # The best way on MIG instances, if its bound is below every way on the whole GPU, where MIG
    # mode is entered and left for this group alone.
    sums = [
        objective.after((0.0, 0.0), group, 2 * MIG_MODE_S, jobs, space.idle_w) for group in kept
    ]
    least = min((objective.of_phases(*each, 1) for each in sums), default=np.inf)
    on_instances = space.instances
    if objective.of_group(on_instances.least(chosen), jobs) < least and (
        assignment := next(on_instances.in_order(chosen), None)
    ):
        numbers, sizes = count(1), space.sets.sizes
        own = hybrid(assignment, lambda each: tuple(islice(numbers, sizes[each])))
        setup = frozenset(
            (memory[0].instance, tuple(part.sharing.under_mps for part in memory))
            for memory in own.memories
        )
        needs.setdefault(setup, own)
        parts = [each for each in assignment.placed if each.chosen]
        kept.append(_group(space, parts, assignment, setup))
    return kept


def _group(
    space: Space, parts: Sequence[Choice], placement: Choice | Assignment, setup: object
) -> PhaseGroup:
    """The group of the jobs of all `parts`, which is how they use the GPU at once."""
    scores = [(space.scores(each.option), each.chosen) for each in parts]
    most = max(own.most[at] for own, at in scores)
    chosen = sum(each.chosen for each in parts)
    price, _ = space.price(most, sum(own.total[at] for own, at in scores))
    jobs, due = space.jobs_in(chosen), dict[int, tuple[float, float]]()
    if space.objective.uses_deadlines:
        ends = [(each.chosen, space.outcome(each.option).ends_s[each.chosen]) for each in parts]
        most = max(own.max() for _, own in ends)
        for at, own in ends:
            for kind in space.sets.tenants[at]:
                if (deadline_s := space.sets.jobs[kind].deadline_s) is not None:
                    before_s, _ = due.get(kind, (0.0, 0.0))
                    due[kind] = max(before_s, float(own[kind])), deadline_s
    return PhaseGroup(
        chosen=chosen,
        placement=placement,
        setup=setup,
        jobs=jobs,
        time_s=float(most),
        cost=space.objective.of_group(float(price), jobs),
        due=tuple(due[kind] for kind in sorted(due)),
    )


# The most sets of jobs that are searched: those of 8 jobs.
MOST_SETS = 256
# How many plans of each kind are forecast: how instances slow each other shows only there. Twice as
# many without surrogate model, where forecasts are quick.
_FORECAST = 3


def proposed(
    jobs: Sequence[Job], question: Question
) -> tuple[list[Sharing], list[LeftOut], bool | None]:
    """Find the best few plans on MIG instances and in phases; and what is left out, and why.

    The third value is whether the predictor itself predicted every set; None: none was looked at.
    """
    if len(jobs) == 1:
        return [], [], None
    if prod(1 + copies for copies in Kinds(jobs).copies) > MOST_SETS:
        why = f"{len(jobs)} jobs make too many sets to look at each"
        return [], [LeftOut("MIG, and phases", why)], None
    space = Space(jobs, question)
    apart = list(islice(space.on_instances(one_each=True), 2))
    fixed = question.conditions.instances is not None
    plans, phased = [*([] if fixed else _queues(jobs, space)[:1]), *apart], list(in_phases(space))
    for way in (space.on_instances(), phased):
        # All jobs in one partition would just have a smaller GPU.
        cut = (
            each
            for each in way
            if fixed
            or not instance_sets(each)
            or any(len(own.partitions) > 1 for own in instance_sets(each))
        )
        plans += islice(cut, _FORECAST * (1 if space.by_replays else 2))
    # Groups on instances seem cheaper than they are, because they slow each other.
    plans += islice((each for each in phased if not each.instances), 1)
    return plans, [] if apart else [LeftOut("mig", _no_layout(jobs, question))], space.exact


# Jobs that a queue runs at once.
_AT_ONCE = (2, 3, 4)


def _queues(jobs: Sequence[Job], space: Space) -> list[Sharing]:
    """Return queues under MPS, best first by estimates; the longest jobs start first by default."""
    if len(jobs) <= _AT_ONCE[0] or any(job.work_steps is None for job in jobs):
        return []
    by = space.objective if space.objective.in_seconds else OBJECTIVES["makespan"]
    line = sorted(range(len(jobs)), key=lambda at: (by.turn(jobs[at]), -(jobs[at].alone_s or 0)))
    numbers = tuple(at + 1 for at in line)
    queues = [
        in_turn([Group(numbers, Queue(Mps(), most))]) for most in _AT_ONCE if most < len(jobs)
    ]
    kind = {at: kind for kind, places in enumerate(space.sets.positions) for at in places}
    slowdowns = space.outcome(Option(WHOLE_GPU, Mps())).slowdowns

    def pace(seats: PlacedJobs) -> list[float]:
        slowed = slowdowns[space.sets.number([kind[seat.job] for seat in seats])]
        return [1 / (jobs[each.job].alone_step_s * slowed[kind[each.job]]) for each in seats]

    tasks = [*map(task_of, jobs)]
    ends_s = [from_the_start(queue, tasks, pace).ends_s for queue in queues]
    order = np.argsort(costs_of_ways(by, jobs, np.array(ends_s), np.array(ends_s)), kind="stable")
    return [queues[at] for at in order]


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
