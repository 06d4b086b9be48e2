"""Advice from names and files: what the command line, the page and notebooks call.

Wrong arguments and files raise `InvalidInput`; jobs or plans too big for a GPU, `NothingFits`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from importlib.resources import as_file, files
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

from advisor.errors import InvalidInput, check_choice, with_article
from advisor.hardware import DEFAULT_GPU
from advisor.hardware.gpus import GpuCount, gpu_meant, parse_gpus
from advisor.hardware.machine import LiveGpu
from advisor.hardware.mig import profiles_named
from advisor.plan import MOST_GPUS, ObjectiveName
from advisor.plan.basis import Basis, as_list, check_kind
from advisor.plan.forecast import Mixes, OverTime, forecast, over_time
from advisor.plan.rules import (
    MAX_SLOWDOWN,
    UNCONDITIONAL,
    Conditions,
    are_many,
    check_own_loaders,
    loader_problem,
)
from advisor.plan.values import Forecast, GpuPool, Recommendation
from advisor.prediction.find_profile import names_of_batches
from advisor.prediction.prediction import LEVELS, Level
from advisor.prediction.replay import ReplayedKernel, recorded
from advisor.sharing import Mig, Sharing, parse_sharing
from advisor.simulation.results import Simulation
from advisor.simulation.simulate import Fleet
from advisor.workload.job import Arrival, Job, check_protection, job_set, parse_jobs, read_jobs
from advisor.workload.profile import Profile
from advisor.workload.store import sound_profiles

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from advisor.launch.plan_file import SavedPlan
    from advisor.plan.admission import Additions, Running
    from advisor.plan.copies import Copies
    from advisor.plan.reasons import Comparison
    from advisor.plan.slices import SlicesForJob
    from advisor.plan.trials import Search, TrialTerms

JobLike = str | Profile | Job
"""A job: ``"NAME[:COPIES][@EPOCHS]"``, or a profile file's path; or what these stand for."""

JobsLike = Iterable[JobLike]

_Answered = TypeVar("_Answered", bound="DataclassInstance")


