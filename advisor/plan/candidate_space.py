"""Plans for some jobs on one GPU, or several: the best of the tables of all sets of the jobs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from heapq import heapify, heappop, heappush
from itertools import combinations, islice
from math import isfinite, prod

import numpy as np

from advisor.errors import counted
from advisor.plan import step
from advisor.plan.job_sets import (
    WHOLE_GPU,
    Cut,
    Kinds,
    Members,
    Option,
    Outcomes,
    PartitionKind,
    Sets,
    allowed_cuts,
    deadlines_s,
    estimated_answers,
    options,
    outcomes,
    predicted_answers,
)
from advisor.plan.lines import Alone, lined
from advisor.plan.objectives import OBJECTIVES, Objective, Terms, costs_of_ways
from advisor.plan.rules import broken_rule
from advisor.plan.tables import (
    Batch,
    Batches,
    Beside,
    Either,
    Goal,
    InTurn,
    Nothing,
    OnGpu,
    Stage,
    Table,
)
from advisor.plan.values import LeftOut, Question
from advisor.prediction.power import idle_power_w
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
from advisor.sharing.groups import in_turn, relabelled, simplest
from advisor.simulation.turns import Bools, Indices, array_ends_s
from advisor.workload.job import Job

_Places = tuple[PartitionKind | tuple[PartitionKind, ...], ...]
"""Partitions, and instances that are divided into parts."""

# A place may be free for some jobs only after these shares of the time of all, one after another.
_WAITS = (0.25, 0.5)


class Space:
    """The tables of every set of jobs on a GPU and in its partitions.

    Without a surrogate model, costs are `exact` as far as partitions do not slow each other.
    `others_idle_w` is the power of the other GPUs of the question without jobs.
    """

    def __init__(self, sets: Sets, question: Question, others_idle_w: float = 0.0) -> None:
        self.sets, self.question = sets, question
        self.objective = OBJECTIVES[question.objective]
        profiles = [job.profile for job in sets.jobs]
        self._estimates = surrogate = question.predictor.surrogate(profiles)
        self.exact = surrogate is None
        self.by_replays = surrogate is not None and surrogate.replays
        self.idle_w = idle_power_w(profiles) or 0.0
        self._awake_w = (
            self.idle_w if surrogate is None else surrogate.model.of(surrogate.gpu).power.awake_w
        )
        due_s, watts = deadlines_s(sets.jobs), (self.idle_w, self.idle_w + others_idle_w)
        alone_s = sum(
            copies * (job.alone_s or 0.0)
            for job, copies in zip(sets.jobs, sets.copies, strict=True)
        )
        waits_s = (0.0, *(share * alone_s for share in _WAITS))
        self.goal = Goal(sets, self.objective, Terms(due_s, tuple(dict.fromkeys(watts)), waits_s))
        # The parts of a GPU are awake together: of what that takes, each counts half (a choice).
        self._in_parts = Goal(sets, self.objective, Terms(due_s, (self._awake_w / 2,)))
        self._outcomes: dict[Option, Outcomes] = {}
        self._batches: dict[tuple[PartitionKind, bool], Batches] = {}
        self._tables: dict[tuple[_Places, bool], Table] = {}

    def outcome(self, option: Option) -> Outcomes:
        """Return the outcome of every set of jobs under `option`."""
        if option not in self._outcomes:
            step()
            partitions = [WHOLE_GPU] if option.partition == WHOLE_GPU else self._partitions
            together = [each for partition in partitions for each in options(partition)]
            if self._estimates is None:
                answers = [
                    predicted_answers(each, self.sets, self.question, self._awake_w)
                    for each in together
                ]
            else:
                margin = self.question.conditions.memory_margin
                answers = estimated_answers(together, self.sets, self._estimates, margin)
            for each, own in zip(together, answers, strict=True):
                self._outcomes[each] = outcomes(each, own, self.sets, self.question)
        return self._outcomes[option]

    @cached_property
    def in_turn(self) -> InTurn:
        """Batches one after another, on the whole GPU or on MIG instances."""
        confined = self.question.conditions.instances is not None
        on_cuts = self.cut_tables(one_each=self.question.conditions.mig == "plain")
        if not on_cuts:
            return self.in_turn_on_whole
        return InTurn(Either([*([] if confined else [self._whole]), *on_cuts]))

    @cached_property
    def in_turn_on_whole(self) -> InTurn:
        """Batches one after another, on the whole GPU."""
        return InTurn(self._whole)

    @cached_property
    def _whole(self) -> OnGpu:
        return self._on_gpu(self._at_once(WHOLE_GPU, one_each=False))

    def cut_tables(self, *, one_each: bool) -> list[OnGpu]:
        """Return the table of each cut that the conditions allow; `one_each`: a job on each."""
        return [
            self._on_gpu(self._beside(cut.places, one_each=one_each), cut)
            for cut in self.cuts
            if not (one_each and any(cut.parts))
        ]

    def _on_gpu(self, table: Table, cut: Cut | None = None) -> OnGpu:
        awake_w = self._awake_w - self.idle_w if self.objective.saves_energy else 0.0
        return OnGpu(self.goal, table, cut, awake_w=awake_w)

    def _at_once(self, partition: PartitionKind, *, one_each: bool) -> Batches:
        """The table of batches in a partition."""
        if (partition, one_each) not in self._batches:
            sizes, own = self.sets.sizes, list[tuple[Option, Outcomes]]()
            for option in options(partition)[: 1 if one_each else None]:
                allowed = self.outcome(option).allowed & (sizes <= (1 if one_each else sizes))
                if option.sharing.under_mps:  # a job alone in a partition is no MPS client
                    allowed &= sizes != 1
                own.append((option, replace(self.outcome(option), allowed=allowed)))
            goal = self.goal if partition == WHOLE_GPU else self._in_parts
            self._batches[partition, one_each] = Batches(goal, own)
        return self._batches[partition, one_each]

    def _beside(self, places: _Places, *, one_each: bool) -> Table:
        """The table of all `places` at once; the parts of an instance share its memory."""
        if not places:
            return Nothing(self._in_parts)
        if (places, one_each) not in self._tables:
            first, *others = places
            if isinstance(first, PartitionKind):
                one: Table = self._at_once(first, one_each=one_each)
            else:
                parts = self._beside(first, one_each=one_each)
                one = Beside(parts, Nothing(self._in_parts), self._held_by(str(first[0].profile)))
            rest = self._beside(tuple(others), one_each=one_each)
            self._tables[places, one_each] = Beside(one, rest) if others else one
        return self._tables[places, one_each]

    def _held_by(self, profile: str) -> Bools:
        """Check which sets the memory of an instance holds, shape (sets,)."""
        ways = [self.outcome(option).allowed for option in options(PartitionKind(profile))]
        return np.asarray(np.logical_or.reduce(ways))

    def gains_by_cuts(self, stages: Sequence[Stage]) -> bool:
        """Check whether any cut of `stages` has jobs apart, or must be; true of none that is cut.

        All jobs in one partition would just have a smaller GPU.
        """
        cut = [stage.batches for stage in stages if stage.cut is not None]
        apart = (sum(batch.chosen > 0 for batch in batches) > 1 for batches in cut)
        return not cut or self.question.conditions.instances is not None or any(apart)

    def sharing_of(self, stages: Sequence[Stage], members: Members | None = None) -> Sharing:
        """Return the sharing of stages in turn; of equal jobs, the first is in the first stage.

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
        for stage in stages:
            if stage.cut is not None:
                groups.append(hybrid(stage.cut, stage.batches, numbers))
            else:
                (batch,) = stage.batches
                own = numbers(batch.chosen)
                groups.append(Group(own, batch.option.of(len(own)) if len(own) > 1 else Serial()))
        first, *others = groups
        return simplest(first) if isinstance(first, Hybrid) and not others else in_turn(groups)

    def alone(self, kind: int, profile: str) -> Alone | None:
        """Return how a job of `kind` runs alone on an instance; None: it does not fit, or may not.

        Its joules are those beyond an awake GPU's.
        """
        own = self.outcome(Option(PartitionKind(profile), Naive()))
        chosen = self.sets.number([kind])
        if not own.allowed[chosen]:
            return None
        return Alone(float(own.ends_s[chosen, kind]), float(own.added_j[chosen]))

    @cached_property
    def cuts(self) -> tuple[Cut, ...]:
        """The ways to cut the GPU that the conditions allow."""
        return allowed_cuts(self.question)

    @cached_property
    def _partitions(self) -> list[PartitionKind]:
        """The kinds of partitions of all cuts, each once."""
        return list(dict.fromkeys(partition for cut in self.cuts for partition in cut.partitions))


