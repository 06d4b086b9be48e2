"""The trials of a search to run at once on each GPU, how they share it, and the time of all."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial, reduce
from math import ceil, inf, isfinite
from typing import Annotated

from advisor.documents import Inline, Mark, in_document
from advisor.errors import InvalidInput
from advisor.files.units import DAY_S
from advisor.hardware.gpus import GpuCount, parse_gpus
from advisor.hardware.machine import client_variables
from advisor.plan import MOST_GPUS, START_ERROR
from advisor.plan.copies import MIN_GAIN, PATIENCE, Copies, CopiesRow, CopiesTable
from advisor.plan.rules import EXACT_JOBS, UNCONDITIONAL, Conditions
from advisor.plan.values import GpuPool, OneLoader, Standing
from advisor.prediction.prediction import LEVELS, Interval, Level
from advisor.simulation import START_CPU_S
from advisor.simulation.turns import start_cpu_s
from advisor.workload.job import MAX_JOBS, Job

MAX_TRIALS = 100_000

_GROWTH = 1.5  # factor from one number at once to the next beyond those that are all predicted
_SPREAD_WITHIN = 0.005  # share of the time of all trials to which it is searched


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialTerms:
    """The options of a search.

    Attributes:
        count: Number of trials; None: unknown.
        steps: Training steps of a trial; None: those of the job.
        start_s: Seconds in which the process of a trial starts; 0: it goes on with the next trial.
        start_cpu_s: CPU seconds of that, for which the starts of a host share its cores.
        gpus: Number of equal GPUs on one host, or what `parse_gpus` reads.
    """

    count: int | None = None
    steps: float | None = None
    start_s: float = 0.0
    start_cpu_s: float = START_CPU_S
    gpus: int | str = 1
    conditions: Conditions = UNCONDITIONAL
    level: Level = "p50"

    @property
    def counts(self) -> tuple[GpuCount, ...]:
        """The GPUs by model."""
        return parse_gpus(self.gpus, MOST_GPUS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """The trials of one GPU, from the start of the first ones to the last step of the last.

    Attributes:
        rounds: Rounds in which trials run; the last may have fewer trials than the others.
        wall_s: Seconds with `Trials.at_once` trials at once; fewer share the GPU in the last round.
    """

    trials: int
    rounds: int
    wall_s: Interval
    one_by_one_s: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialsRow:
    """So many trials at once on one GPU.

    Attributes:
        trial_s: Seconds that one of them trains for.
        starts_s: Seconds in which they start.
        trials_per_hour: Trials that start and end in an hour.
    """

    shared: Annotated[CopiesRow, Inline()]
    trial_s: Interval
    starts_s: Interval
    trials_per_hour: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """Number of equal trials to run at once on one GPU, and how.

    Each is the same number of steps of the same job, whatever it tries out.

    Attributes:
        copies: The performance of some numbers of trials at once; worthwhile are the fewest within
            `MIN_GAIN` of the most trials an hour; for a search of known length, of its soonest end.
        study: All trials of the GPU; None where their number is unknown.
    """

    copies: Annotated[Copies, Inline()]
    steps: float
    start_s: float
    start_cpu_s: float
    study: Study | None

    @property
    @in_document
    def at_once(self) -> int:
        return self.copies.worthwhile

    @property
    @in_document
    def rows(self) -> tuple[TrialsRow, ...]:
        """The rows of `copies`."""
        return tuple(map(self._paced, self.copies.rows))

    @property
    @in_document
    def row(self) -> Annotated[TrialsRow, Inline()]:
        """The row of `at_once` trials; its prediction says how they share the GPU."""
        return self._paced(self.copies.at_best)

    @property
    @in_document
    def environment(self) -> dict[str, str]:
        """Variables for the process of each trial."""
        limits = self.copies.at_best.prediction.sharing.limits
        return client_variables(next(iter(limits), None), None)

    def _paced(self, row: CopiesRow) -> TrialsRow:
        trial_s = row.prediction.jobs[0].paced_s.scaled(self.steps)
        starting_s = starts_s(row, self.start_s, self.start_cpu_s)
        return TrialsRow(
            shared=row,
            trial_s=trial_s,
            starts_s=starting_s,
            trials_per_hour=trial_s.plus(starting_s).rate(3600 * row.copies),
        )


def starts_s(row: CopiesRow, start_s: float, cpu_s: float) -> Interval:
    """Return the seconds in which processes start together that take `start_s` each alone.

    They share the cores that there are for `row`, of which each needs `cpu_s`.
    """
    cores = row.prediction.host_cores or inf
    return Interval(
        *(
            max(start_s * START_ERROR**at, row.copies * start_cpu_s(start_s, level, cpu_s) / cores)
            for at, level in zip((-1, 0, 1), LEVELS, strict=True)
        )
    )


def worthwhile_trials(
    table: CopiesTable,
    steps: float | None = None,
    count: int | None = None,
    start_s: float = 0.0,
    cpu_s: float = START_CPU_S,
) -> Trials:
    """Choose the fewest trials at once that end within `MIN_GAIN` of the most trials an hour.

    `steps` are those of a trial, else of the job; `count` is the number of trials, None: unknown. A
    process takes `start_s` to start, and `cpu_s` of a core; 0: it goes on with the next trial. Of
    more than `EXACT_JOBS` at once only some numbers are predicted, because more never take longer a
    trial until they do.

    Raises:
        InvalidInput: The length of a trial is unknown, or a number is impossible.
        NothingFits: Not even one trial fits.
    """
    steps = _checked_steps(table.job, steps, count, start_s, cpu_s)
    fit, limited_by = table.most()
    # Of the numbers at once that take as many rounds, the fewest.
    numbers = sorted(
        {
            at if count is None else ceil(count / ceil(count / at))
            for at in range(1, min(fit, MAX_JOBS, count or MAX_JOBS) + 1)
        }
    )

    def round_s(row: CopiesRow) -> Interval:
        trained_s = row.prediction.jobs[0].paced_s.scaled(steps)
        return trained_s.plus(starts_s(row, start_s, cpu_s))

    def spent_s(row: CopiesRow) -> Interval:
        """Seconds of all rounds, without `count` of one; limits stay in the last round."""
        rounds, left = divmod(count or row.copies, row.copies)
        whole_s = round_s(row).scaled(rounds)
        return whole_s.plus(round_s(table.restricted(row, left))) if left else whole_s

    rows: dict[int, CopiesRow] = {}
    trial_s: dict[int, float] = {}  # seconds of the GPU for each trial, by the number at once

    def enough(row: CopiesRow) -> bool:
        """Add `row`; whether no other takes much less time."""
        rows[row.copies] = row
        trial_s[row.copies] = spent_s(row).at(table.level) / (count or row.copies)
        return trial_s[row.copies] <= (1 + MIN_GAIN) * min(trial_s.values())

    fewest = fewer = 0
    for at_once in numbers:
        if EXACT_JOBS < at_once < min(_GROWTH * fewer, numbers[-1]):
            continue
        enough(row := table.row(at_once, rows.get(fewer)))
        best_s = min(trial_s.values())
        fewest = next(at for at, each_s in trial_s.items() if each_s <= (1 + MIN_GAIN) * best_s)
        trained_s = row.prediction.jobs[0].paced_s.at(table.level) * steps / at_once
        most = replace(row, copies=numbers[-1])  # which start in least time a trial
        least_s = trained_s + starts_s(most, start_s, cpu_s).at(table.level) / most.copies
        may_gain = least_s * (1 + MIN_GAIN / 2) < best_s
        if at_once >= fewest + max(PATIENCE, fewest // 2) and not may_gain:
            break
        fewer = at_once
    between = [
        at for at in numbers if max((n for n in rows if n < fewest), default=0) < at < fewest
    ]
    later = bisect_left(between, True, key=lambda at: enough(table.restricted(rows[fewest], at)))
    at_best = [*between, fewest][later]
    copies = table.copies([row for _, row in sorted(rows.items())], at_best, fit, limited_by)
    study = (
        None
        if count is None
        else Study(
            trials=count,
            rounds=ceil(count / at_best),
            wall_s=spent_s(rows[at_best]),
            one_by_one_s=spent_s(rows[1]),
        )
    )
    return Trials(copies=copies, steps=steps, start_s=start_s, start_cpu_s=cpu_s, study=study)


def _checked_steps(
    job: Job, steps: float | None, count: int | None, start_s: float, cpu_s: float
) -> float:
    """The steps of a trial, by default those of the job; refuses impossible numbers."""
    steps = job.work_steps if steps is None else steps
    if steps is None:
        raise InvalidInput(
            f"the length of a trial of {job.name} is unknown, because its profile has no number "
            "of examples. Pass --steps."
        )
    if not (isfinite(steps) and steps >= 1):
        raise InvalidInput(f"a trial has at least 1 training step, got {steps:g}")
    if not 0 <= start_s <= DAY_S:
        raise InvalidInput(f"a process starts in 0 s to a day, got {start_s:g} s")
    if not 0 <= cpu_s <= DAY_S:
        raise InvalidInput(f"a start needs 0 s to a day of a core, got {cpu_s:g} s")
    if count is not None and (not 1 <= count <= MAX_TRIALS or count % 1):
        raise InvalidInput(f"a search has 1 to {MAX_TRIALS:,} trials, got {count}")
    return steps


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialsOnGpus:
    """The trials of equal GPUs.

    Attributes:
        trials: Those of a GPU that runs most of them.
        host_gpus: GPUs of each host.
        count: Trials of all these GPUs; None: unknown.
    """

    trials: Annotated[Trials, Inline()]
    hosts: int
    host_gpus: int
    count: int | None

    @property
    def gpus(self) -> int:
        return self.hosts * self.host_gpus

    @property
    def busy_gpus(self) -> int:
        """Number of GPUs that run a trial."""
        return self.gpus if self.count is None else min(self.gpus, self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The trials of a search on one GPU or several.

    Attributes:
        hosts: The GPUs by model, without models on which no trial would end in time.
        idle: GPUs of these models.
        wall_s: Seconds of all trials, None where their number is unknown.
        one_by_one_s: The same with one trial at a time on each GPU.
        one_loader: A better number on a GPU if they share a data loader; None: there is none.
    """

    hosts: tuple[TrialsOnGpus, ...]
    idle: Mapping[str, int] = field(default_factory=dict)
    wall_s: Interval | None = None
    one_by_one_s: Interval | None = None
    standing: Annotated[Standing, Mark.AT_TOP] = field(default_factory=Standing)
    one_loader: OneLoader | None = None

    @property
    @in_document
    def gpu(self) -> str:
        """The first model of GPU."""
        return self.hosts[0].trials.copies.gpu.key

    @property
    @in_document
    def job(self) -> str:
        return self.hosts[0].trials.copies.job.name

    @property
    @in_document
    def at_once(self) -> int:
        """Trials at once on all GPUs."""
        return sum(each.busy_gpus * each.trials.at_once for each in self.hosts)

    @property
    @in_document
    def count(self) -> int | None:
        """Number of trials; None: unknown."""
        counts = [each.count for each in self.hosts]
        return None if None in counts else sum(filter(None, counts))

    @property
    @in_document
    def trials_per_hour(self) -> Interval:
        """Trials that start and end in an hour on all GPUs."""
        return self._all_gpus(lambda trials: trials.row.trials_per_hour)

    @property
    def one_by_one_per_hour(self) -> Interval:
        """Trials that do so one at a time on each GPU."""
        return self._all_gpus(lambda trials: trials.rows[0].trials_per_hour)

    def _all_gpus(self, rate: Callable[[Trials], Interval]) -> Interval:
        rates = [rate(each.trials).scaled(each.busy_gpus) for each in self.hosts]
        return Interval(*(sum(each.at(level) for each in rates) for level in LEVELS))


