"""Measures how fast a workload trains alone: first until it is steady, then in windows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from time import monotonic, sleep, time
from typing import Any, Literal

import numpy as np

from advisor.errors import AdvisorError
from advisor.hardware.machine import NOT_METERED, Activity
from advisor.measure.device import Meter, memory_record
from advisor.measure.planned_runs import Timing
from advisor.measure.process import say
from advisor.measure.rounds import Rounds, StepTimes, find_rounds
from advisor.measure.tenant import LOAD_S, Tenant, living
from advisor.workload.profile import HostSide, Memory, PartSeconds, Window

# With fewer steps of the slowest tenant, where a window cuts a step affects its figure.
_FEWEST_STEPS = 6

# Training goes on this long after the last window, so that clock differences cut no window short.
_MARGIN_S = 0.05

_LONGEST_LEAD_S = 2.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """Moments of the wall clock from the first step at `start_at` until none begins any more.

    Windows lie between `bounds_s`, seconds after `start_at`, shape (windows + 1,).
    """

    start_at: float
    bounds_s: tuple[float, ...]

    @property
    def begin_at(self) -> float:
        return self.start_at + self.bounds_s[0]

    @property
    def end_at(self) -> float:
        return self.start_at + self.bounds_s[-1]

    @property
    def stop_at(self) -> float:
        return self.end_at + _MARGIN_S


def schedule(start_at: float, timing: Timing, slowest_step_s: float) -> Schedule:
    """Schedule windows if all start at `start_at` and the slowest step takes `slowest_step_s`."""
    least_s = timing.windows * timing.window_s
    length_s = max(least_s, min(_FEWEST_STEPS * slowest_step_s, timing.longest_s))
    first_s = min(max(timing.lead_s, slowest_step_s), _LONGEST_LEAD_S)
    bounds_s = np.linspace(first_s, first_s + length_s, timing.windows + 1)
    return Schedule(start_at, tuple(bounds_s.tolist()))


def sleep_until(moment: float) -> None:
    """Wait for a moment of the wall clock; returns at once if it is past."""
    sleep(max(0.0, moment - time()))


def windows_of(plan: Schedule, completed_at: Sequence[float]) -> tuple[Window, ...]:
    """Count one tenant's steps in each window; a step cut by a bound counts in part on both sides.

    `completed_at` has the ends of its steps, never decreasing, shape (steps,).
    """
    ends_s = np.array([plan.start_at, *completed_at]) - plan.start_at
    done = np.interp(plan.bounds_s, ends_s, np.arange(len(ends_s)))
    return tuple(map(Window, np.diff(plan.bounds_s).tolist(), np.diff(done).tolist()))


# Between the request to start and the start.
_NOTICE_S = 0.05
# Two stretches in a row whose median steps differ by no more than this are a steady state.
_STEADY_WITHIN = 0.03
_STRETCH_S, _STRETCH_STEPS = 0.5, 3
# Some programs are never steady, since a host's clock varies. They are measured all the same.
_LONGEST_SETTLING_S = 5.0
# A rollout with its updates may take some seconds, and two are needed to recognise it.
_LEAST_LOOK_S, _LONGEST_LOOK_S = 2.0, 20.0


@dataclass(frozen=True, slots=True)
class SoloPace:
    """The result of the windows, each of whole rounds.

    Attributes:
        rounds: By these windows and the steps before them.
        cpu_share: CPU seconds of the tenant and its loader for each second.
        meter_s: Seconds that the device's driver took to answer.
        host: None for a program that does not report it, as `checks_s` are then empty.
        over: Whether the program ended by itself before the last window.
    """

    rounds: Rounds
    windows: tuple[Window, ...]
    cpu_share: float
    activity: Activity
    clocks_mhz: tuple[int | None, int | None]
    memory: Memory
    checks_s: tuple[float, ...]
    meter_s: float
    host: HostSide | None
    over: bool


def mean_step_s(windows: Sequence[Window]) -> float:
    """Return the mean seconds of a step over all windows."""
    return sum(each.seconds for each in windows) / sum(each.steps for each in windows)


@dataclass(frozen=True, slots=True)
class StepsTaken:
    """The steps that a tenant took from `start_at` to the end of one request, `answer`."""

    start_at: float
    answer: Mapping[str, Any]

    @property
    def steps(self) -> int:
        return len(self.answer["completed_at"])

    @property
    def over(self) -> bool:
        """True if the program ended by itself."""
        return bool(self.answer.get("over"))

    @property
    def intervals_s(self) -> list[float]:
        """Seconds of each step, without the host checks between them, shape (steps,)."""
        intervals = np.diff([self.start_at, *self.answer["completed_at"]])
        for number, _, took_s in self.answer["checks"]:
            if number < len(intervals):  # a GPU that had work queued did not wait for a check
                intervals[number] = max(intervals[number] - took_s, intervals[number] / 2)
        return list(np.maximum(intervals, 1e-9).tolist())


def step_times(stretches: Sequence[StepsTaken]) -> StepTimes:
    """Join requests to one, without the time between them."""
    intervals_s = np.array([each for stretch in stretches for each in stretch.intervals_s])
    happened, work = np.zeros((4, len(intervals_s))), np.full(len(intervals_s), np.nan)
    before = 0
    for stretch in stretches:
        for number, *gained in stretch.answer["between"]:
            happened[:, before + int(number)] += gained
        counts = np.array(stretch.answer.get("work") or (), dtype=float)
        if len(counts) == stretch.steps:
            work[before + 1 : before + len(counts)] = np.diff(counts)
        before += stretch.steps
    passes, loader_s, checkpoint_s, validation_s = happened
    return StepTimes(
        intervals_s=intervals_s,
        new_pass=passes > 0,
        loader_s=loader_s,
        checkpoint_s=checkpoint_s,
        validation_s=validation_s,
        work=work,
    )


# Fewer steps of a program that ends before it was measured say nothing of its pace.
_FEWEST_WHOLE = 3


def settle(tenant: Tenant, loaded: Mapping[str, Any], patience_s: float) -> list[StepsTaken]:
    """Train until the pace is steady and the round clear, or to the end; `loaded` is an answer."""
    stretches: list[StepsTaken] = []
    paces = [loaded["warm_step_s"]]
    began = time()
    while not loaded.get("over"):
        stretch_s = max(_STRETCH_S, _STRETCH_STEPS * paces[-1])
        start_at = time() + _NOTICE_S
        span = {"start_at": start_at, "stop_at": start_at + stretch_s}
        answer = living(
            tenant.ask("run", stretch_s + patience_s, **span, partly=True, counting=True)
        )
        stretches.append(StepsTaken(start_at, answer))
        if stretches[-1].over:
            break
        paces.append(median(stretches[-1].intervals_s))
        steady, looked_s = is_steady(paces[1:]), time() - began
        if looked_s < (_LEAST_LOOK_S if steady else _LONGEST_SETTLING_S):
            continue
        if looked_s > _LONGEST_LOOK_S or not find_rounds(step_times(stretches)).unclear:
            if not steady:
                say(f"  not steady after {looked_s:.0f} s; its windows show how it varies")
            return stretches
    if sum(each.steps for each in stretches) >= _FEWEST_WHOLE:
        return stretches
    first_at, *ends = loaded["completed_at"] or [began]
    warm = StepsTaken(first_at, {**loaded, "completed_at": ends, "between": []})
    return [warm, *stretches]


def is_steady(paces: Sequence[float]) -> bool:
    """Return whether the last two of `paces`, seconds of a step, agree."""
    return len(paces) > 1 and abs(paces[-1] - paces[-2]) <= _STEADY_WITHIN * min(paces[-2:])


# Pieces of host work at each window's ends: some of a step's time at most.
_PIECES, _FEW_PIECES, _SHORT_STEP_S = 12, 4, 0.1

# The step after a check starts with an empty queue: with so many others, it does not count.
_ENOUGH_STEPS = 8


def measured_pace(
    tenant: Tenant,
    meter: Meter,
    timing: Timing,
    before: Sequence[StepsTaken],
    patience_s: float,
    *,
    partly: bool = False,
) -> SoloPace:
    """Measure the pace of `tenant` in windows of whole rounds, between checks of its core.

    `before` are the steps from which its round is known. If it has ended by itself, or may,
    `partly`, and does, its pace is that of all steps that it took.
    """
    taken = list(before)
    if not taken[-1].over:
        rounds = find_rounds(step_times(taken))
        plan = solo_schedule(time() + _NOTICE_S, timing, rounds)
        tenant.send(
            "run",
            start_at=plan.start_at,
            stop_at=plan.stop_at,
            partly=partly,
            checks_at=[plan.start_at + each for each in plan.bounds_s],
            pieces=_PIECES if max(rounds.steps_s) < _SHORT_STEP_S else _FEW_PIECES,
        )
        sleep_until(plan.begin_at)
        metered_at = monotonic()
        meter.begin()
        meter_s = monotonic() - metered_at
        sleep_until(plan.end_at)
        metered_at = monotonic()
        activity, clocks_mhz = meter.end(), meter.clocks_mhz()
        meter_s += monotonic() - metered_at
        left_s = max(0.0, plan.stop_at - time()) + patience_s
        taken.append(StepsTaken(plan.start_at, living(tenant.receive(left_s))))
    stretch, over = taken[-1], taken[-1].over
    if over and sum(each.steps for each in taken) < _FEWEST_WHOLE:
        raise AdvisorError(
            f"{tenant.named} ended after its first steps, and {_FEWEST_WHOLE} more are needed. Let "
            f"it train for longer."
        )
    rounds = find_rounds(step_times(taken))
    if over:
        stretch = max(taken, key=lambda each: each.steps)
        activity, clocks_mhz, meter_s = NOT_METERED, meter.clocks_mhz(), 0.0
    held_mib = meter.memory_mib()
    # In a container the driver may list the tenant under another pid. On a claimed device the only
    # other process is an MPS server, which holds less than any tenant.
    own_mib = held_mib.get(tenant.pid, max(held_mib.values(), default=None))
    memory = memory_record(taken[-1].answer["memory"], own_mib)
    if memory is None:
        raise AdvisorError(
            "the driver shows no process on this GPU. Does the script train there, and does the "
            "driver show processes here?"
        )
    answer, host = stretch.answer, None
    if "fetched_s" in answer:  # an idle loader counts as no work
        names = ("loader_cpu_s", "read_mib") if answer.get("loader_cpu_s") else ()
        used = {"wait_s": answer["fetched_s"], **{name: answer[name] for name in names}}
        host = HostSide(
            **{
                name: max(0.0, value) / stretch.steps
                for name, value in used.items()
                if value is not None
            }
        )
    return SoloPace(
        rounds=rounds,
        windows=rounds.windows(timing.window_s) if over else solo_windows(stretch, plan, rounds),
        cpu_share=answer["cpu_s"] / (answer["completed_at"][-1] - stretch.start_at),
        activity=activity,
        clocks_mhz=clocks_mhz,
        memory=memory,
        checks_s=() if over else tuple(check_s for _, check_s, _ in answer["checks"]),
        meter_s=meter_s,
        host=host,
        over=over,
    )


# Windows that differ by this ratio, at one pace of the core, may show a slow moment of the host.
_MOST_WINDOW_RATIO = 1.1
_MOST_REPEATS = 2


def repeated_pace(
    tenant: Tenant, meter: Meter, timing: Timing, before: Sequence[StepsTaken], patience_s: float
) -> SoloPace:
    """Measure the pace, and again while the windows disagree; every window is kept."""
    pace = measured_pace(tenant, meter, timing, before, patience_s, partly=True)
    for _ in range(_MOST_REPEATS):
        as_they_are = [window.step_s for window in pace.windows]
        at_one_pace = [each.step_s / core_pace(each.check_s or 1.0) for each in pace.windows]
        ratios = (max(each) / min(each) for each in (as_they_are, at_one_pace))
        if pace.over or min(ratios) <= _MOST_WINDOW_RATIO:
            break
        say("  its windows disagree; measuring more of them")
        more = measured_pace(tenant, meter, timing, before, patience_s, partly=True)
        if more.over:
            return replace(pace, over=True)
        pace = replace(
            more,
            windows=pace.windows + more.windows,
            checks_s=pace.checks_s + more.checks_s,
            meter_s=pace.meter_s + more.meter_s,
        )
    return pace


# Python and launches slow down as the checks of the core do, to this power: 0.29, 0.31 and 0.36 on
# the hosts of three H100s, by 649 windows of programs and of workloads of the zoo, host-bound ones.
_FOLLOWS_CHECK = 1 / 3


def core_pace(ratio: float) -> float:
    """Return by which factor host work is slower if checks of the core are slower by `ratio`."""
    return float(ratio**_FOLLOWS_CHECK)


def solo_schedule(start_at: float, timing: Timing, rounds: Rounds) -> Schedule:
    """Schedule windows that are long enough for whole rounds, fewer of them if these are long."""
    round_s = sum(rounds.steps_s)
    window_s = max(timing.window_s, 1.2 * round_s)
    count = max(2, min(timing.windows, int(timing.longest_s / window_s)))
    lead_s = min(max(timing.lead_s, *rounds.steps_s), _LONGEST_LEAD_S)
    bounds_s = [lead_s + number * window_s for number in range(count + 1)]
    return Schedule(start_at, tuple(bounds_s))


def solo_windows(stretch: StepsTaken, plan: Schedule, rounds: Rounds) -> tuple[Window, ...]:
    """Return windows of whole rounds between host checks, each without the step after a check.

    With few steps between two checks, windows lie wherever rounds end; without checks, between the
    bounds of `plan`. `rounds` are those of all steps until the end of `stretch`.
    """
    if not stretch.answer["checks"]:
        return windows_of(plan, stretch.answer["completed_at"])
    numbers, checks_s, _ = zip(*stretch.answer["checks"], strict=True)
    rounds = replace(rounds, intervals_s=rounds.intervals_s[-stretch.steps :])
    done_s = np.concatenate([[0.0], np.cumsum(rounds.intervals_s)])
    spans = [(first + 1, last) for first, last in pairwise(numbers)]
    if rounds.steps > 1 or not spans or min(end - begin for begin, end in spans) < _ENOUGH_STEPS:
        spans = list(pairwise(rounds.window_bounds(plan.bounds_s[1] - plan.bounds_s[0])))
    return tuple(
        Window(
            float(done_s[end] - done_s[begin]),
            float(end - begin),
            float(np.interp([begin, end], numbers, checks_s).mean()),
        )
        for begin, end in spans
    )


Part = Literal["start_s", "settle_s", "windows_s", "host_path_s", "trace_s", "mps_s", "limits_s"]


class Stopwatch:
    """The seconds from its creation to the last lap, each of one part."""

    def __init__(self) -> None:
        self._since_s = monotonic()
        self.meter_s = 0.0  # of the windows, in which the driver answered
        self._parts: dict[str, float] = {}

    def lap(self, part: Part) -> None:
        """Add the seconds since the last lap to `part`."""
        now_s = monotonic()
        self._parts[part] = self._parts.get(part, 0.0) + now_s - self._since_s
        self._since_s = now_s

    def patience_s(self) -> float:
        """Return the most seconds of another start, by the seconds of the first."""
        return max(LOAD_S, 3 * self._parts.get("start_s", 0.0))

    def took(self) -> PartSeconds:
        """Return all laps."""
        return PartSeconds(**self._parts, meter_s=self.meter_s)