def hybrid(cut: Cut, batches: Sequence[Batch], jobs: Callable[[int], tuple[int, ...]]) -> Hybrid:
    """Return the sharing of a batch in each partition; `jobs` maps each set to job numbers."""
    parts: dict[int, list[Part]] = {}
    for at, (option, chosen) in zip(cut.instance_at, batches, strict=True):
        if chosen:
            own = jobs(chosen)
            part = Part(own, option.of(len(own)), option.partition.slices)
            parts.setdefault(at, []).append(part)
    return Hybrid(tuple(Place(cut.instances[at], tuple(own)) for at, own in parts.items()))


def on_instances(space: Space, *, one_each: bool) -> Iterator[Sharing]:
    """Propose plans on MIG instances, the best first."""
    everything, tables = space.sets.everything, space.cut_tables(one_each=one_each)
    before = set[Sharing]()
    # A table is opened when no other has a way that costs less than its best.
    heap: list[tuple[float, int, tuple[int, ...]]] = [
        (table.least(everything), at, ()) for at, table in enumerate(tables)
    ]
    heapify(heap)
    while heap and isfinite(heap[0][0]):
        _, at, key = heappop(heap)
        if not key:
            for cost, own in tables[at].ranked(everything):
                heappush(heap, (cost, at, own))
            continue
        ((_, stage),) = tables[at].way(everything, key)
        sharing = space.sharing_of([stage])
        if sharing not in before and space.gains_by_cuts([stage]):
            before.add(sharing)
            yield sharing


