"""Plans to hand over, with memory that a test chooses instead of a model's."""

from dataclasses import replace
from pathlib import Path

from advisor.hardware.gpus import gpu
from advisor.launch.exports import FORMATS
from advisor.launch.launch_plan import LaunchPlan, launch_plan
from advisor.prediction.prediction import Interval, JobPrediction, MixPrediction
from advisor.sharing import parse_sharing
from advisor.workload.job import Job
from advisor.workload.spec import Script
from tests import synthetic

H200 = gpu("h200-141gb")
RESNET = Job(synthetic.profile("resnet50-imagenet64-bs128"))
BERT = Job(synthetic.profile("bert-base-finetune-bs16-loader2"))
VIT = Job(synthetic.profile("gpt2-small-pretrain-bs8"))
JOBS = (RESNET, BERT, VIT)


def predicted(sharing, jobs, *, held_mib=4000.0, least_mib=3000.0, risk=0.0, cap_w=None):
    """A prediction of which only memory and its risk are looked at."""
    second = Interval(1.0, 1.0, 1.0)
    return MixPrediction(
        gpu="h200-141gb",
        sharing=parse_sharing(sharing),
        jobs=tuple(
            JobPrediction(
                job=job.name,
                step_s=second,
                epoch_s=None,
                slowdown=1.0,
                memory_mib=held_mib,
                memory_min_mib=least_mib,
                memory_interval_mib=second,
                oom_probability=risk,
            )
            for job in jobs
        ),
        memory_total_mib=held_mib * len(jobs),
        memory_capacity_mib=H200.usable_mib,
        oom_probability=risk,
        weighted_speedup=1.0,
        power_w=None,
        gract=None,
        smact=None,
        confirmed_on_hardware=False,
        power_cap_w=cap_w,
    )


def handed(sharing, jobs=JOBS[:2], **memory):
    """The plan of `jobs` under `sharing` on an H200."""
    return launch_plan(jobs, H200, predicted(sharing, jobs, **memory))


def scripted(*command, folder=".", environment=None):
    """A job whose script is this command."""
    place = str(Path(folder).resolve())
    script = Script(command=command, folder=place, environment=environment or {})
    return Job(replace(RESNET.profile, workload=replace(RESNET.profile.workload, script=script)))


def on_gpus(*plans, numbers=None, models=("h200-141gb",), host_gpus=8):
    """The plan of each GPU, as (sharing, jobs, cap), on hosts of these models in turn.

    Args:
        plans: Of each GPU, or None: it has none.
        numbers: Those of the jobs of each plan; None: all jobs in order.
        models: Keys of the models of hosts.
        host_gpus: Number of GPUs of a host.
    """
    launched, jobs_before, partitions = [], 0, 0
    for number, planned in enumerate(plans):
        if planned is None:
            continue
        sharing, jobs, *cap_w = planned
        own = launch_plan(
            jobs,
            gpu(models[number // host_gpus % len(models)]),
            predicted(sharing, jobs, cap_w=cap_w[0] if cap_w else None),
            numbers=numbers[number]
            if numbers
            else range(jobs_before + 1, jobs_before + len(jobs) + 1),
            partitions_before=partitions,
        )
        jobs_before, partitions = jobs_before + len(jobs), partitions + len(own.partitions)
        host, device = divmod(number, host_gpus)
        launched.append(replace(own, number=number, host=host, device=device))
    return tuple(launched)


def write(form, plan):
    """The text of a plan in a format, or of the plans of several GPUs."""
    return FORMATS[form].write([plan] if isinstance(plan, LaunchPlan) else plan)
