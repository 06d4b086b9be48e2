"""Predictions of some jobs, forecasts until the last ends, and the machine that corrects them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nlargest
from math import inf
from pathlib import Path
from platform import node
from statistics import median
from types import MappingProxyType
from typing import Annotated

from advisor.documents import Inline, Mark
from advisor.errors import InvalidInput, NothingFits
from advisor.hardware.gpus import GpuCount, gpu_meant
from advisor.hardware.machine import Calibration, HostCheck, Provenance
from advisor.hardware.mig import largest_layouts
from advisor.plan import step
from advisor.plan.rules import (
    TOO_SLOW,
    UNCONDITIONAL,
    Conditions,
    broken_rule,
    memory_problem,
    slows_protected,
)
from advisor.plan.values import Forecast, LeftOut, Question, Standing, equal_work
from advisor.prediction.host import Host
from advisor.prediction.mix_steps import Predicts, SurrogatePredictor
from advisor.prediction.power import idle_power_w
from advisor.prediction.prediction import (
    LEVELS,
    Interval,
    Level,
    MixPrediction,
    around,
    in_phases,
    over_run,
    time_mean,
)
from advisor.prediction.predictor import Predictor, calibrated_predictor
from advisor.sharing import Arrangement, Group, Hybrid, Mig, Queue, Serial, Sharing
from advisor.sharing.groups import (
    check_count,
    chooses_layouts,
    groups,
    orders_jobs,
    restricted,
    together,
    without_idle_queue,
    without_phases,
)
from advisor.simulation.events import History, Pace, PlacedJobs, Task
from advisor.simulation.paces import Paces, SharedGpus
from advisor.simulation.results import Simulation, Totals
from advisor.simulation.simulate import Fleet, check_sharing, energy_j, simulated
from advisor.simulation.turns import from_the_start, task_of
from advisor.workload.job import Arrival, Job
from advisor.workload.profile import Profile
from advisor.workload.profile_checks import (
    Present,
    preallocating_profiles,
    stale_profiles,
    unsteady_profiles,
)
from advisor.workload.store import estimated_profiles, last_solo_runs, load_calibration


class Mixes:
    """Predicts subsets of `jobs`, each once."""

    def __init__(self, jobs: Sequence[Job], predictor: Predicts) -> None:
        self.jobs = tuple(jobs)
        self._predictor = predictor
        profiles = [job.profile for job in self.jobs]
        self._kind = [profiles.index(profile) for profile in profiles]  # the same for copies
        self._mixes: dict[tuple[tuple[int, ...], Arrangement], MixPrediction] = {}
        self._last: tuple[Sharing, list[History]] | None = None

    @property
    def predicted(self) -> Mapping[tuple[tuple[int, ...], Arrangement], MixPrediction]:
        """Answers so far: positions of the jobs that run, as the first of their copies, and how."""
        return self._mixes

    def copies(self) -> list[list[int]]:
        """Group the positions of the jobs into those with equal profile and length."""
        kinds = [(kind, job.work_steps) for kind, job in zip(self._kind, self.jobs, strict=True)]
        return [
            [at for at, other in enumerate(kinds) if other == kind] for kind in dict.fromkeys(kinds)
        ]

    def surrogate(self) -> SurrogatePredictor | None:
        """Return the surrogate model for all jobs together; None if the predictor has none."""
        return self._predictor.surrogate([job.profile for job in self.jobs])

    def whole(self, sharing: Sharing) -> MixPrediction:
        """Predict while all jobs run, or in phases all of a group; check the number of jobs.

        Jobs of a queue are predicted over their own run times, equally long alone if unknown.
        """
        check_count(sharing, len(self.jobs))
        sharing, members = without_idle_queue(sharing, len(self.jobs)), range(len(self.jobs))
        if without_phases(sharing) is not None:
            together = self.part(sharing, tuple(members))
            return self._over_time(together) if sharing == Serial() else together
        in_order = groups(sharing, len(self.jobs))
        running = [tuple(sorted(job - 1 for job in group.jobs)) for group in in_order]
        answers = [
            self._queued(sharing, group)
            if any(part.at_once for part in group.partitions)
            else self.part(sharing, jobs)
            for group, jobs in zip(in_order, running, strict=True)
        ]
        if len(answers) == 1:
            return replace(answers[0], sharing=sharing)
        return self._over_time(in_phases(sharing, running, answers))

    def part(self, sharing: Sharing, running: tuple[int, ...]) -> MixPrediction:
        """Predict while only the jobs at the positions `running` run."""
        arrangement = restricted(sharing, running)
        key = tuple(self._kind[job] for job in running), arrangement
        if key not in self._mixes:
            step()
            profiles = [self.jobs[job].profile for job in running]
            self._mixes[key] = self._predictor.predict(profiles, arrangement)
        return self._mixes[key]

    def histories(self, sharing: Sharing) -> list[History] | None:
        """Simulate all jobs from the start, at each of `LEVELS`; None if a length is unknown."""
        return self._simulated(sharing) if self.lengths_known else None

    @property
    def lengths_known(self) -> bool:
        return all(job.work_steps is not None for job in self.jobs)

    @property
    def cores(self) -> float:
        """Cores of the host, which starts of processes share; infinite: enough."""
        return self.part(Serial(), tuple(range(len(self.jobs)))).host_cores or inf

    def seated(self, sharing: Sharing, seats: PlacedJobs) -> MixPrediction:
        """Predict while only the jobs in `seats` run."""
        return self.part(sharing, tuple(seat.job for seat in seats))

    def _simulated(self, sharing: Sharing) -> list[History]:

        def tasks(level: Level) -> list[Task]:
            if not self.lengths_known:
                return [Task(1 / job.alone_step_s) for job in self.jobs]
            return [task_of(job, level, cores=self.cores) for job in self.jobs]

        def pace(level: Level) -> Pace:
            return lambda seats: [
                1 / job.paced_s.at(level) for job in self.seated(sharing, seats).jobs
            ]

        last = self._last  # read once: candidates of other threads replace it
        if last is None or last[0] != sharing:
            every = [from_the_start(sharing, tasks(level), pace(level)) for level in LEVELS]
            self._last = last = sharing, every
        return last[1]

    def _over_time(self, mix: MixPrediction) -> MixPrediction:
        """Return `mix`, whose jobs run in turn, with power and activity as means over time."""
        medians = self._simulated(mix.sharing)[LEVELS.index("p50")].stretches
        mixes = [self.seated(mix.sharing, each.seats) for each in medians]
        seconds = [each.seconds for each in medians]
        mean = time_mean(mix.sharing, mix.jobs, mixes, seconds, mix.oom_probability)
        return replace(mix, power_w=mean.power_w, gract=mean.gract, smact=mean.smact)

    def _queued(self, sharing: Sharing, group: Group | Hybrid) -> MixPrediction:
        """Predict a group in which jobs wait for others; memory is for any that may meet."""
        queue = sorted(number - 1 for number in group.jobs)
        histories = self._simulated(sharing)
        stretches = [
            [each for each in history.stretches if each.seats[0].job in queue]
            for history in histories
        ]
        mixes = {
            each.seats: self.seated(sharing, each.seats)
            for history in stretches
            for each in history
        }
        jobs = [
            over_run(
                [
                    [
                        (mixes[each.seats].jobs[place], each.seconds)
                        for each in history
                        for place, seat in enumerate(each.seats)
                        if seat.job == job
                    ]
                    for history in stretches
                ]
            )
            for job in queue
        ]
        held_mib = {job: own.memory_mib for job, own in zip(queue, jobs, strict=True)}
        largest = sorted(
            job - 1
            for part in group.partitions
            for job in nlargest(
                part.at_once or len(part.jobs), part.jobs, key=lambda job: held_mib[job - 1]
            )
        )
        fullest = self.part(sharing, tuple(largest))
        for at, answer in zip(map(queue.index, largest), fullest.jobs, strict=True):
            risk = max(jobs[at].oom_probability, answer.oom_probability)
            jobs[at] = replace(jobs[at], oom_probability=risk)
        medians = stretches[LEVELS.index("p50")]
        return time_mean(
            sharing,
            tuple(jobs),
            [*(mixes[each.seats] for each in medians), fullest],
            [*(each.seconds for each in medians), 0.0],
            fullest.oom_probability,
        )


def forecast(mixes: Mixes, sharing: Sharing) -> Forecast:
    """Forecast all jobs under `sharing`, from start to end, whether they fit or not."""
    mix = mixes.whole(sharing)
    result = Forecast(
        prediction=mix,
        equal_work=equal_work(mix),
        deadlines_s=tuple(job.deadline_s for job in mixes.jobs),
    )
    if (histories := mixes.histories(sharing)) is None:
        return result
    makespan_s = around([each.makespan_s for each in histories])
    alone_s = serial_interval_s(mixes)
    idle_w = idle_power_w([job.profile for job in mixes.jobs])
    joules = energy_j(histories, lambda seats, _: mixes.seated(sharing, seats).power_w, [idle_w])
    return replace(
        result,
        makespan_interval_s=makespan_s,
        energy_j=joules,
        speedup_vs_serial=alone_s.p50 / makespan_s.p50,
        serial_interval_s=alone_s,
        ends_s=tuple(map(around, zip(*(each.ends_s for each in histories), strict=True))),
    )


def serial_interval_s(mixes: Mixes) -> Interval:
    """Return the seconds of all jobs one after another; every job's length must be known."""
    serial = mixes.whole(Serial())

    def job_s(job: Job, step_s: float, level: Level) -> float:
        task = task_of(job, level, cores=mixes.cores)
        start_s = max(task.start_steps * step_s, task.start_cores_s)
        return start_s + (task.work_steps - task.start_steps) * step_s

    return Interval(
        *(
            sum(
                job_s(job, answer.paced_s.at(level), level)
                for job, answer in zip(mixes.jobs, serial.jobs, strict=True)
            )
            for level in LEVELS
        )
    )