def in_phases(space: Space, table: InTurn) -> Iterator[Sharing]:
    """Propose plans that run all jobs in batches one after another, the best first."""
    before = set[object]()
    for way in table.in_order(space.sets.everything):
        stages = [stage for _, stage in way]
        mark = tuple(stages) if space.objective.order_matters else frozenset(stages)
        if len(stages) > 1 and mark not in before and space.gains_by_cuts(stages):
            before.add(mark)
            if (sharing := space.sharing_of(stages)) != Serial():
                yield sharing


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
        why = f"{len(jobs)} jobs make too many sets to compare"
        return [], [LeftOut("MIG, and phases", why)], None
    space = Space(Sets(jobs), question)
    few = _FORECAST * (1 if space.by_replays else 2)
    fixed = question.conditions.instances is not None
    ways = [on_instances(space, one_each=True), in_phases(space, space.in_turn)]
    if question.conditions.mig == "any":
        shared = on_instances(space, one_each=False)
        ways.append(each for each in shared if each.mode == "hybrid")
    if not fixed:  # groups on instances seem cheaper than they are, because they slow each other
        ways.append(in_phases(space, space.in_turn_on_whole))
    plans = [*([] if fixed else _queues(jobs, space)[:1]), *_on_lines(jobs, space)]
    for way in ways:
        plans += islice(way, few)
    alone = any(each.mode == "mig" for each in plans)
    return plans, [] if alone else [LeftOut("mig", _no_layout(jobs, question))], space.exact


# A swap of two jobs of a queue counts if it gains more than this share.
_GAIN = 1e-4
# Jobs that a queue runs at once.
_AT_ONCE = (2, 3, 4)


