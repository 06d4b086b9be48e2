"""A GPU whose partitions slow each other a little, simple enough to try all plans.

What a job does beside others follows from plain rules of this page, which the brute force beside
it uses too; the solver sees them only through `Toy`, as it sees any predictor.
"""

from advisor.hardware.mig_layouts import place, profile_of
from advisor.prediction.interval import Interval
from advisor.prediction.mix_prediction import JobPrediction, MixPrediction
from advisor.sharing import Hybrid, Mig, Mps, Naive, Serial, one_job_each

IDLE_W, MPS_GAIN = 75.0, 0.8


def room_steps(profiles, share, sharing):
    """Seconds of a step of each of the jobs in a partition with so much of the GPU."""
    if len(profiles) == 1 and not isinstance(sharing, Mps):
        return [max(profiles[0].host_s, profiles[0].gpu_s / share)]
    busy_s = sum(each.gpu_s for each in profiles) / share
    if isinstance(sharing, Naive):
        return [max(each.host_s, busy_s) for each in profiles]
    limits = sharing.limits or (100.0,) * len(profiles)
    # Whoever has much memory suffers more: so that sets differ in more than one number.
    worse = [1 + each.memory.device_mib / 1e5 for each in profiles]
    return [
        max(each.host_s, MPS_GAIN * busy_s * bad, each.gpu_s / share * 100 / limit)
        for each, limit, bad in zip(profiles, limits, worse, strict=True)
    ]


def slower(partitions, parts):
    """Factor on all steps where so many partitions are in use, in an instance cut into `parts`."""
    return (1 + 0.04 * (partitions - 1)) * (1 + 0.1 * (parts - 1))


class Toy:
    """Answers by the rules above; the interval is 20 % wider for jobs that wait for hosts."""

    def __init__(self, gpu):
        self.gpu = gpu

    def surrogate(self, profiles):
        """It is fast enough itself."""

    def predict(self, profiles, sharing):
        if isinstance(sharing, Mig):
            sharing = one_job_each(sharing.instances)
        if isinstance(sharing, Hybrid):
            place(self.gpu, sharing.instances)
        steps, fits = self._steps(profiles, sharing)
        powers = [200.0 * each.gpu_s / step for each, step in zip(profiles, steps, strict=True)]
        alone = isinstance(sharing, Serial)
        jobs = tuple(
            self._job(profile, step_s, own_w + IDLE_W / (1 if alone else len(profiles)))
            for profile, step_s, own_w in zip(profiles, steps, powers, strict=True)
        )
        total_w = IDLE_W + sum(powers) / (len(powers) if alone else 1)
        return MixPrediction(
            gpu=self.gpu.key, sharing=sharing, jobs=jobs, memory_total_mib=1.0,
            memory_capacity_mib=1.0, oom_probability=float(not fits),
            weighted_speedup=1.0 if alone else sum(1 / job.slowdown for job in jobs),
            power_w=Interval(total_w, total_w, total_w), gract=None, smact=None,
            confirmed_on_hardware=not isinstance(sharing, Hybrid),
        )  # fmt: skip

    def _steps(self, profiles, sharing):
        held = [each.memory.device_mib for each in profiles]
        if isinstance(sharing, Serial):
            return [each.step_s for each in profiles], max(held) <= self.gpu.usable_mib
        if not isinstance(sharing, Hybrid):
            return room_steps(profiles, 1.0, sharing), sum(held) <= self.gpu.usable_mib
        steps, fits, partitions = {}, True, len(sharing.partitions)
        for each in sharing.places:
            instance = profile_of(self.gpu, each.instance.profile)
            fits &= sum(held[job - 1] for job in each.jobs) <= instance.memory_mib
            for partition in each.partitions:
                slices = partition.slices or instance.compute_slices
                own = [profiles[job - 1] for job in partition.jobs]
                found = room_steps(own, slices / 8, partition.sharing)
                factor = slower(partitions, len(each.partitions))
                steps |= {job: factor * s for job, s in zip(partition.jobs, found, strict=True)}
        return [steps[job] for job in sorted(steps)], fits

    def _job(self, profile, step_s, power_w):
        around = Interval(0.9 * step_s, step_s, 1.1 * step_s * (1.2 - 0.2 * profile.busy_share))
        held = profile.memory.device_mib
        energy = around.scaled(power_w)
        steps = profile.workload.steps_per_epoch
        return JobPrediction(
            job=profile.name, step_s=around, epoch_s=None, slowdown=step_s / profile.step_s,
            memory_mib=held, memory_min_mib=held, memory_interval_mib=Interval(held, held, held),
            oom_probability=0.0, energy_step_j=energy,
            energy_epoch_j=steps and energy.scaled(steps),
            energy_example_j=energy.scaled(1 / profile.workload.batch),
        )  # fmt: skip
