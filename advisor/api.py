"""Advice from names and files: what the command line, the page and notebooks call."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from advisor.errors import InvalidInput
from advisor.hardware import DEFAULT_GPU
from advisor.hardware.gpus import gpu_meant
from advisor.plan import ObjectiveName, check_objective
from advisor.plan.rules import UNCONDITIONAL, Conditions
from advisor.plan.values import Forecast, Recommendation
from advisor.prediction.prediction import LEVELS
from advisor.sharing import Sharing
from advisor.sources import (
    JobLike,
    JobsLike,
    Sources,
    check_number,
    listed,
    of_kind,
    read_sharing,
    shown,
)
from advisor.workload.job import Job

if TYPE_CHECKING:
    from advisor.launch.plan_file import SavedPlan
    from advisor.plan.admission import Additions, AdmissionLimits, Running
    from advisor.plan.copies import Copies, SlicesForJob, Trials
    from advisor.plan.fleet import FleetPlan
    from advisor.plan.forecast import OverTime
    from advisor.plan.objectives import FleetTerms
    from advisor.plan.reasons import Comparison
    from advisor.prediction.prediction import Level
    from advisor.prediction.replay import ReplayedKernel
    from advisor.simulation.simulate import Fleet, Simulation
    from advisor.workload.job import Arrival


@dataclass(frozen=True)
class Advisor(Sources):
    """Answers questions about jobs on one model of GPU, from the data that `Sources` names."""

    def recommend(
        self, jobs: JobsLike, objective: ObjectiveName = "makespan", *,
        conditions: Conditions = UNCONDITIONAL, level: "Level" = "p50",
    ) -> Recommendation:  # fmt: skip
        """Rank the ways in which `jobs` can share the GPU, best first.

        Args:
            jobs: Names, profiles or jobs.
            objective: The quantity that plans are ranked by.
            conditions: Limits of machine and user in addition to those of the jobs.
            level: Point of a cost's interval that plans are ranked by: ``"p50"``, the median, or
                ``"p95"``, the upper end.

        Raises:
            InvalidInput: A name, count, file or power cap is wrong.
            NothingFits: A job is too big for the GPU.
        """
        from advisor.launch.commands import with_commands
        from advisor.plan.reasons import variants_of

        members = self.jobs(jobs)
        advised = with_commands(self._ranked(members, objective, conditions, level, rough=False))
        variants, refused = variants_of(members, self.card.key, self.profiles)
        return replace(advised, variants=variants, refused_variants=refused)

    def recommend_roughly(
        self, jobs: JobsLike, objective: ObjectiveName = "makespan", *,
        conditions: Conditions = UNCONDITIONAL, level: "Level" = "p50",
    ) -> Recommendation:  # fmt: skip
        """Rank as `recommend` does, by a search that stops early; without commands and variants.

        It is shown while the whole search goes on, which needs the same predictions.
        """
        return self._ranked(self.jobs(jobs), objective, conditions, level, rough=True)

    def _ranked(
        self, jobs: tuple[Job, ...], objective: ObjectiveName, conditions: Conditions,
        level: "Level", *, rough: bool,
    ) -> Recommendation:  # fmt: skip
        from advisor.plan.ranking import ranked

        check_objective(objective)
        _check_ranking(conditions, level)
        if self.power_cap_w is not None and conditions.power_caps:
            raise InvalidInput("a power cap is given, or plans choose one: leave one of these out")
        answer = ranked(jobs, self.card, self.predictor, objective, conditions, level, rough=rough)
        return replace(answer, standing=self.standing(jobs))

    def recommend_fleet(self, jobs: JobsLike, terms: "FleetTerms") -> "FleetPlan":
        """Return the best plan found in time for many jobs, or for several equal GPUs.

        Raises:
            InvalidInput: A job is wrong, or protected.
            NothingFits: A job is too big for a GPU.
        """
        from advisor.plan.fleet import plan_fleet
        from advisor.plan.objectives import FleetTerms

        of_kind("terms", terms, FleetTerms, "advisor.plan.objectives.FleetTerms(gpus=2)")
        members = self.jobs(jobs, terms.gpus)
        plan = plan_fleet(members, self.card, self.predictor, terms)
        return replace(plan, standing=self.standing(members))

    def recommend_copies(
        self, job: JobLike, conditions: Conditions = UNCONDITIONAL, level: "Level" = "p50"
    ) -> "Copies":
        """Count the copies of `job` that fit, and those worthwhile; see `copies_that_pay`."""
        from advisor.plan.copies import copies_that_pay

        _check_ranking(conditions, level)
        one = self.one_job(job)
        copies = copies_that_pay(one, self.card, self.predictor, conditions, level)
        return replace(copies, standing=self.standing([one]))

    def trials(
        self, job: JobLike, *, steps: float | None = None, count: int | None = None,
        start_s: float = 0.0, conditions: Conditions = UNCONDITIONAL, level: "Level" = "p50",
    ) -> "Trials":  # fmt: skip
        """Count the trials of a hyper-parameter search to run at once; see `trials_that_pay`.

        Raises:
            InvalidInput: A number is wrong, or the length of a trial is not known.
            NothingFits: Not even one trial fits.
        """
        from advisor.plan.copies import trials_that_pay

        for what, number in (("count", count), ("steps", steps), ("start_s", start_s)):
            check_number(what, number)
        copies = self.recommend_copies(job, conditions, level)
        return trials_that_pay(copies, self.predictor, steps, count, start_s)

    def batches(self, names: str | Sequence[str], *, on: Sequence[str] = ()) -> "SlicesForJob":
        """Return the largest batch of one job on slices of the GPU; see `slices_for_job`.

        Args:
            names: Names as for `at_measured_batches`.
            on: MIG profiles, or ``"whole"``; none: all.

        Raises:
            UnknownName: There is no such profile or slice.
            InvalidInput: The profiles are not of one job.
            NothingFits: The GPU has no MIG.
        """
        from advisor.plan.copies import slices_for_job

        profiles = self.at_measured_batches(names)
        slices = listed("on", on, "slices")
        largest = slices_for_job(profiles, self.card, self.predictor, slices)
        return replace(largest, standing=self.standing([Job(each) for each in profiles]))

    def admit(
        self, running: "Running", offered: JobsLike, limits: "AdmissionLimits"
    ) -> "Additions":
        """Return the jobs among `offered` that may join the running ones; see `additions`."""
        from advisor.plan.admission import Running, additions

        of_kind("what runs", running, Running, "Advisor(...).running(['NAME'], 'mps')")
        waiting = self.jobs(offered)
        answer = additions(running, waiting, self.card, self.predictor, limits)
        return replace(answer, standing=self.standing([*running.jobs, *waiting]))

    def predict(self, jobs: JobsLike, sharing: str | Sharing) -> Forecast:
        """Forecast `jobs` under one `sharing`; jobs and errors as for `recommend`.

        A mix that does not fit is forecast too: its `oom_probability` is near 1.
        """
        return self._forecast(jobs, sharing, self.power_cap_w)

    def compare(
        self,
        plans: "tuple[str | Sharing | SavedPlan, str | Sharing | SavedPlan]",
        jobs: JobsLike,
        objective: ObjectiveName = "makespan",
    ) -> "Comparison":
        """Compare the first of `plans` with the second for `jobs`: what changes, and why.

        The power cap applies to plans without one of their own; if both plans are equal, only to
        the second, so that they differ by the cap.

        Raises:
            InvalidInput: A way of sharing is none, or one for other jobs, or there are not two.
            NothingFits: The GPU cannot be cut up like that.
        """
        from advisor.launch.plan_file import SavedPlan
        from advisor.plan.ranking import best_turns
        from advisor.plan.reasons import compare

        def forecast(plan: "str | Sharing | SavedPlan", cap_w: float | None) -> Forecast:
            if isinstance(plan, SavedPlan):
                return self._forecast(members, plan.sharing, plan.power_cap_w or cap_w)
            return self._forecast(members, plan, cap_w)

        check_objective(objective)
        if len(pair := listed("plans", plans, "two ways to share")) != 2:
            raise InvalidInput(f"two plans are compared, as ('naive', 'mps'); got {len(pair)}")
        (first, second), members = pair, self.jobs(jobs)
        first_cap_w = None if first == second else self.power_cap_w
        forecasts = forecast(first, first_cap_w), forecast(second, self.power_cap_w)
        serial = self._forecast(members, best_turns(members, objective), None)
        return compare(members, self.card, forecasts, objective, serial)

    def simulate(
        self, arrivals: "Sequence[Arrival]", sharing: str | Sharing, fleet: "Fleet", *,
        at_once: int | None = None,
    ) -> "OverTime":  # fmt: skip
        """Simulate `arrivals` on the GPUs of `fleet`, each shared by `sharing`.

        Args:
            arrivals: At least one, of jobs that were measured on these GPUs.
            sharing: How each GPU is shared; its first job is the one in the first place, and so on.
                Phases need all jobs at the start, and one GPU.
            fleet: The GPUs, and the policy of the queue.
            at_once: Most jobs at once on a GPU, if `sharing` fixes no number; None: as many as fit
                in memory.

        Raises:
            InvalidInput: A number or the sharing is wrong, or the length of a job is not known.
            NothingFits: A job fits on no GPU, or the GPU does not offer these instances.
        """
        from advisor.plan.forecast import over_time
        from advisor.simulation.simulate import Fleet

        of_kind("a fleet", fleet, Fleet, f"Fleet({self.card.key!r}, 1, 'first-come')")
        if gpu_meant(fleet.gpu).key != self.card.key:
            raise InvalidInput(f"a fleet of {fleet.gpu} is for Advisor({fleet.gpu!r})")
        check_number("at_once", at_once)
        arrivals = listed("arrivals", arrivals, "Arrival(Job(...), arrival_s)")
        answer = over_time(arrivals, read_sharing(sharing), self.predictor, fleet, at_once)
        distinct = list({id(each.job): each.job for each in arrivals}.values())
        return replace(answer, standing=self.standing(distinct))

    def first_kernels(self, simulation: "Simulation") -> "tuple[ReplayedKernel, ...]":
        """Replay the kernels that the first jobs of a simulation run.

        Raises:
            InvalidInput: They share neither by time slices nor by MPS, or lack a kernel trace.
        """
        from advisor.prediction.replay import recorded

        return recorded(*simulation.first_mix, self.card, self.model.of(self.card).physics)

    def _forecast(self, jobs: JobsLike, sharing: str | Sharing, cap_w: float | None) -> Forecast:
        from advisor.plan.forecast import Mixes, forecast

        predictor = self.predictor if cap_w == self.power_cap_w else self.predictor_under(cap_w)
        members = self.jobs(jobs)
        answer = forecast(Mixes(members, predictor), read_sharing(sharing))
        return replace(answer, standing=self.standing(members))


def _check_ranking(conditions: object, level: object) -> None:
    of_kind("conditions", conditions, Conditions, "advisor.plan.rules.Conditions(root=False)")
    if level not in LEVELS:
        raise InvalidInput(f"level is one of {', '.join(LEVELS)}; got {shown(level)}")


def recommend(
    jobs: JobsLike, gpu: str = DEFAULT_GPU, objective: ObjectiveName = "makespan", *,
    conditions: Conditions = UNCONDITIONAL, level: "Level" = "p50", **sources: Any,
) -> Recommendation:  # fmt: skip
    """Answer one question; an `Advisor` that is kept answers further ones sooner."""
    return Advisor(gpu, **sources).recommend(jobs, objective, conditions=conditions, level=level)


def predict(
    jobs: JobsLike, sharing: str | Sharing, gpu: str = DEFAULT_GPU, **sources: Any
) -> Forecast:
    """Forecast `jobs` under one sharing, as ``Advisor(gpu, **sources).predict(jobs, sharing)``."""
    return Advisor(gpu, **sources).predict(jobs, sharing)