def _queues(jobs: Sequence[Job], space: Space) -> list[Sharing]:
    """Return queues under MPS, best first by estimates, each in an order that no swap improves."""
    if len(jobs) <= _AT_ONCE[0] or any(job.work_steps is None for job in jobs):
        return []
    by = space.objective if space.objective.in_seconds else OBJECTIVES["makespan"]
    sets, slowdowns = space.sets, space.outcome(Option(WHOLE_GPU, Mps())).slowdowns
    kind_of = np.array(sets.kind_of)
    work = np.array([job.work_steps or 0.0 for job in sets.jobs])
    alone_s = np.array([job.alone_step_s for job in sets.jobs])

    def costs(orders: Indices, at_once: int) -> Floats:
        kinds = kind_of[orders]

        def steps_s(at: Indices, running: Bools) -> Floats:
            chosen = [sets.number(row[runs]) for row, runs in zip(kinds[at], running, strict=True)]
            return np.asarray(alone_s[kinds[at]] * slowdowns[np.array(chosen)[:, None], kinds[at]])

        ends_s = np.empty(orders.shape)
        in_line_s = array_ends_s(work[kinds], steps_s, np.full(len(orders), at_once))
        np.put_along_axis(ends_s, orders, in_line_s, axis=1)
        return costs_of_ways(by, jobs, ends_s, ends_s)

    line = _line(jobs, by)
    best = [
        (*_best_order(line, partial(costs, at_once=at_once)), at_once)
        for at_once in _AT_ONCE
        if at_once < len(jobs)
    ]
    return [
        in_turn([Group(tuple(at + 1 for at in order), Queue(Mps(), at_once))])
        for _, order, at_once in sorted(best)
    ]


def _line(jobs: Sequence[Job], by: Objective) -> list[int]:
    """Positions of `jobs` as they start; the longest first where the order does not matter."""
    return sorted(range(len(jobs)), key=lambda at: (by.turn(jobs[at]), -(jobs[at].alone_s or 0)))


def _best_order(line: list[int], costs: Callable[[Indices], Floats]) -> tuple[float, list[int]]:
    """Swap jobs of `line` until no swap gains: the least cost, and the order."""
    swaps = [*combinations(range(len(line)), 2)]
    order, least, orders = line, np.inf, [line]
    while (own := costs(np.array(orders))).min() < least * (1 - _GAIN):
        least, order = float(own.min()), orders[int(own.argmin())]
        orders = [_swapped(order, *pair) for pair in swaps]
    return least, order


def _on_lines(jobs: Sequence[Job], space: Space) -> list[Sharing]:
    """The best line of jobs on each instance of a cut, by estimates; none if all have their own."""
    if any(job.work_steps is None for job in jobs):
        return []
    by = space.objective if space.objective.in_seconds else OBJECTIVES["makespan"]
    kinds, order = space.sets.kind_of, _line(jobs, by)
    ways = list[tuple[float, int, Sharing]]()
    for cut in space.cuts:
        if 1 < len(cut.instances) < len(jobs) and not any(cut.parts):
            own = tuple(kinds[at] for at in order)
            answer = lined(own, cut, space.question.gpu, space.alone)
            if answer is not None and answer.sharing.mode == "hybrid":
                ends_s = np.empty((1, len(jobs)))
                ends_s[0, order] = answer.ends_s
                cost = float(costs_of_ways(by, jobs, ends_s, ends_s)[0])
                ways.append((cost, len(ways), answer.sharing))
    best = min(ways, default=None)
    return [] if best is None else [in_turn(relabelled(best[2], [at + 1 for at in order]))]


def _swapped(order: list[int], one: int, other: int) -> list[int]:
    swapped = [*order]
    swapped[one], swapped[other] = order[other], order[one]
    return swapped


def _no_layout(jobs: Sequence[Job], question: Question) -> str:
    """Why no plan gives each of `jobs` a MIG instance of its own."""
    gpu = question.gpu
    if not gpu.mig:
        return f"{gpu.key} has no MIG"
    if (there := question.conditions.instances) is not None:
        return f"{counted(len(jobs), 'job')} and {counted(len(there), 'MIG instance')} without root"
    one_each = Mig((Instance(gpu.mig[0].name),) * len(jobs))
    if problem := broken_rule(jobs, one_each, gpu, question.conditions):
        return problem
    return f"no layout has an instance with enough memory for each of the {len(jobs)} jobs"