@dataclass(frozen=True)
class Advisor(Basis):
    """Predictions and plans for jobs on one GPU model, from profiles and a fitted model.

    It reads the model and the calibration when it first needs them, and keeps them. Methods raise
    `InvalidInput` for wrong arguments or files, and `NothingFits` for jobs too big for the GPU.

    Attributes:
        gpu: GPU model, as `advisor gpus` lists it.
        profiles: Folder of profiles; None: the shipped ones and the user's own.
        models: Folder of models; None: the user's own, else the shipped one.
        calibration: File of `advisor calibrate`; `NO_CALIBRATION`: none; None: the user's own for
            that GPU, if there is one.
        power_cap_w: Power cap of the GPU in watts; None: the GPU's own limit.
        host_cores: Cores of each host, for all its jobs together; None: those of this machine if
            it has the GPU, else as many as the jobs need.
        present: This machine, to find stale profiles; None: the machine that was calibrated.
        host_check: Speed of the host now; None: that of the host on which CPU time was measured.
        mig: MIG instances as the installed driver offers them; None: those of the catalogue, with
            the smallest memory that any driver reported.
        share_loader: Whether all jobs of a question that run at the same time take their batches
            from one data loader.
    """

    @cached_property
    def _answers(self) -> deque[tuple[object, Any]]:
        """The last questions, each with its answer: comparing jobs is faster than hashing them."""
        return deque(maxlen=16)

    def _based(self, answer: _Answered, jobs: Sequence[Job]) -> _Answered:
        """`answer` with the evidence that it is based on."""
        return replace(answer, standing=self.standing(jobs))

    def chosen_jobs(
        self, names: Sequence[str] | None = None, file: Path | None = None, gpus: int = 1
    ) -> tuple[Job, ...]:
        """Return the jobs with these names, or in a file; without either, the bundled ones."""
        if names and file:
            raise InvalidInput("expected JOBs or --jobs FILE, got both. Leave one out.")
        if names:
            return self.jobs(names, gpus)
        if file:
            return self.jobs(read_jobs(file, self.find_profile, gpus), gpus)
        with as_file(files("advisor.plan").joinpath("example.toml")) as path:
            return self.jobs(read_jobs(path, self.find_profile))

    def running(self, jobs: JobsLike, sharing: str) -> "Running":
        """Return the running `jobs`, which share the GPU by `sharing`."""
        from advisor.plan.admission import Running

        return Running(jobs=self.jobs(jobs) if jobs else (), sharing=self.read_sharing(sharing))

    def running_now(
        self, jobs: JobsLike, live: LiveGpu
    ) -> "tuple[Running | None, tuple[str, ...]]":
        """Return the running `jobs`, one for each process that runs on a GPU.

        They share it as its driver reports; None if nothing runs. The second value has the reason
        for each file that holds no profile.
        """
        from advisor.plan.admission import held_alone_mib, running_now

        key, members = self.card.key, self.jobs(jobs) if jobs else ()
        if live.catalogue_key != key:
            raise InvalidInput(
                f"GPU {live.index} here is {with_article(live.product)}, and the profiles are of "
                f"{key}. Pass --gpu {live.catalogue_key or 'KEY'}, or another --device."
            )
        profiles, refused = sound_profiles(key, self.profiles)
        return running_now(live, members, held_alone_mib(profiles.values())), refused

    def jobs(self, jobs: JobsLike, gpus: int = 1) -> tuple[Job, ...]:
        """Return the jobs that `jobs` stand for, on `gpus` equal GPUs; a profile is one epoch."""
        load, key = cache(self.find_profile), self.card.key
        members: list[Job] = []
        for each in as_list("jobs", jobs, "names"):
            match each:
                case Job() | Profile():
                    members.append(each if isinstance(each, Job) else Job(each))
                case str():
                    members += parse_jobs([each], load, gpus)
                case _:
                    raise InvalidInput(f"expected a name, a Profile or a Job, got {each!r:.60}")
        if strangers := {job.profile.gpu for job in members} - {key}:
            raise InvalidInput(
                f"profiles of {', '.join(sorted(strangers))} cannot be used on {key}. Pass the "
                f"names of the jobs to estimate them, or measure them on {with_article(key)}."
            )
        together = job_set(members, gpus)
        if not self.share_loader:
            return together
        from advisor.plan.one_loader import sharing_loader

        return sharing_loader(together)

    def read_sharing(self, value: str | Sharing, *, over_time: bool = False) -> Sharing:
        """Return `value` as a sharing on this GPU; it may be the notation of one.

        ``mig`` is allowed only `over_time`: each GPU then chooses a layout when it has no job.
        """
        if over_time and isinstance(value, str) and value.strip().lower() == "mig":
            return Mig(())
        if isinstance(value, str):
            sharing = parse_sharing(value, [profile.name for profile in self.card.mig])
            if sharing.instances:
                profiles_named(self.card, [each.profile for each in sharing.instances])
            return sharing
        check_kind("a way to share", value, Sharing, "'mps=50,50'")
        return value

    def recommend(
        self,
        jobs: JobsLike,
        objective: ObjectiveName = "makespan",
        *,
        gpus: int | str = 1,
        effort: float = 1.0,
        host_memory_mib: float | None = None,
        conditions: Conditions = UNCONDITIONAL,
        level: Level = "p50",
    ) -> Recommendation:
        """Rank the ways in which `jobs` can share the GPUs, best first, by `level` of their costs.

        For up to eight jobs on one GPU, all plans are compared. For more jobs or GPUs, a search
        with this `effort` finds the best ones. The GPUs of a host that run jobs share its cores
        equally. `conditions` are limits of the machine and the user in addition to those of the
        jobs.

        Args:
            jobs: The jobs.
            objective: Goal by which plans are ranked.
            gpus: Number of equal GPUs on one host, or the notation that `parse_gpus` reads.
            effort: Multiple of the usual search effort.
            host_memory_mib: Memory of each host; None: no limit.
            conditions: Permissions of machine and user.
            level: Point of the interval of a cost that ranks plans.
        """
        from advisor.launch.shell import with_commands
        from advisor.plan.one_loader import one_loader
        from advisor.plan.ranking import recommended
        from advisor.plan.reasons import variants_of

        check_choice("objective", objective, get_args(ObjectiveName))
        _check_ranking(conditions, level)
        counts = parse_gpus(gpus, MOST_GPUS)
        total = sum(each.gpus for each in counts)
        members = self.jobs(jobs, total)
        many = are_many(len(members), total)
        if not many and (effort != 1 or host_memory_mib is not None):
            raise InvalidInput(
                "effort and host memory apply to more than 8 jobs or to several GPUs: of fewer "
                "jobs, all plans are compared. Leave them out."
            )
        if self.power_cap_w is not None and conditions.power_caps:
            raise InvalidInput("a fixed power cap excludes caps that plans choose. Leave one out")
        busy = sum(job.gpus for job in members)
        pools = self._pools(counts, members, busy, host_memory_mib)
        terms = (objective, conditions, level, effort)
        best = self._remembered(
            (members, counts, host_memory_mib, *terms), lambda: recommended(pools, *terms)
        )
        another = None
        if conditions.root and conditions.instances is not None:
            free = replace(conditions, instances=None)
            another = recommended(pools, objective, free, level).best
        variants, refused, shared = tuple[Profile, ...](), tuple[str, ...](), None
        if not many:
            shared = one_loader(
                members, best.best.prediction, self.card, self.predictor, conditions
            )
            variants, refused = variants_of(
                members, self.card.key, self.find_profile, self.profiles
            )
        answer = replace(
            with_commands(best),
            variants=variants,
            refused_variants=refused,
            another_layout=another,
            one_loader=shared,
        )
        return self._based(answer, members)

    def _remembered(self, question: object, answer: Callable[[], _Answered]) -> _Answered:
        """The answer of one of the last questions, or a new `answer`."""
        for other, own in tuple(self._answers):
            if other == question:
                return cast("_Answered", own)
        self._answers.append((question, own := answer()))
        return own

    def _places(
        self, counts: Iterable[GpuCount], jobs: Sequence[Job]
    ) -> Iterator[tuple[GpuCount, "Advisor", tuple[Job, ...]]]:
        """Each of `counts`, with the advisor of its model, and `jobs` as they run there."""
        for count in counts:
            if count.gpu in (None, self.card.key):
                yield count, self, tuple(jobs)
                continue
            there, moved = self.on_other(count.gpu), dict[int, Profile]()
            for job in jobs:
                if id(job.profile) not in moved:
                    moved[id(job.profile)] = self.profile_on(there, job.profile)
            yield count, there, tuple(replace(job, profile=moved[id(job.profile)]) for job in jobs)

    def _pools(
        self,
        counts: Iterable[GpuCount],
        jobs: tuple[Job, ...],
        most_busy: int,
        host_memory_mib: float | None = None,
    ) -> list[GpuPool]:
        """The GPUs of each model for `jobs`, while at most so many run jobs."""
        return [
            GpuPool(
                gpu=there.card,
                hosts=count.hosts,
                host_gpus=count.host_gpus,
                jobs=own,
                predictor=there.predictor_under(
                    self.power_cap_w, busy_gpus=min(count.host_gpus, most_busy)
                ),
                host_memory_mib=host_memory_mib,
            )
            for count, there, own in self._places(counts, jobs)
        ]

    def recommend_copies(
        self, job: JobLike, conditions: Conditions = UNCONDITIONAL, level: Level = "p50"
    ) -> "Copies":
        """Count the copies of `job` that fit at once, and those that are worthwhile."""
        from advisor.plan.copies import CopiesTable, worthwhile_copies
        from advisor.plan.one_loader import with_one_loader

        _check_ranking(conditions, level)
        one = self._one_job(job)

        def copies(job: Job) -> "Copies":
            table = CopiesTable(job, self.card, self.predictor, conditions, level)
            return worthwhile_copies(table)

        return self._based(with_one_loader(copies, one), [one])

    def trials(self, job: JobLike, terms: "TrialTerms | None" = None) -> "Search":
        """Choose how many trials of a search run at once on each GPU.

        The GPUs of a host that run trials share its cores equally.
        """
        from advisor.plan.one_loader import with_one_loader
        from advisor.plan.trials import TrialTerms, search_trials

        terms = TrialTerms() if terms is None else terms
        check_kind("terms", terms, TrialTerms, "advisor.plan.trials.TrialTerms(count=24)")
        for what in ("count", "steps", "start_s", "start_cpu_s"):
            check_kind(what, getattr(terms, what), Real | None, "a number, or None")
        _check_ranking(terms.conditions, terms.level)
        one = self._one_job(job, MOST_GPUS)

        def search(job: Job) -> "Search":
            pools = self._pools(terms.counts, (job,), terms.count or MOST_GPUS)
            return search_trials(pools, terms)

        return self._based(with_one_loader(search, one), [one])

    def _one_job(self, job: JobLike, gpus: int = 1) -> Job:
        """The `job`, of which there are no copies."""
        if len(jobs := self.jobs([job], gpus)) > 1:
            raise InvalidInput(f"{job}: expected one job. Write it without :COPIES")
        return jobs[0]

    def batches(
        self, jobs: str | Sequence[str | Profile], *, on: Sequence[str] = ()
    ) -> "SlicesForJob":
        """Return the largest batch of one job on each MIG slice of the GPU.

        `jobs` is the job's name, with or without a batch size, or its profiles, names or files.
        `on` has MIG profiles, or ``"whole"``; none: all.
        """
        from advisor.plan.slices import slices_for_job

        own = [jobs] if isinstance(jobs, str) else as_list("jobs", jobs, "names")
        if not own:
            raise InvalidInput("no job is given. Name one, with or without a batch size")
        name = own[0].name if isinstance(own[0], Profile) else own[0]
        if len(own) == 1 and isinstance(name, str) and not name.endswith(".json"):
            own = list(names_of_batches(name, self.card, self.profiles)) or own
        profiles = [each if isinstance(each, Profile) else self.find_profile(each) for each in own]
        largest = slices_for_job(profiles, self.card, self.predictor, as_list("on", on, "slices"))
        return self._based(largest, [Job(each) for each in profiles])

    def admit(
        self,
        running: "Running | Sequence[Running]",
        offered: JobsLike,
        max_slowdown: float = MAX_SLOWDOWN,
        conditions: Conditions = UNCONDITIONAL,
    ) -> "Additions":
        """Return the `offered` jobs that may join and slow others by `max_slowdown` at most.

        `running` has the jobs that run on the GPU, or on each of several equal ones.
        """
        from advisor.plan.admission import Running, additions

        on_gpus = (
            [running]
            if isinstance(running, Running)
            else as_list("what runs", running, "Advisor(...).running(['NAME'], 'mps') of each GPU")
        )
        for each in on_gpus:
            check_kind("what runs", each, Running, "Advisor(...).running(['NAME'], 'mps')")
        check_protection("max_slowdown", max_slowdown)
        waiting = self.jobs(offered)
        check_own_loaders(waiting)
        answer = additions(on_gpus, waiting, self.card, self.predictor, max_slowdown, conditions)
        return self._based(answer, [*(job for each in on_gpus for job in each.jobs), *waiting])

    def predict(self, jobs: JobsLike, sharing: str | Sharing) -> Forecast:
        """Forecast `jobs` under one `sharing`, e.g. ``"mps=50,50"``.

        A mix that does not fit is forecast too: its `oom_probability` is near 1.
        """
        members, way = self.jobs(jobs), self.read_sharing(sharing)
        if why := loader_problem(members, way):
            raise InvalidInput(f"{way}: {why}. Leave --share-loader out.")
        return self._forecast(members, way, self.power_cap_w)

    def compare(
        self,
        plans: "Sequence[str | Sharing | SavedPlan]",
        jobs: JobsLike,
        objective: ObjectiveName = "makespan",
    ) -> "Comparison":
        """Compare the first of `plans` for `jobs` with the others.

        The power cap applies to plans without their own cap. If the first plan is listed twice, its
        first copy has no cap, so that the two differ by the cap.
        """
        from advisor.launch.plan_file import SavedPlan
        from advisor.plan.one_gpu import best_turns
        from advisor.plan.reasons import compare

        check_choice("objective", objective, get_args(ObjectiveName))
        ways, members = as_list("plans", plans, "two ways to share or more"), self.jobs(jobs)
        if len(ways) < 2:
            raise InvalidInput(f"expected at least two plans, as ['naive', 'mps'], got {len(ways)}")
        forecasts = []
        for number, plan in enumerate(ways):
            cap_w = None if number == 0 and plan in ways[1:] else self.power_cap_w
            if isinstance(plan, SavedPlan):
                cap_w = plan.power_cap_w or cap_w
            sharing = plan.sharing if isinstance(plan, SavedPlan) else plan
            forecasts.append(self._forecast(members, sharing, cap_w))
        serial = self._forecast(members, best_turns(members, objective), None)
        return compare(members, self.card, forecasts, objective, serial)

    def simulate(
        self,
        arrivals: Sequence[Arrival],
        sharing: str | Sharing,
        fleet: Fleet,
        *,
        at_once: int | None = None,
        conditions: Conditions = UNCONDITIONAL,
    ) -> OverTime:
        """Simulate jobs that arrive over time on the GPUs of `fleet`, each shared by `sharing`.

        At most `at_once` jobs share a GPU, if `sharing` fixes no number; None: as many as fit.
        Phases, and a queue in its own order, need all jobs at the start, and one GPU. On other GPU
        models, jobs are estimated unless measured there. ``"mig"``: a GPU without a job chooses its
        layout.
        """
        check_kind("a fleet", fleet, Fleet, f"Fleet({self.card.key!r}, 1, 'first-come')")
        if gpu_meant(fleet.gpu).key != self.card.key:
            raise InvalidInput(
                f"expected a fleet of {self.gpu}, got {fleet.gpu}. Use Advisor({fleet.gpu!r})"
            )
        check_kind("at_once", at_once, int | None, "a whole number, or None")
        arrivals = as_list("arrivals", arrivals, "Arrival(Job(...), arrival_s)")
        for each in arrivals:
            check_kind("an arrival", each, Arrival, "Arrival(Job(...), arrival_s)")
        if (first := fleet.counts[0].gpu) != self.card.key:
            raise InvalidInput(
                f"expected a fleet that begins with this advisor's GPU, got {first}. Use "
                f"Advisor({first!r})"
            )
        fleet = replace(fleet, shared_host=self.cores is not None and fleet.total > 1)
        jobs = [each.job for each in arrivals]
        if len({each.arrival_s for each in arrivals}) > 1:
            check_own_loaders(jobs)
        simulated = partial(
            over_time,
            arrivals,
            predictors=partial(self.predictor_under, self.power_cap_w),
            fleet=fleet,
            conditions=conditions,
            elsewhere={
                there.card.key: (own, partial(there.predictor_under, None))
                for _, there, own in self._places(fleet.counts[1:], jobs)
            },
        )
        answer, unshared = (
            simulated(self.read_sharing(sharing, over_time=True), at_once=at_once),
            None,
        )
        if answer.simulation.sharing.mode != "serial" and conditions.instances is None:
            unshared = simulated(parse_sharing("serial"), at_once=1).simulation.totals
        distinct = list({id(job.profile): job for job in jobs}.values())
        return self._based(replace(answer, unshared=unshared), distinct)

    def first_kernels(self, simulation: Simulation) -> tuple[ReplayedKernel, ...]:
        """Replay the kernels that the first jobs of a simulation run."""
        return recorded(*simulation.first_mix, self.card, self.model.of(self.card).physics)

    def _forecast(self, jobs: JobsLike, sharing: str | Sharing, cap_w: float | None) -> Forecast:
        members = self.jobs(jobs)
        mixes = Mixes(members, self.predictor_under(cap_w))
        return self._based(forecast(mixes, self.read_sharing(sharing)), members)


def recommend(
    jobs: JobsLike,
    gpu: str = DEFAULT_GPU,
    objective: ObjectiveName = "makespan",
    *,
    conditions: Conditions = UNCONDITIONAL,
    level: Level = "p50",
    **sources: Any,
) -> Recommendation:
    """Rank plans, as ``Advisor(gpu, **sources).recommend(jobs)``; keep one for many calls."""
    return Advisor(gpu, **sources).recommend(jobs, objective, conditions=conditions, level=level)


def predict(
    jobs: JobsLike, sharing: str | Sharing, gpu: str = DEFAULT_GPU, **sources: Any
) -> Forecast:
    """Forecast `jobs` under one sharing, as ``Advisor(gpu, **sources).predict(jobs, sharing)``."""
    return Advisor(gpu, **sources).predict(jobs, sharing)


def _check_ranking(conditions: object, level: object) -> None:
    check_kind("conditions", conditions, Conditions, "advisor.plan.rules.Conditions(root=False)")
    check_choice("level", level, LEVELS)