def forecast_allowed(mixes: Mixes, question: Question, sharing: Sharing) -> Forecast | LeftOut:
    """Forecast the jobs under `sharing`, or say why that is not allowed."""
    gpu, conditions = question.gpu, question.conditions
    problem = broken_rule(mixes.jobs, sharing, gpu, conditions)
    problem = problem or memory_problem(mixes.whole(sharing), gpu, conditions.memory_margin)
    return LeftOut(str(sharing), problem) if problem else forecast(mixes, sharing)


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine on which the jobs are to run, as far as it is known."""

    file: Path | None
    calibration: Calibration | None
    present: Present | Provenance | None
    host: Host | None

    def predictor(self, plain: Predictor) -> Predicts:
        """Correct the predictor `plain` for this machine."""
        if self.calibration is not None:
            plain = calibrated_predictor(plain, self.calibration)
        if self.host is None:
            return plain
        corrected = plain if self.host.check is None else plain.on_known_host()
        return replace(corrected, host=self.host)

    def standing(self, jobs: Sequence[Job]) -> Standing:
        """Return the basis of a recommendation for `jobs` on this machine."""
        profiles, host = [job.profile for job in jobs], self.host
        factors = [each for each in map(host.factor, profiles) if each != 1] if host else []
        measured = [each for each in profiles if each.estimated_from is None]
        checked, present = host.check if host else None, self.present
        return Standing(
            calibrated=str(self.file) if self.file else None,
            stale=()
            if present is None
            else stale_profiles(measured, present, host_known=checked is not None),
            host_check=checked,
            host_factor=median(factors) if factors else None,
            host_solo=tuple({each.name: 0 for each in profiles if host and host.solo_run(each)}),
            host_from=", ".join(
                sorted({each.host_gpu for each in profiles if each.host_gpu != each.gpu})
            )
            or None,
            unsteady=unsteady_profiles(profiles),
            estimated=estimated_profiles(profiles),
            nominal=tuple(
                {each.name: 0 for each in profiles if each.workload.source == "duration"}
            ),
            preallocated=preallocating_profiles(profiles),
        )

    def profiles_here(self, profiles: Sequence[Profile]) -> tuple[Profile, ...]:
        """Correct `profiles` for this machine's host, if known."""
        return tuple(profiles) if self.host is None else self.host.convert(profiles)


