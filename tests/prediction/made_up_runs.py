"""Made-up runs of a few jobs, which take `TRUTH` times what replay says, and a watched job."""

from dataclasses import replace
from random import Random

from advisor.hardware.gpus import gpu
from advisor.prediction.replay import Physics, TimeSlicing, replay_mix
from advisor.sharing import parse_sharing
from advisor.workload.minimal_profile import MinimalProfile
from advisor.workload.profile import Window
from tests import synthetic

H200 = gpu("h200-141gb")
PHYSICS = Physics(
    packing=0.45,
    slicing=TimeSlicing(slice_s=0.001, switch_s=0.0001),
    ceded=0.05,
    bandwidth=0.5,
)
TRUTH = 1.2  # how much slower than replayed these made-up runs are
NAMES = (
    "resnet26-cifar10-bs128",
    "resnet50-imagenet64-bs128",
    "cait_xxs24_224-cifar10-bs128",
    "vit_small_patch16_224-imagenet64-bs128",
    "bert-base-finetune-bs16",
    "gpt2-small-finetune-bs2",
    "mlp-toy-bs128",
)
PROFILES = {
    name: synthetic.profile(
        name, gpu_s=0.002 + 0.004 * number, host_s=0.008, blocks=40 + 60 * number
    )
    for number, name in enumerate(NAMES)
}


def watched(card, busy=None, power_w=None, memory=None, step_s=0.1, **more):
    """A job by the numbers of nvidia-smi."""
    numbers = {
        "schema": 1,
        "workload": "my-job",
        "gpu": card.key,
        "batch_size": 8,
        "step_s": step_s,
        "memory_mib": 1000,
        "power_w": power_w,
        "gpu_utilization": busy,
        "memory_utilization": memory,
    }
    return MinimalProfile(**numbers | more).whole()


def made_up_runs():
    random, made = Random(7), []
    for number in range(45):
        degree = random.choice((2, 3))
        chosen = [PROFILES[name] for name in random.sample(NAMES, degree)]
        sharing = ("naive", "mps", "mps=" + ",".join(["43"] * degree))[number % 3]
        steps = TRUTH * replay_mix(chosen, parse_sharing(sharing), H200, PHYSICS)
        run = synthetic.run(chosen, sharing, run_id=f"r{number}")
        tenants = tuple(
            replace(tenant, windows=(Window(step, 1.0),) * 3)
            for tenant, step in zip(run.tenants, steps, strict=True)
        )
        made.append(replace(run, tenants=tenants))
    alone = [PROFILES[name] for name in NAMES for _ in range(3)]
    solo = [synthetic.run([each], "naive", 1.0, f"s{n}") for n, each in enumerate(alone)]
    return [*made, *solo]
