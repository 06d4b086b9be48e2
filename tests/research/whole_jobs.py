"""Made-up runs of whole jobs; never shown to a user as measured."""

from dataclasses import replace

from advisor.workload.run import Completion
from tests import synthetic

# Alone 10 and 20 ms a step; each fills the GPU.
SHORT = synthetic.profile("resnet26-cifar10-bs128", host_s=0.01, gpu_s=0.01)
LONG = synthetic.profile("gpt2-small-finetune-bs2", host_s=0.02, gpu_s=0.02)
STEPS = (100, 200)


def whole(run_id, sharing, ended_s, pair=(SHORT, LONG), pauses_s=()):
    """A run of `pair` to the end, whose jobs were done at `ended_s`; None: died."""
    run = synthetic.run(list(pair), sharing, run_id=run_id)
    done = Completion(
        steps=STEPS,
        began_s=(0.0, 0.0),
        ended_s=ended_s,
        pauses_s=pauses_s,
        energy_j=900.0,
    )
    tenants = tuple(
        tenant if end else replace(tenant, outcome="failed", detail="killed", windows=())
        for tenant, end in zip(run.tenants, ended_s, strict=True)
    )
    return replace(run, purpose="completion", completion=done, tenants=tenants)
