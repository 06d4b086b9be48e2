"""Predicts any mix on one GPU: pace, memory, power and activity, with intervals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import hypot, prod

import numpy as np

from advisor.errors import InvalidInput
from advisor.files.units import DAY_S, LEAST_STEP_S
from advisor.hardware.gpus import Gpu, known_gpus
from advisor.hardware.machine import Calibration
from advisor.hardware.partition import whole_gpu
from advisor.prediction import power
from advisor.prediction.cache import cached_by_profiles
from advisor.prediction.capacity import (
    numbers,
    steps_of_sets,
    what_is_known,
    without_trace,
)
from advisor.prediction.host import Host
from advisor.prediction.memory import Z95, Need, Pool, edge_for, needs, pools
from advisor.prediction.mig_instances import as_whole_gpu, on_instances, placed
from advisor.prediction.mix_steps import (
    ReplayFunction,
    SurrogatePredictor,
    alone_s,
    steps_together,
    surrogate_predictor,
)
from advisor.prediction.model import Model, calibrated_constants
from advisor.prediction.parts import any_busy, slices_follow_memory, slowdown_on
from advisor.prediction.prediction import (
    Interval,
    JobPrediction,
    MixPrediction,
    interval_around,
    spanning,
    widened,
)
from advisor.prediction.replay import replay_mix
from advisor.sharing import SHARED_MODES, Arrangement, Concurrent, Serial
from advisor.sharing.groups import (
    check_count,
    instance_sets,
    jobs_apart,
    one_at_a_time,
    together,
    without_idle_limits,
    without_phases,
)
from advisor.workload.profile import Profile

# Standard deviation of the log of an estimated step over the measured one: of 71 workloads from an
# H200 to an H100 and back, and of those that others timed on GPUs of four other architectures.
_SPREAD_WITHIN, _SPREAD_ACROSS = 0.03, 0.14


# Standard deviation of the log of power: translated from an H200 to an H100, the power of 71
# workloads beyond idle, while busy, is a sixth off, and a quarter the other way.
_POWER_SPREAD = 0.25


def estimate_spread(profile: Profile) -> float:
    """Return the standard deviation of the log of an estimated step; 0 if it was measured."""
    if not profile.is_estimate:
        return 0.0
    own, source = known_gpus().get(profile.gpu), known_gpus().get(profile.estimated_from or "")
    related = own is not None and source is not None and own.architecture == source.architecture
    return _with_batches(profile, _SPREAD_WITHIN if related else _SPREAD_ACROSS)


def _with_batches(profile: Profile, of_gpu: float) -> float:
    """Return the spread by other batch sizes, and `of_gpu` if estimated from another GPU."""
    of_batch = profile.other_batches.step_spread if profile.other_batches else 0.0
    return hypot(of_batch, of_gpu) if profile.estimated_from else of_batch


def _estimate_range(profile: Profile) -> Interval:
    """Return the factor on the step of a profile; 1 throughout if the profile was measured."""
    end = Z95 * estimate_spread(profile)
    return interval_around(1.0, -end, end)


# Log of a step at another moment over the one that the user watched, on the same host: a choice. A
# job that fills the GPU repeats within 2 %, public programs that do not within 8 to 14 %.
_MOMENT = 0.06


def _is_users(profile: Profile) -> bool:
    """Return whether only numbers are known, which the user watched on their own host."""
    return profile.trace is None and profile.provenance is None


def _range_alone(profile: Profile, model: Model) -> Interval:
    """Return the range of the step of a job alone on the whole GPU, over its median."""
    if _is_users(profile):
        return interval_around(1.0, -_MOMENT, _MOMENT)
    return model.intervals["serial"].around(profile, profile.step_s).scaled(1 / profile.step_s)


# Parts of a profile: whether a profile lacks it, and its use, in words.
_PARTS: Mapping[str, tuple[Callable[[Profile], bool], str]] = {
    "utilisation": (
        lambda each: each.gpu_s is None and each.trace is None,
        "the time for which it keeps the GPU busy",
    ),
    "memory utilisation": (
        lambda each: each.trace is None and not _counted(each, "memory_utilization"),
        "the cost of a slice",
    ),
    "kernel trace": (lambda each: each.trace is None, "the SMs that it leaves to others"),
    "counters of SMs": (
        lambda each: not _counted(each, "sm_active"),
        "its load on SMs and memory, by GPM or, before Hopper, by DCGM",
    ),
    "MPS probe": (lambda each: each.mps is None, "the cost of limits alone, by `--probe`"),
}
_UNDER_LIMITS = ("utilisation", "kernel trace", "counters of SMs", "MPS probe")
_SIDE_BY_SIDE = _UNDER_LIMITS[:3]
# Jobs in turn have the SMs to themselves, as a job alone has those of its instance or limit.
_ON_OWN_SMS = ("utilisation", "kernel trace")
_ALONE = (
    "ranges are narrower than under MPS, because a job is alone on an instance; the memory "
    "utilisation shows the cost of fewer SMs and less bandwidth"
)
_WIDE = {"kernel trace", "memory utilisation"}


def _counted(profile: Profile, counter: str) -> bool:
    return getattr(profile.counters, counter, None) is not None


def without_utilisation(profiles: Sequence[Profile]) -> tuple[str, ...]:
    """Return the names of the `profiles` that lack how long their jobs keep the GPU busy."""
    lacks, _ = _PARTS["utilisation"]
    return tuple(dict.fromkeys(each.name for each in profiles if lacks(each)))


def why_wide(profiles: Sequence[Profile], sharing: Arrangement, gpu: Gpu) -> str | None:
    """Explain why intervals for `profiles` under `sharing` are wide; None if nothing is missing.

    The text names the missing parts that matter here, with their uses. For bare numbers on MIG
    instances it explains why intervals are narrower than elsewhere.
    """
    shared = together(sharing)
    parts: tuple[str, ...] = ()
    if instance_sets(sharing):
        parts = ("memory utilisation",) if slices_follow_memory(gpu) else _ON_OWN_SMS
    elif shared is not None and len(profiles) == 1:
        parts = _ON_OWN_SMS if shared.limits else ()
    elif shared is not None:
        side_by_side = _UNDER_LIMITS if shared.limits else _SIDE_BY_SIDE
        parts = side_by_side if shared.under_mps else _ON_OWN_SMS
    lacking: dict[tuple[str, ...], set[str]] = {}
    for profile in profiles:
        missing = tuple(part for part in parts if _PARTS[part][0](profile))
        lacking.setdefault(missing, set()).add(profile.name)
    lacking.pop((), None)
    if not lacking:
        bare = sharing.mode == "mig" and any(each.trace is None for each in profiles)
        return _ALONE if bare else None
    wide = "wide" if any(_WIDE.intersection(each) for each in lacking) else "somewhat wider"
    listed = "; ".join(
        f"{', '.join(sorted(names))} has no "
        + ", no ".join(f"{part} ({_PARTS[part][1]})" for part in missing)
        for missing, names in lacking.items()
    )
    return f"ranges are {wide} because {listed}"


# A thousandth of the shortest step, and a million times the longest.
_LEAST_S, _MOST_S = 1e-3 * LEAST_STEP_S, 1e6 * DAY_S


def step_intervals(
    profiles: Sequence[Profile],
    sharing: Arrangement,
    gpu: Gpu,
    model: Model,
    replay: ReplayFunction = replay_mix,
) -> list[Interval]:
    """Predict seconds of a step of each job, in the jobs' order; `replay` replays.

    Raises:
        InvalidInput: The model predicts no time or an endless step: it was not fitted properly.
    """
    shared, alone = together(sharing), partial(_range_alone, model=model)
    if sets := instance_sets(sharing):
        steps_on = partial(_on_instance, model=model)
        steps = on_instances(profiles, sets[0], gpu, model.of(gpu).physics, steps_on, alone)
    elif shared is None:
        ranges = list(map(alone, profiles))
        steps = [each.scaled(job.step_s) for each, job in zip(ranges, profiles, strict=True)]
    else:
        steps = _on_gpu(profiles, shared, gpu, model, replay)
    steps = [
        step.times(_estimate_range(profile)) if profile.is_estimate else step
        for step, profile in zip(steps, profiles, strict=True)
    ]
    if min(each.p05 for each in steps) < _LEAST_S or max(each.p95 for each in steps) > _MOST_S:
        raise InvalidInput(
            f"the model predicts a step of zero or of years on {gpu.key}. Fit it again: `advisor "
            "fit`."
        )
    return steps


@cached_by_profiles  # many layouts have instances with the same jobs on them
def _on_instance(
    profiles: Sequence[Profile], sharing: Concurrent, gpu: Gpu, model: Model
) -> list[Interval]:
    return _on_gpu(profiles, sharing, gpu, model, replay_mix)


def _on_gpu(
    profiles: Sequence[Profile], sharing: Concurrent, gpu: Gpu, model: Model, replay: ReplayFunction
) -> list[Interval]:
    if len(profiles) == 1:
        return [_alone_under(profiles[0], sharing, gpu, model, replay)]
    sharing = without_idle_limits(sharing)
    steps = steps_together(profiles, sharing, gpu, model, replay)
    if steps is None:
        return _by_capacity(profiles, sharing, gpu, model)
    return [Interval(*map(float, each)) for each in steps.T]


def _alone_under(
    profile: Profile, sharing: Concurrent, gpu: Gpu, model: Model, replay: ReplayFunction
) -> Interval:
    """Predict the step of a job alone on the GPU, or on what a limit leaves it."""
    alone = _range_alone(profile, model)
    if not sharing.limits:
        return alone.scaled(profile.step_s)
    if profile.trace is None:
        part = whole_gpu(gpu).limited(sharing.limits[0])
        return slowdown_on(profile, part, alone).scaled(profile.step_s)
    step_s = alone_s(profile, sharing, gpu, model, replay)
    ends = model.intervals.get("mps-limits", model.intervals["serial"])
    return ends.around(profile, step_s).at_least(alone.scaled(profile.step_s))


# Time slices of other architectures are unknown: three training loops on a V100 (PEACE) were up
# to 10 % slower in pairs, and up to 11 % faster.
_OTHER_SLICES = interval_around(1.0, -0.08, 0.08)


def _by_capacity(
    profiles: Sequence[Profile], sharing: Concurrent, gpu: Gpu, model: Model
) -> list[Interval]:
    """Predict steps by the capacity model, for jobs of which one has no trace."""
    bare = [without_trace(each) for each in profiles]
    if any(each.gpu_s is None for each in bare):
        answers = [_by_capacity(each, sharing, gpu, model) for each in any_busy(bare)]
        return [spanning(each) for each in zip(*answers, strict=True)]
    if model.capacity is None or sharing.mode not in model.capacity.intervals:
        # Nothing was fitted: between no loss and strict turns.
        most = len(profiles)
        return [Interval(1.0, (1 + most) / 2, most).scaled(each.step_s) for each in profiles]
    limits = np.array(sharing.limits or 100.0)
    together = np.arange(len(profiles))[None]
    (steps_s,) = steps_of_sets(bare, together, sharing, gpu, model.capacity, limits)
    known = what_is_known(numbers(bare, gpu))
    intervals = model.capacity.intervals[sharing.mode][known]
    steps = [intervals.around(each, float(s)) for each, s in zip(bare, steps_s, strict=True)]
    if sharing.mode == "naive" and model.widening(gpu) > model.unseen.alike:
        steps = [step.times(_OTHER_SLICES) for step in steps]
    if not sharing.limits:
        return steps
    # No end is shorter than the job's alone under its limit.
    limited = [whole_gpu(gpu).limited(limit) for limit in sharing.limits]
    return [
        step.at_least(slowdown_on(each, part).scaled(each.step_s))
        for step, each, part in zip(steps, bare, limited, strict=True)
    ]


_EXACT = Interval(1.0, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Predictor:
    """Predictor of mixes of measured jobs on one GPU.

    Attributes:
        model: The fitted model, learnt on this GPU or on others.
        host: Host of all jobs; None: hosts as fast as those of the profiles. The slowdown of a
            job is relative to the job alone on this host.
    """

    gpu: Gpu
    model: Model
    replay: ReplayFunction = replay_mix
    host: Host | None = None

    def on_known_host(self) -> "Predictor":
        """Return the predictor of profiles converted to this host: its intervals are narrower."""
        return replace(self, model=self.model.on_known_host())

    def predict(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction:
        """Predict each job and the GPU under `sharing`, while all jobs run.

        A mix that does not fit is predicted too; its `oom_probability` is near 1. Intervals are
        wider where the model learnt this kind of sharing on other GPUs only.

        Raises:
            InvalidInput: `sharing` has limits or instances for other jobs than these.
            NothingFits: A MIG layout that this GPU does not offer.
        """
        check_count(sharing, len(profiles))
        if without_phases(sharing) is None:
            raise InvalidInput(f"{sharing}: some of its jobs wait for others. Use Advisor.predict.")
        profiles = profiles if self.host is None else self.host.convert(profiles)
        sharing = placed(sharing, self.gpu)
        whole = without_idle_limits(as_whole_gpu(sharing, self.gpu))
        steps = step_intervals(profiles, whole, self.gpu, self.model, self.replay)
        mix = self._with_steps(profiles, sharing, whole, steps)
        alone = one_at_a_time(sharing, len(profiles))
        # Whether this kind of sharing was measured on this GPU; a job alone has no kind.
        confirmed = not any(each.is_estimate for each in profiles) and (
            alone or self.gpu.key in self.model.learnt_on(sharing.mode)
        )
        mix = replace(mix, confirmed_on_hardware=confirmed)
        if alone:
            mix = replace(mix, jobs=tuple(replace(job, slowdown_error=_EXACT) for job in mix.jobs))
        mix = self._by_runs_elsewhere(profiles, Serial() if alone else sharing, mix)
        if not alone:
            jobs = (
                job.no_faster_than(self._fastest_s(profile))
                for profile, job in zip(profiles, mix.jobs, strict=True)
            )
            mix = replace(mix, jobs=tuple(jobs))
        return power.held_to(mix, self.gpu.power_limit_w)

    def surrogate(self, profiles: Sequence[Profile]) -> SurrogatePredictor | None:
        """Return the estimates to search by."""
        here = profiles if self.host is None else self.host.convert(profiles)
        return surrogate_predictor(here, self.gpu, self.model)

    def _with_steps(
        self,
        profiles: Sequence[Profile],
        placed_as: Arrangement,
        sharing: Arrangement,
        steps: list[Interval],
    ) -> MixPrediction:
        """Predict the mix from its steps, by all that the model learnt, on any GPU."""
        own = self.model.of(self.gpu)
        if instance_sets(sharing):  # they share the whole GPU's power limit
            steps = power.throttled(profiles, steps, self.gpu, own.power)
        in_turn = sharing.mode == "serial"
        power_w, step_j = power.power_and_energy(profiles, steps, self.gpu, own.power, sharing.mode)
        if any(each.is_estimate for each in profiles):
            # Over batch sizes power and time grow together: power is as uncertain as the step.
            end = Z95 * max(_with_batches(each, _POWER_SPREAD) for each in profiles)
            doubt = interval_around(1.0, -end, end)
            power_w = power_w and power_w.times(doubt)
            step_j = tuple(each and each.times(doubt) for each in step_j)
        wanted = needs(profiles, sharing, own.context, self.gpu)
        memories = pools(self.gpu, placed_as, len(profiles), own.mps_server_mib)
        risks, pool_risks = self._risks(wanted, memories)
        jobs = tuple(map(self._job, profiles, steps, wanted, risks, step_j))
        total = max if in_turn else sum
        speeds = [1 / len(jobs) if in_turn else 1 / job.slowdown for job in jobs]
        if sets := instance_sets(sharing):
            gract, smact = power.activity_on_instances(
                profiles, sets[0], steps, self.gpu, own.physics
            )
        else:
            gract = power.gract(profiles, speeds, sharing.mode)
            smact = power.smact(profiles, speeds, sharing)
        return MixPrediction(
            gpu=self.gpu.key,
            sharing=placed_as,
            jobs=jobs,
            memory_total_mib=total(each.held_mib for each in wanted),
            memory_capacity_mib=total(pool.capacity_mib for pool in memories),
            oom_probability=1 - prod(1 - risk for risk in pool_risks),
            weighted_speedup=1.0 if in_turn else sum(speeds),
            power_w=power_w,
            gract=gract,
            smact=smact,
            confirmed_on_hardware=False,
            mps_server_mib=own.mps_server_mib,
            wide_because=why_wide(profiles, sharing, self.gpu),
        )

    def _by_runs_elsewhere(
        self, profiles: Sequence[Profile], sharing: Arrangement, mix: MixPrediction
    ) -> MixPrediction:
        """Name in `mix` the GPUs whose runs stand in for those of this one, and widen intervals."""
        taught: tuple[str, ...] = (*self.model.data,)
        if sharing.mode in SHARED_MODES:
            taught = self.model.learnt_on(sharing.mode)
        others = () if sharing.mode == "serial" or self.gpu.key in taught else taught
        sources = {each.estimated_from for each in profiles if each.estimated_from}.union(others)
        if not sources:
            return mix
        learnt = sharing.mode == "serial" or bool(self.model.learnt_on(sharing.mode))
        mix = replace(mix, estimated_from=", ".join(sorted(sources)), ran_elsewhere=learnt)
        apart = jobs_apart(sharing, len(profiles))
        return widened(mix, self.model.widening(self.gpu), apart) if others else mix

    def _risks(
        self, wanted: Sequence[Need], memories: Sequence[Pool]
    ) -> tuple[list[float], list[float]]:
        """Return chances that each job is refused memory, and that each pool runs out of it."""
        edges, sigma = self.model.of(self.gpu).memory_edges, self.model.memory_sigma
        of_jobs, of_pools = [0.0] * len(wanted), []
        for pool in memories:
            edge = edge_for(edges, pool.mode, len(pool.jobs), sigma)
            shared = [wanted[job] for job in pool.jobs]
            of_pools.append(edge.risk(shared, pool.capacity_mib))
            for job, risk in zip(pool.jobs, edge.risk_of_each(shared, of_pools[-1]), strict=True):
                of_jobs[job] = risk
        return of_jobs, of_pools

    def _job(
        self,
        profile: Profile,
        step_s: Interval,
        need_mib: Need,
        risk: float,
        energy: Interval | None,
    ) -> JobPrediction:
        steps, batch = profile.workload.steps_per_epoch, profile.workload.batch
        paced_s = power.paced(profile, step_s)
        return JobPrediction(
            job=profile.name,
            step_s=step_s,
            epoch_s=None if steps is None else paced_s.scaled(steps),
            with_ends_s=None if paced_s == step_s else paced_s,
            slowdown=step_s.p50 / profile.step_s,
            memory_mib=need_mib.held_mib,
            memory_min_mib=need_mib.least_mib,
            memory_interval_mib=need_mib.interval_mib(self.model.memory_sigma),
            oom_probability=risk,
            energy_step_j=energy,
            energy_epoch_j=None if steps is None or energy is None else energy.scaled(steps),
            energy_example_j=energy and energy.scaled(1 / batch),
        )

    def _fastest_s(self, profile: Profile) -> float:
        """Return the shortest step that others may leave a job: the user's own, if it is theirs."""
        if _is_users(profile) and not profile.is_estimate:
            return profile.step_s
        alone = _range_alone(profile, self.model).times(_estimate_range(profile))
        return profile.step_s * alone.p05


def calibrated_predictor(predictor: Predictor, calibration: Calibration) -> Predictor:
    """Return `predictor` with the measured constants of its GPU instead of fitted ones."""
    gpu, model = predictor.gpu, predictor.model
    own = calibrated_constants(model.of(gpu), calibration, fitted=gpu.key in model.constants)
    gpu = replace(gpu, reserved_mib=round(calibration.contexts.driver_mib))
    model = replace(model, constants={**model.constants, gpu.key: own})
    return replace(predictor, gpu=gpu, model=model)
