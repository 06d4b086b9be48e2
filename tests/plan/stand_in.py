"""A predictor simple enough to check by hand; the planner must not care which one it asks."""

from dataclasses import replace

from advisor.hardware.gpus import gpu
from advisor.hardware.mig import profile_of
from advisor.plan.ranking import recommended
from advisor.plan.rules import UNCONDITIONAL
from advisor.plan.values import GpuPool
from advisor.prediction.mig_instances import placed
from advisor.prediction.prediction import Interval, JobPrediction, MixPrediction
from advisor.sharing import Hybrid, Mig, Mps, Naive, Serial

H200 = gpu("h200-141gb")
NO_MIG = replace(H200, mig=(), memory_slices=0)


class StandIn:
    """GPU time adds up under naive; MPS wins a fifth of it; a MIG instance is a part of the GPU.

    A limit stretches a job's own GPU time. Intervals are 10 % either way, shared or not.
    """

    def __init__(self, model=H200, wide=0.1):
        self.gpu, self.wide, self.asked = model, wide, 0

    def predict(self, profiles, sharing):
        self.asked += 1
        sharing = placed(sharing, self.gpu)
        steps = self._steps(profiles, sharing)
        pools = self._capacities(profiles, sharing)
        serial = isinstance(sharing, Serial)
        held = [each.memory.device_mib for each in profiles]
        taken = self._taken(held, sharing)
        jobs = tuple(
            JobPrediction(
                job=profile.name,
                step_s=self._around(step_s),
                epoch_s=self._epoch(profile, profile.paced_s(step_s)),
                with_ends_s=profile.epoch_end and self._around(profile.paced_s(step_s)),
                slowdown=step_s / profile.step_s,
                memory_mib=profile.memory.device_mib,
                memory_min_mib=profile.memory.allocated_mib,
                memory_interval_mib=self._around(profile.memory.device_mib),
                oom_probability=float(mib > pool),
            )
            for profile, step_s, mib, pool in zip(profiles, steps, taken, pools, strict=True)
        )
        speeds = [1 / job.slowdown for job in jobs]
        powered = all(each.power_w for each in profiles)
        return MixPrediction(
            gpu=self.gpu.key,
            sharing=sharing,
            jobs=jobs,
            memory_total_mib=max(held) if serial else sum(held),
            memory_capacity_mib=sum(pools) if isinstance(sharing, Mig | Hybrid) else max(pools),
            oom_probability=max(job.oom_probability for job in jobs),
            weighted_speedup=1.0 if serial else sum(speeds),
            power_w=self._around(100.0 + 100.0 * len(profiles)) if powered else None,
            gract=min(1.0, sum(p.gpu_s / s for p, s in zip(profiles, steps, strict=True))),
            smact=None,
            confirmed_on_hardware=not isinstance(sharing, Mig | Hybrid),
        )

    def surrogate(self, profiles):
        """It is fast enough to be asked itself."""

    def _steps(self, profiles, sharing):
        match sharing:
            case Serial():
                return [each.step_s for each in profiles]
            case Naive():
                busy = sum(each.gpu_s for each in profiles)
                return [max(each.step_s, busy) for each in profiles]
            case Mps(limits):
                parts = [limit / 100 for limit in limits] or [1.0] * len(profiles)
                busy = 0.8 * sum(each.gpu_s for each in profiles)
                return [
                    max(each.step_s, busy, each.gpu_s / part)
                    for each, part in zip(profiles, parts, strict=True)
                ]
            case Mig(instances):
                parts = [profile_of(self.gpu, each.profile).sms / 132 for each in instances]
                return [
                    max(each.step_s, each.gpu_s / part)
                    for each, part in zip(profiles, parts, strict=True)
                ]

            case Hybrid():
                return self._in_rooms(profiles, sharing)

    def _in_rooms(self, profiles, hybrid):
        steps = {}
        for each in hybrid.places:
            instance = profile_of(self.gpu, each.instance.profile)
            for room in each.partitions:
                slices = room.slices or instance.compute_slices
                part = instance.sms / 132 * slices / instance.compute_slices
                own = [profiles[job - 1] for job in room.jobs]
                gain = 0.8 if isinstance(room.sharing, Mps) else 1.0
                busy = gain * sum(profile.gpu_s for profile in own) / part
                steps |= {
                    job: max(profile.step_s, busy)
                    for job, profile in zip(room.jobs, own, strict=True)
                }
        return [steps[job] for job in sorted(steps)]

    def _taken(self, held, sharing):
        if isinstance(sharing, Hybrid):
            sums = {
                job: sum(held[mate - 1] for mate in each.jobs)
                for each in sharing.places
                for job in each.jobs
            }
            return [sums[job] for job in sorted(sums)]
        return [sum(held)] * len(held) if isinstance(sharing, Naive | Mps) else held

    def _capacities(self, profiles, sharing):
        if isinstance(sharing, Hybrid):
            rooms = {job: each.instance for each in sharing.places for job in each.jobs}
            return [profile_of(self.gpu, rooms[job].profile).memory_mib for job in sorted(rooms)]
        if isinstance(sharing, Mig):
            return [profile_of(self.gpu, each.profile).memory_mib for each in sharing.instances]
        return [self.gpu.memory_mib] * len(profiles)

    def _around(self, value):
        return Interval(value * (1 - self.wide), value, value * (1 + self.wide))

    def _epoch(self, profile, step_s):
        steps = profile.workload.steps_per_epoch
        return None if steps is None else self._around(steps * step_s)


class Apart:
    """Jobs that do not slow each other on the GPU."""

    def predict(self, profiles, sharing):
        mix = StandIn(wide=0).predict(profiles, Serial())
        jobs = tuple(replace(job, slowdown=1.0) for job in mix.jobs)
        return replace(mix, sharing=sharing, jobs=jobs, weighted_speedup=float(len(jobs)))

    def surrogate(self, _profiles):
        return None


def ranked(jobs, gpu, predictor, objective, conditions=UNCONDITIONAL, level="p50"):
    """The plans for the jobs on one GPU."""
    pool = GpuPool(gpu=gpu, hosts=1, host_gpus=1, jobs=tuple(jobs), predictor=predictor)
    return recommended([pool], objective, conditions, level)
