"""A run of a plan as its folder shows it: its jobs, its power, and a record for `fit`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from time import monotonic
from typing import Protocol

import numpy as np

from advisor.errors import AdvisorError
from advisor.measure.device import Meter, Origin, memory_record
from advisor.measure.process import processes_of
from advisor.run.watched_job import SETTLE_S, Events, WatchedJob, around_first, clock, events_in
from advisor.sharing import parse_sharing
from advisor.sharing.groups import restricted, sets_in_turn, together, with_a_queue
from advisor.workload.plan_document import PlanDocument, StepRange
from advisor.workload.profile import Window
from advisor.workload.reading import read_bytes
from advisor.workload.records import parse_record
from advisor.workload.run import Run, Tenant

Expected = Callable[[frozenset[int], Mapping[int, float]], Mapping[int, StepRange]]
"""Steps to expect of jobs, by number, while only these run, from their first second of steady steps
if it was measured; empty: not predicted."""


class Shown(Protocol):
    """A run to show: its lines as text, and the states of its jobs."""

    @property
    def states(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class Remaining:
    """Seconds until the last job of a run ends, and joules of the GPU until then; None: unknown."""

    seconds: StepRange
    energy_j: float | None

    def __str__(self) -> str:
        low, middle, high = map(clock, (self.seconds.p05, self.seconds.p50, self.seconds.p95))
        energy = "" if self.energy_j is None else f", {1e-3 * self.energy_j:,.0f} kJ"
        return f"{middle} ({low}-{high}){energy} left"


# Of a record; a shorter one is too uncertain, and more windows add nothing.
_SHORTEST_RECORD_S, _WINDOWS = 6.0, 6


class WatchedRun:
    """The run in a folder, and its jobs as they were at the last look.

    Args:
        folder: Of the run.
        most_steps: Steps that each job of the zoo does at most; None: as planned.
        meter: Of its device; None: power and memory are not read.
        expected: Steps to expect while only some jobs run; None: only those of the plan.

    Attributes:
        remaining: Time and energy until the last job ends; None: not known.
        now_w: Power of the device at the last look; None: no job ran, or it is not metered.

    Raises:
        InvalidInput: Its plan cannot be read.
    """

    def __init__(
        self,
        folder: Path,
        most_steps: int | None = None,
        meter: Meter | None = None,
        expected: Expected | None = None,
    ) -> None:
        self.folder = folder
        self.events = Events()
        path = folder / "plan.json"
        remedy = f"Remove {folder} once nothing of it runs."
        document = parse_record(PlanDocument, read_bytes(path), str(path), remedy)
        (self._plan,) = document.plans
        self.jobs = [
            WatchedJob(folder, number, planned, document.workload_of(planned), most_steps)
            for number, planned in zip(self._plan.numbers, self._plan.jobs, strict=True)
        ]
        self._by_number = {job.number: job for job in self.jobs}
        self._sharing = parse_sharing(self._plan.sharing)
        sets = sets_in_turn(self._sharing, len(self.jobs))
        self._groups = [
            frozenset(self._plan.numbers[at] for at in run[:at_once]) for run, at_once in sets
        ]
        self._expected = expected or self._planned
        self._meter = meter
        self.remaining: Remaining | None = None
        self._looked_s = 0.0
        self.now_w: float | None = None
        self._power_w: dict[frozenset[int], list[float]] = {}
        self._clocks_mhz: tuple[int | None, int | None] = (None, None)

    def look(self) -> None:
        """Note the run as it is now."""
        self.events = events_in(self.folder)
        running, self._looked_s = self.events.running, monotonic()
        for job in self.jobs:
            job.look(self.events, self._looked_s)
        counting = [job for job in self.jobs if job.number in running and job.done is not None]
        begins_s = [job.span_s[0] for job in counting]
        steady_s = max([self.events.changed_s, *begins_s]) + SETTLE_S
        for job in counting:
            job.measure_first(steady_s)
        expected = self._expected(running, self.first_s) if running else {}
        for job in self.jobs:
            job.judge(self.events, expected.get(job.number), self._looked_s)
        self.now_w = None
        if self._meter is not None and running:
            with suppress(AdvisorError):  # a driver that fails for a moment ends nothing
                self._hold(self._meter.memory_mib())
                self.now_w = self._meter.power_w()
                steady = counting and self._looked_s > steady_s
                if self.now_w is not None and running in self._groups and steady:
                    self._power_w.setdefault(running, []).append(self.now_w)
                    self._clocks_mhz = self._meter.clocks_mhz()

    @property
    def first_s(self) -> dict[int, float]:
        """Steps in the first second of all running jobs that count steps; empty before that."""
        counting = [
            job for job in self.jobs if job.number in self.events.running and job.done is not None
        ]
        steps = {job.number: job.first_s for job in counting if job.first_s is not None}
        return steps if len(steps) == len(counting) else {}

    @property
    def states(self) -> tuple[str, ...]:
        """State of each job, as `WatchedJob.state`."""
        return tuple(job.state for job in self.jobs)

    @property
    def power_w(self) -> float | None:
        """Mean power while the jobs run that run now, once they are steady."""
        return fmean(measured) if (measured := self._power_w.get(self.events.running)) else None

    def __str__(self) -> str:
        return "\n".join([self.head, *map(str, self.jobs)])

    @property
    def head(self) -> str:
        """Its first line: its name, how its jobs share, and how long it has run."""
        seconds = self._looked_s - min(self.events.started_s.values(), default=self._looked_s)
        power = "" if self.now_w is None else f", {self.now_w:.0f} W"
        left = "" if self.remaining is None else f", {self.remaining}"
        return f"{self.folder.name}: {self._plan.sharing}, {seconds:.0f} s{power}{left}"

    def _hold(self, memory_mib: Mapping[int, float]) -> None:
        """Note the device memory of each job, by the processes that carry its number."""
        ours = memory_mib.keys() & set(processes_of("ADVISOR_RUN", str(self.folder)))
        for number in self.events.running if ours else ():
            if pids := ours & set(processes_of("ADVISOR_JOB", str(number))):
                self._by_number[number].held_mib = sum(memory_mib[pid] for pid in pids)

    def _planned(
        self, running: frozenset[int], first_s: Mapping[int, float]
    ) -> Mapping[int, StepRange]:
        """The plan's own predictions, which are for all jobs of a group, then the first second."""
        steps = {number: self._by_number[number].planned.step_s for number in running}
        predicted = {number: step_s for number, step_s in steps.items() if step_s is not None}
        queued = with_a_queue(self._sharing, len(self.jobs))  # predicted over each job's run
        planned = predicted if running in self._groups and not queued else {}
        return planned | {number: around_first(step_s) for number, step_s in first_s.items()}

    def silent(self, patience_s: float | None) -> list[int]:
        """Return the jobs that did steps, and none for `patience_s`; none if that is None."""
        if patience_s is None:
            return []
        seen = ((number, self._by_number[number].seen_at_s) for number in self.events.running)
        return [number for number, at in seen if at is not None and monotonic() - at > patience_s]

    def records(self, origin: Origin, allowed: Sequence[int]) -> Iterator[Run]:
        """Return a record of each group in which every job counted its steps long enough.

        A group's windows lie where all of its jobs ran, of a queue those that start first, after
        they had settled and before the first of them ended: predictions of the group hold there.
        `allowed` are the host cores that the jobs could have.

        Raises:
            InvalidInput: The measured values cannot be true.
        """
        for at, group in enumerate(self._groups, start=1):
            positions = [at for at, job in enumerate(self.jobs) if job.number in group]
            jobs = [self.jobs[at] for at in positions]
            spans = [job.span_s for job in jobs]
            began_s = max(first for first, _ in spans) + SETTLE_S
            ended_s = min(last for _, last in spans)
            if ended_s - began_s < _SHORTEST_RECORD_S:
                continue
            bounds_s = np.linspace(began_s, ended_s, _WINDOWS + 1).tolist()
            windows = [job.windows(bounds_s) for job in jobs]
            if not all(windows):
                continue
            sharing = restricted(self._sharing, positions)
            shared = len(jobs) > 1 and together(sharing) is not None
            name = str(sharing) if shared or "mig" in str(sharing) else "naive"
            power_w = self._power_w.get(group)
            reported = [job.last.versions for job in jobs if job.last is not None]
            versions = next(filter(None, reported), {})
            yield Run(
                id=f"run-{self.folder.name}" + (f"-group{at}" if len(self._groups) > 1 else ""),
                gpu=origin.device.key,
                sharing=name,
                purpose="validation",
                repeats=None,
                tenants=tuple(
                    _tenant(job, seen, allowed) for job, seen in zip(jobs, windows, strict=True)
                ),
                mps_clients=len(jobs) if name.startswith("mps") else 0,
                power_w=fmean(power_w) if power_w else None,
                counters=None,
                provenance=origin.provenance(versions, self._clocks_mhz),
            )


def _tenant(job: WatchedJob, windows: tuple[Window, ...], allowed: Sequence[int]) -> Tenant:
    memory = None if job.last is None else job.last.memory
    reported = {"allocated_mib": None, "reserved_mib": None} if memory is None else asdict(memory)
    return Tenant(
        workload=job.workload,
        outcome="ok",
        detail=None,
        windows=windows,
        memory=memory_record(reported, job.held_mib),
        cores=tuple(allowed),
        sms=None,
    )
