"""Monitors a plan that runs: pace beside prediction, memory, power, and what goes wrong."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from statistics import fmean
from time import monotonic

from advisor.errors import AdvisorError
from advisor.measure.execution.execution_plan import ExecutedStage
from advisor.measure.execution.run_state import JobState
from advisor.measure.execution.run_view import JobView, RunView
from advisor.measure.execution.running_plan import RunningPlan
from advisor.measure.execution.watched_pace import JUDGED_S, SETTLE_S, WatchedPace, outside
from advisor.workload.plan_document import StepRange

Expected = Callable[[frozenset[int]], Mapping[int, StepRange]]
"""Predicted steps of jobs, by number, while just these run; empty: not predicted."""

# The pace that is shown is of so many seconds.
_LATELY_S = 30.0


class RunMonitor:
    """Reads how a run does, and warns once of what its user should know.

    Args:
        running: The run.
        say: Takes a line about something that happened.
        expected: What is predicted where some of a stage's jobs have ended.
    """

    def __init__(
        self, running: RunningPlan, say: Callable[[str], None], expected: Expected | None = None
    ) -> None:
        self.running = running
        self.held_mib: dict[int, float] = {}
        self.clocks_mhz: tuple[int | None, int | None] = (None, None)
        self._say = say
        self._expected = expected or self._while_whole
        self._said: set[object] = set()
        self._power_w: dict[ExecutedStage, list[float]] = {}

    def view(self) -> RunView:
        """The run as it is now."""
        held: Mapping[int, float] = {}
        power_w = None
        with suppress(AdvisorError):  # a driver that fails for a moment ends nothing
            held, power_w = self.running.site.meter.memory_mib(), self.running.site.meter.power_w()
            self._keep_readings(power_w)
        predicted = self._expected(self.running.active_jobs) if self.running.active_jobs else {}
        began = [each.began_s for each in self.running.state.jobs if each.began_s is not None]
        return RunView(
            id=self.running.state.id,
            sharing=self.running.plan.sharing,
            stage=min(self.running.state.stage + 1, len(self.running.plan.stages)),
            stages=len(self.running.plan.stages),
            seconds=monotonic() - min(began) if began else 0.0,
            power_w=power_w,
            over=self.running.state.over,
            jobs=tuple(self._job_view(each, predicted, held) for each in self.running.state.jobs),
        )

    def _keep_readings(self, power_w: float | None) -> None:
        """Keep power and clocks for the record of the stage, while all of its jobs run."""
        if power_w is not None and self.running.active_jobs == frozenset(self.running.stage.jobs):
            self._power_w.setdefault(self.running.stage, []).append(power_w)
            self.clocks_mhz = self.running.site.meter.clocks_mhz()

    def power_w(self, stage: ExecutedStage) -> float | None:
        """Mean power of the device while all jobs of `stage` ran; None if not metered."""
        found = self._power_w.get(stage)
        return fmean(found) if found else None

    def _job_view(
        self, state: JobState, predicted: Mapping[int, StepRange], held: Mapping[int, float]
    ) -> JobView:
        running = state.phase == "running"
        expected = predicted.get(state.number) if running else None
        settled_s = self._settled_step_s(self.running.paces[state.number]) if running else None
        view = self._as_it_is(state, expected, held)
        view = replace(view, outside=outside(settled_s, expected))
        self._warn(view, settled_s)
        return view

    def _settled_step_s(self, pace: WatchedPace) -> float | None:
        """Seconds of a step since jobs beside it came or went; None before that can be judged."""
        since_s = self.running.active_since_s
        settled = monotonic() - since_s > SETTLE_S + JUDGED_S
        return pace.step_s(since_s + SETTLE_S) if settled else None

    def _as_it_is(
        self, state: JobState, predicted: StepRange | None, held: Mapping[int, float]
    ) -> JobView:
        """A job without a judgement of its pace."""
        job, pace = self.running.plan.job(state.number), self.running.paces[state.number]
        running, now_s = state.phase == "running", monotonic()
        since_s = max(now_s - _LATELY_S, self.running.active_since_s)
        step_s = pace.step_s(since_s) if running else None
        return JobView(
            number=state.number,
            name=job.name,
            phase=state.phase,
            fate=state.fate,
            detail=state.detail,
            done=pace.steps if running else state.steps,
            steps=job.steps,
            step_s=step_s,
            predicted=predicted,
            outside=False,
            memory_mib=self._memory_mib(state, held),
            left_s=_left_s(pace.steps, job.steps, step_s, predicted) if running else None,
            silent_s=pace.silent_s(now_s, step_s) if running else None,
            log=str(self.running.folder.log(state.number, job.name)),
        )

    def _warn(self, view: JobView, settled_s: float | None) -> None:
        who = f"job {view.number}, {view.name}"
        if view.outside and settled_s is not None and view.predicted is not None:
            low, high = 1e3 * view.predicted.p05, 1e3 * view.predicted.p95
            self._once(
                (view.number, self.running.active_jobs),
                f"{who}: {1e3 * settled_s:,.1f} ms a step, predicted {low:,.1f} to {high:,.1f} ms. "
                f"Another plan may be better: `advisor recommend` again",
            )
        if view.silent_s is not None:
            self._once(
                (view.number, view.done),
                f"{who}: no step for {view.silent_s:.0f} s: it may hang. `advisor stop "
                f"{self.running.state.id} --job {view.number}` ends it, and no other",
            )

    def _memory_mib(self, state: JobState, held: Mapping[int, float]) -> float | None:
        """What its processes hold on the device; what it says of itself where no driver does."""
        if state.phase != "running":
            return None
        if held:
            found = [
                held[pid] for pid in self.running.processes[state.number].processes() if pid in held
            ]
            if found:
                self.held_mib[state.number] = sum(found)
                return sum(found)
        last = self.running.paces[state.number].last
        return None if last is None else last.reserved_mib

    def _while_whole(self, running: frozenset[int]) -> Mapping[int, StepRange]:
        """The plan's own predictions, which are for all jobs of a stage."""
        if running != frozenset(self.running.stage.jobs):
            return {}
        known = ((number, self.running.plan.job(number).step_s) for number in running)
        return {number: step_s for number, step_s in known if step_s is not None}

    def _once(self, what: object, line: str) -> None:
        """Say `line` unless that was said before."""
        if what not in self._said:
            self._said.add(what)
            self._say(line)


def _left_s(
    done: int | None, steps: int | None, step_s: float | None, predicted: StepRange | None
) -> float | None:
    pace_s = step_s if step_s is not None else None if predicted is None else predicted.p50
    if steps is None or pace_s is None or (done or 0) > steps:
        return None
    return (steps - (done or 0)) * pace_s