def search_trials(pools: Sequence[GpuPool], terms: TrialTerms) -> Search:
    """Choose the number of trials at once on each GPU, and spread them so that all end soonest.

    Raises:
        InvalidInput: As `worthwhile_trials`, or the job takes several GPUs.
        NothingFits: Not even one trial fits a GPU.
    """
    job, count = pools[0].jobs[0], terms.count
    _checked_steps(job, terms.steps, count, terms.start_s, terms.start_cpu_s)
    if job.gpus > 1:
        raise InvalidInput(
            f"{job.name} takes {job.gpus} GPUs of one host, and trials of such jobs do not share "
            "a GPU. Plan them as jobs: `advisor recommend --gpus N`."
        )

    @cache
    def trials(at: int, of_each: int | None) -> Trials:
        pool = pools[at]
        table = CopiesTable(pool.jobs[0], pool.gpu, pool.predictor, terms.conditions, terms.level)
        return worthwhile_trials(table, terms.steps, of_each, terms.start_s, terms.start_cpu_s)

    def on(at: int, total: int | None) -> TrialsOnGpus:
        pool = pools[at]
        of_each = None if total is None else ceil(total / pool.gpus)
        return TrialsOnGpus(
            trials=trials(at, of_each), hosts=pool.hosts, host_gpus=pool.host_gpus, count=total
        )

    if count is None:
        return Search(hosts=tuple(on(at, None) for at in range(len(pools))))

    def wall_s(at: int, of_each: int) -> Interval:
        study = trials(at, of_each).study
        assert study is not None, "the number of trials is known"
        return study.wall_s

    gpus = [pool.gpus for pool in pools]
    totals, all_s = _spread(count, gpus, wall_s, terms.level)
    one_by_one_s = _spread(count, gpus, lambda at, n: wall_s(at, 1).scaled(n), terms.level)[1]
    return Search(
        hosts=tuple(on(at, total) for at, total in enumerate(totals) if total),
        wall_s=all_s,
        idle={
            pool.gpu.key: pool.gpus - total
            for pool, total in zip(pools, totals, strict=True)
            if total < pool.gpus
        },
        one_by_one_s=one_by_one_s,
    )


