"""Predicts any mix on one GPU: pace, memory, power and activity, with intervals."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from advisor.hardware.catalogue import Gpu
from advisor.prediction import power
from advisor.prediction.engine_activity import gract_on_instances, smact_on_instances
from advisor.prediction.estimate_doubt import estimate_range, with_power_doubt
from advisor.prediction.interval import Interval
from advisor.prediction.memory import Need, Pool, needs, pools
from advisor.prediction.memory_edge import edge_for
from advisor.prediction.mig_instances import as_whole_gpu, placed
from advisor.prediction.mix_pace import around_alone, step_intervals
from advisor.prediction.mix_prediction import JobPrediction, MixPrediction, widened
from advisor.prediction.model_file import Model
from advisor.prediction.physics import replay_mix
from advisor.prediction.power import (
    PowerAndEnergy,
    PowerLaw,
    power_in_turn,
    power_together,
    with_energy,
)
from advisor.prediction.power_cap import throttled
from advisor.prediction.power_limit import held_to
from advisor.prediction.profile_gaps import why_wide
from advisor.prediction.residual import ReplayFunction
from advisor.prediction.surrogate_answers import SurrogatePredictor, surrogate_predictor
from advisor.sharing import SHARED_MODES, Arrangement, Serial
from advisor.sharing.traversal import (
    check_count,
    instance_sets,
    one_at_a_time,
    without_idle_limits,
)
from advisor.workload.profile import Profile

_EXACT = Interval(1.0, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Predictor:
    """Predicts mixes of measured jobs on one GPU.

    Attributes:
        model: The fitted model, learnt on this GPU or on others.
        play: Replays mixes.
    """

    gpu: Gpu
    model: Model
    play: ReplayFunction = replay_mix

    def on_known_cores(self) -> "Predictor":
        """The same for profiles converted to the cores at hand: its intervals are narrower."""
        return replace(self, model=self.model.on_known_cores())

    def predict(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction:
        """The prediction of each job and the GPU under `sharing`, while all jobs run.

        A mix that does not fit is predicted too; its `oom_probability` is near 1. Intervals are
        wider where the model learnt this kind of sharing on other GPUs only.

        Raises:
            InvalidInput: `sharing` has limits or instances for other jobs than these.
            NothingFits: A MIG layout that this GPU does not offer.
        """
        check_count(sharing, len(profiles))
        asked = placed(sharing, self.gpu)
        alone = one_at_a_time(asked, len(profiles))
        learnt_as: Arrangement = Serial() if alone else asked
        mix = self._as_if_learnt_here(
            profiles, asked, confirmed=self._confirmed(profiles, learnt_as)
        )
        if alone:
            mix = replace(mix, jobs=tuple(replace(job, slowdown_error=_EXACT) for job in mix.jobs))
        mix = self._by_runs_elsewhere(profiles, learnt_as, mix)
        mix = replace(mix, jobs=tuple(map(self._no_faster_than_alone, profiles, mix.jobs)))
        return held_to(mix, self.gpu.power_limit_w)

    def surrogate(self, profiles: Sequence[Profile]) -> SurrogatePredictor | None:
        """The surrogate for searching; None without a surrogate model, traces or counters."""
        return surrogate_predictor(profiles, self.gpu, self.model)

    def _as_if_learnt_here(
        self, profiles: Sequence[Profile], asked: Arrangement, *, confirmed: bool
    ) -> MixPrediction:
        """The prediction by what the model knows, wherever it learnt that; `asked` is placed."""
        own = self.model.of(self.gpu)
        sharing = without_idle_limits(as_whole_gpu(asked, self.gpu))
        steps = self._steps(profiles, sharing)
        drawn = self._drawn(profiles, steps, sharing)
        wanted = needs(profiles, sharing, own.context, self.gpu)
        memories = pools(self.gpu, asked, len(profiles), own.mps_server_mib)
        risks, pool_risks = self._risks(wanted, memories)
        plain = map(self._job, profiles, steps, wanted, risks)
        jobs = tuple(map(with_energy, plain, profiles, drawn.energy_step_j))
        in_turn = sharing.mode == "serial"
        total = max if in_turn else sum
        speeds = [1 / len(jobs) if in_turn else 1 / job.slowdown for job in jobs]
        return MixPrediction(
            gpu=self.gpu.key, sharing=asked, jobs=jobs,
            memory_total_mib=total(each.held_mib for each in wanted),
            memory_capacity_mib=total(pool.capacity_mib for pool in memories),
            oom_probability=1 - prod(1 - risk for risk in pool_risks),
            weighted_speedup=1.0 if in_turn else sum(speeds), power_w=drawn.power_w,
            gract=self._gract(profiles, sharing, steps, speeds),
            smact=self._smact(profiles, sharing, speeds),
            confirmed_on_hardware=confirmed, mps_server_mib=own.mps_server_mib,
            wide_because=why_wide(profiles, sharing, self.gpu),
        )  # fmt: skip

    def _steps(self, profiles: Sequence[Profile], sharing: Arrangement) -> Sequence[Interval]:
        """Step of each job; MIG instances also share the whole GPU's power limit."""
        steps = step_intervals(profiles, sharing, self.gpu, self.model, self.play)
        if any(instance_sets(sharing)):
            return throttled(profiles, steps, self.gpu, self.model.of(self.gpu).power)
        return steps

    def _confirmed(self, profiles: Sequence[Profile], sharing: Arrangement) -> bool:
        """Whether this kind of sharing was measured on this GPU; a job alone has no kind."""
        if any(each.is_estimate for each in profiles):
            return False
        return sharing.mode == "serial" or self.gpu.key in self.model.learnt_on(sharing.mode)

    def _by_runs_elsewhere(
        self, profiles: Sequence[Profile], sharing: Arrangement, mix: MixPrediction
    ) -> MixPrediction:
        """`mix` with the GPUs whose runs stand in for those of this one, and wider intervals."""
        others = self._others(sharing)
        sources = {each.estimated_from for each in profiles if each.estimated_from}.union(others)
        if not sources:
            return mix
        learnt = sharing.mode == "serial" or bool(self.model.learnt_on(sharing.mode))
        mix = replace(mix, estimated_from=", ".join(sorted(sources)), ran_elsewhere=learnt)
        return widened(mix, self.model.widening(self.gpu)) if others else mix

    def _others(self, sharing: Arrangement) -> tuple[str, ...]:
        """GPUs whose runs stand in for those of this one, which the model lacks."""
        if sharing.mode == "serial":
            return ()
        taught: tuple[str, ...] = (*self.model.data,)
        if sharing.mode in SHARED_MODES:
            taught = self.model.learnt_on(sharing.mode)
        return () if self.gpu.key in taught else taught

    def _risks(
        self, wanted: Sequence[Need], memories: Sequence[Pool]
    ) -> tuple[list[float], list[float]]:
        """Chance that each job is refused memory, and that each pool runs out of it."""
        edges, sigma = self.model.of(self.gpu).memory_edges, self.model.memory_sigma
        of_jobs, of_pools = [0.0] * len(wanted), []
        for pool in memories:
            edge = edge_for(edges, pool.mode, len(pool.jobs), sigma)
            together = [wanted[job] for job in pool.jobs]
            of_pools.append(edge.risk(together, pool.capacity_mib))
            each = edge.risk_of_each(together, pool.capacity_mib)
            for job, risk in zip(pool.jobs, each, strict=True):
                of_jobs[job] = risk
        return of_jobs, of_pools

    def _job(
        self, profile: Profile, step_s: Interval, need_mib: Need, risk: float
    ) -> JobPrediction:
        steps = profile.workload.steps_per_epoch
        return JobPrediction(
            job=profile.name,
            step_s=step_s,
            epoch_s=None if steps is None else step_s.scaled(steps),
            slowdown=step_s.p50 / profile.step_s,
            memory_mib=need_mib.held_mib,
            memory_min_mib=need_mib.least_mib,
            memory_interval_mib=need_mib.interval_mib(self.model.memory_sigma),
            oom_probability=risk,
        )

    def _no_faster_than_alone(self, profile: Profile, job: JobPrediction) -> JobPrediction:
        """`job` without the part of a range in which mates would hasten a job of bare numbers.

        Their ranges are so wide that they hold that, too.
        """
        if profile.trace is not None:
            return job
        alone_s = around_alone(profile, profile.step_s, self.model).times(estimate_range(profile))
        return job.no_faster_than(alone_s.p05)

    def _gract(
        self,
        profiles: Sequence[Profile],
        sharing: Arrangement,
        steps: Sequence[Interval],
        speeds: Sequence[float],
    ) -> float | None:
        own = self.model.of(self.gpu)
        for hybrid in instance_sets(sharing):
            constants = own.physics, own.power
            return gract_on_instances(profiles, hybrid, steps, self.gpu, constants)
        activity = power.gract_under_limits if sharing.limits else power.gract
        return activity(profiles, speeds, self._law(profiles, sharing))

    def _smact(
        self, profiles: Sequence[Profile], sharing: Arrangement, speeds: Sequence[float]
    ) -> float | None:
        for hybrid in instance_sets(sharing):
            own = self.model.of(self.gpu)
            constants = own.physics, own.power
            return smact_on_instances(profiles, hybrid, speeds, self.gpu, constants)
        return power.smact(profiles, speeds, self._law(profiles, sharing))

    def _law(self, profiles: Sequence[Profile], sharing: Arrangement) -> PowerLaw:
        """The law of power and activity; jobs in turn have the law of a job alone."""
        jobs = 1 if sharing.mode == "serial" else len(profiles)
        power = self.model.of(self.gpu).power
        return power.law(sharing.mode, jobs, sharing.keeps_sms_apart)

    def _drawn(
        self, profiles: Sequence[Profile], steps: Sequence[Interval], sharing: Arrangement
    ) -> PowerAndEnergy:
        power = self.model.of(self.gpu).power
        if sharing.mode == "serial":
            drawn = power_in_turn(profiles, steps, self.gpu, power)
        else:
            law = self._law(profiles, sharing)
            drawn = power_together(profiles, steps, self.gpu, power, law)
        return with_power_doubt(drawn, profiles)
