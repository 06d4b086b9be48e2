"""Plans as one Kubernetes Job for each GPU or MIG instance, which runs the exported script on it.

Separate pods have no order and no common limits; one pod with a whole GPU does all that the script
does: queues in order, groups in turn, MPS with any limits and memory caps. The pod starts its own
MPS daemon, whose programs NVIDIA's container toolkit adds to each container with a GPU.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from advisor.launch.allocations import Allocation, allocations
from advisor.launch.commands import commands_text
from advisor.launch.kubernetes import (
    TRAINING,
    Document,
    apply_lines,
    config_map,
    head,
    job_document,
    job_name,
    manifest,
    on_product,
    resources,
    secret_variables,
    shared_memory,
    training_job,
)
from advisor.launch.kubernetes_places import GPU, check_compute, refusal, resource_of
from advisor.launch.kubernetes_plugin import mig_config, mig_labels
from advisor.launch.launch_plan import LaunchPlan, Stage

_FORM = "kubernetes-script"
_FOLDER = "/advisor"
_VARIABLES = {
    "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",  # with nvidia-smi and MPS
    "XDG_STATE_HOME": "/tmp",
    "ADVISOR_GRACE_S": "10",  # Kubernetes kills a pod 30 s after it asks it to end
}
_MIG_DEVICE = "$(nvidia-smi -L | grep -om1 'MIG-[-0-9a-f]*')"
_NEEDS = (
    "# All jobs of a GPU run in one pod; its image needs bash, awk, grep, flock and setsid, too."
)
_WIDE = (
    "# A job of several GPUs starts when so many are free on a node: Kubernetes may start Jobs",
    "# first that the plan starts after it.",
)


def kubernetes_script_text(plans: Sequence[LaunchPlan]) -> str:
    """Return a Job for what each GPU or MIG instance runs, and for each job of several GPUs.

    Raises:
        InvalidInput: A plan changes MIG instances between groups, or has compute instances.
    """
    for plan in plans:
        check_compute(plan, _FORM)
        if plan.on_mig and len(plan.stages) > 1:
            raise refusal(plan, _FORM, "change MIG instances between groups of jobs", "commands")
    set_up = list(mig_config(plans))
    lines = [*apply_lines(set_up, mig_labels(plans)), _NEEDS]
    lines += _WIDE if any(plan.wide for plan in plans) else ()
    jobs = [document for plan in plans if plan.on_mig for document in _on_instances(plan)]
    for own in allocations([plan for plan in plans if not plan.on_mig]):
        jobs += _alone(own) if own.alone else _script(job_name(own.name), own.plan, GPU, "0")
    return manifest(head(plans, lines), [*set_up, *jobs])


def _alone(own: Allocation) -> Iterator[Document]:
    (start,) = own.starts
    devices = {"limits": {GPU: own.gpus}}
    yield training_job(
        start,
        devices,
        variables={},
        pod=on_product(own.plan.gpu),
        folders=shared_memory([start]),
    )


def _on_instances(plan: LaunchPlan) -> Iterator[Document]:
    """Yield a script and its Job for each MIG instance."""
    for part in plan.partitions:
        inside = replace(part, instance=None, slices=None, profile=None)
        alone = LaunchPlan(plan.gpu, part.sharing, (Stage((inside,)),), None)
        name = job_name(f"gpu-{plan.number}-{part.number}")
        yield from _script(name, alone, resource_of(part), _MIG_DEVICE)


def _script(name: str, plan: LaunchPlan, resource: str, gpu: str) -> Iterator[Document]:
    groups = [(stage.starts, stage.at_once) for stage in plan.stages]
    variables = [{"name": key, "value": value} for key, value in _VARIABLES.items()]
    yield config_map(name, TRAINING, {"plan.sh": commands_text(plan, gpu)})
    yield job_document(
        name,
        {
            "command": ["bash", f"{_FOLDER}/plan.sh"],
            "env": [*variables, *secret_variables(plan.starts)],
            "resources": resources(groups, {"limits": {resource: 1}}),
        },
        pod=on_product(plan.gpu),
        annotations={},
        folders={_FOLDER: {"configMap": {"name": name}}, **shared_memory(plan.starts)},
    )