def _spread(
    count: int, gpus: Sequence[int], wall_s: Callable[[int, int], Interval], level: Level
) -> tuple[list[int], Interval]:
    """The trials of each model, of which there are so many `gpus`, and the time until all end.

    `wall_s` is the time in which a GPU of a model ends so many trials: the more, the longer.
    """
    most = [ceil(count / each) for each in gpus]
    models = range(len(gpus))

    def end_s(at: int, of_each: int) -> float:
        return wall_s(at, of_each).at(level)

    def ended_by(time_s: float) -> list[int]:
        """The trials that a GPU of each model ends by then."""
        return [
            bisect_right(range(1, most[at] + 1), time_s, key=partial(end_s, at)) for at in models
        ]

    def held(shares: Sequence[int]) -> int:
        return sum(each * share for each, share in zip(gpus, shares, strict=True))

    # The longest time by which not all end; then each next trial goes to where it ends first.
    low_s, high_s, shares = 0.0, min(end_s(at, most[at]) for at in models), [0 for _ in models]
    if len(gpus) == 1:
        shares = [most[0] - 1]
    while len(gpus) > 1 and high_s - low_s > _SPREAD_WITHIN * high_s:
        middle_s = (low_s + high_s) / 2
        if held(ended := ended_by(middle_s)) >= count:
            high_s = middle_s
        else:
            low_s, shares = middle_s, ended
    last = 0
    while held(shares) < count:
        last = min(models, key=lambda at: end_s(at, shares[at] + 1))
        shares[last] += 1
    totals = [each * share for each, share in zip(gpus, shares, strict=True)]
    totals[last] -= sum(totals) - count
    ends = [wall_s(at, ceil(totals[at] / gpus[at])) for at in models if totals[at]]
    return totals, reduce(Interval.at_least, ends)