def machine(
    gpu: str, calibration: Path | None, present: Present | None, check: HostCheck | None
) -> Machine:
    """Find what is known of the machine for advice on `gpu`, a key of the catalogue.

    Its calibration is that of the file `calibration`, or the user's own; `NO_CALIBRATION`: none.
    `present` None: that of the calibrated machine. `check` None: its host was not checked.

    Raises:
        InvalidInput: The calibration is malformed or of another GPU.
    """
    file, stored = load_calibration(gpu, calibration) or (None, None)
    solo = {} if present is None else last_solo_runs(gpu, node())
    host = Host(check, solo) if check or solo else None
    calibrated = None if stored is None else stored.provenance
    return Machine(file, stored, present or calibrated, host)


@dataclass(frozen=True, slots=True)
class OverTime:
    """A simulation, and its basis apart from profiles and model.

    Attributes:
        unshared: The same jobs and policy with one job a GPU; None: not simulated.
    """

    simulation: Annotated[Simulation, Inline()]
    standing: Annotated[Standing, Mark.AT_TOP] = field(default_factory=Standing)
    unshared: Totals | None = None


def over_time(
    arrivals: Sequence[Arrival],
    sharing: Sharing,
    predictors: Callable[[int], Predicts],
    fleet: Fleet,
    at_once: int | None = None,
    conditions: Conditions = UNCONDITIONAL,
    elsewhere: Mapping[str, tuple[Sequence[Job], Callable[[int], Predicts]]] = MappingProxyType({}),
) -> OverTime:
    """Simulate `arrivals`; for arguments and errors see `advisor.api.Advisor.simulate`.

    `predictors` returns the predictor while so many GPUs of a host run jobs. `elsewhere` has the
    jobs as profiled on each further model of GPU, by its key, and the predictors there.
    """
    if not arrivals:
        raise InvalidInput("no job arrives: simulate at least one")
    if at_once is not None and at_once < 1:
        raise InvalidInput(f"a GPU runs at least 1 job at once, got {at_once}")
    if isinstance(sharing, Queue):
        at_once = min(sharing.at_once, at_once or sharing.at_once)
        sharing = sharing.sharing
    check_sharing(sharing, [gpu_meant(str(count.gpu)) for count in fleet.counts], arrivals, fleet)
    if conditions.instances is not None and (
        lacking := Counter(each.profile for each in sharing.instances)
        - Counter(conditions.instances)
    ):
        raise NothingFits(
            f"{sharing}: {', '.join(lacking)} not found on this GPU. Make it, or pass --root."
        )
    if conditions.instances is not None and chooses_layouts(sharing):
        raise NothingFits(
            f"{sharing}: changing layouts needs root. Pass --root, or name the instances."
        )
    members = [each.job for each in arrivals]

    def pool(count: GpuCount) -> SharedGpus:
        gpu = gpu_meant(str(count.gpu))
        jobs, own = elsewhere.get(gpu.key, (members, predictors))
        if orders_jobs(sharing) and (why := broken_rule(jobs, sharing, gpu, conditions)):
            raise NothingFits(f"{sharing}: {why}. Name another sharing.")
        most, shared = min(at_once or len(arrivals), len(arrivals)), together(sharing)
        if shared is not None and shared.under_mps:
            most = min(most, gpu.max_mps_clients)

        def problem(jobs: Sequence[Job], part: Arrangement, mix: MixPrediction) -> str | None:
            if why := broken_rule(jobs, part, gpu, conditions):
                return why
            too_slow = TOO_SLOW if slows_protected(jobs, mix, "p50") else None
            return memory_problem(mix, gpu, conditions.memory_margin) or too_slow

        layouts: list[tuple[Sharing, int]] = [(sharing, most)]
        if chooses_layouts(sharing):
            layouts = [(Mig(each), most) for each in largest_layouts(gpu, most)]
        return SharedGpus(
            count=count,
            predict=lambda busy: own(busy).predict,
            jobs=jobs,
            layouts=layouts,
            problem=problem,
        )

    paces = Paces([pool(count) for count in fleet.counts])
    return OverTime(simulated(arrivals, sharing, paces, fleet))
