"""Plans as Kubernetes Jobs for the schedulers KAI and HAMi, which place pods by parts of a GPU.

KAI (NVIDIA/KAI-Scheduler, docs/gpu-sharing) adds up the fractions of the pods on a GPU, and holds
no pod to its own; for MPS a daemon runs on each node. HAMi (Project-HAMi/HAMi, examples/nvidia)
adds up memory and cores, and holds each pod to its memory; of its MIG profiles it chooses the
smallest with the memory that a pod requests (`selectMigCandidate` in its device.go).
"""

from collections.abc import Mapping, Sequence

from advisor.hardware.mig import profile_of
from advisor.launch.kubernetes import (
    Document,
    apply_lines,
    head,
    manifest,
    on_product,
    shared_memory,
    training_job,
)
from advisor.launch.kubernetes_places import (
    GPU,
    Places,
    mps_variables,
    placed_starts,
    places_by_kind,
    refusal,
    resource_of,
)
from advisor.launch.launch_plan import LaunchPartition, LaunchPlan, Start

_KAI, _HAMI = "kai", "hami"
_PIPES = "/tmp/nvidia-mps"
_KAI_POD = {"schedulerName": "kai-scheduler"}
_KAI_LINES = (
    "# It needs KAI with --set global.gpuSharing=true. Put your queue in place of default-queue.",
    "# KAI chooses the GPU of a pod: jobs may meet in other groups than planned.",
)
_KAI_MPS = (
    f"# Run an MPS daemon on each node, with CUDA_MPS_PIPE_DIRECTORY={_PIPES}: without it CUDA",
    "# runs without MPS, silently.",
)
_HAMI_PLACES = 10  # jobs on a GPU, unless its chart sets more
_HAMI_LINES = ("# HAMi chooses the GPU of a pod: jobs may meet in other groups than planned.",)


def kai_text(plans: Sequence[LaunchPlan]) -> str:
    """Return a Job for each training with its fraction of a GPU for KAI.

    Raises:
        InvalidInput: KAI cannot express it.
    """
    for plan in plans:
        if plan.on_mig:
            raise refusal(plan, _KAI, "make MIG instances", "kubernetes")
    kinds = places_by_kind(plans, _KAI)
    lines = [*_KAI_LINES, *apply_lines([], [])]
    if any(own.strategy == "mps" for kind in kinds.values() for own in kind.values()):
        lines += _KAI_MPS
    jobs = [
        _kai_job(plan, start, kinds[plan.gpu.key][GPU]) for plan, _, start in placed_starts(plans)
    ]
    return manifest(head(plans, lines), jobs)


def _kai_job(plan: LaunchPlan, start: Start, places: Places) -> Document:
    shared = places.replicas > 1
    variables: dict[str, str] = {}
    folders = shared_memory([start])
    if places.strategy == "mps":
        variables = {"CUDA_MPS_PIPE_DIRECTORY": _PIPES, **mps_variables(start, start.limit)}
        folders[_PIPES] = {"hostPath": {"path": _PIPES, "type": "DirectoryOrCreate"}}
    # One pod more would be more than a GPU.
    fraction = f"{10_000 // places.replicas / 10_000:g}"
    job = training_job(
        start,
        {} if shared else {"limits": {GPU: start.job.gpus}},
        variables=variables,
        pod=_KAI_POD | on_product(plan.gpu),
        annotations={"gpu-fraction": fraction} if shared else {},
        folders=folders,
    )
    for metadata in (job["metadata"], job["spec"]["template"]["metadata"]):
        metadata["labels"] = metadata["labels"] | {"kai.scheduler/queue": "default-queue"}
    return job


def hami_text(plans: Sequence[LaunchPlan]) -> str:
    """Return a Job for each training with its memory and cores of a GPU for HAMi.

    Raises:
        InvalidInput: HAMi cannot express it.
    """
    kinds = places_by_kind(plans, _HAMI)
    for plan in plans:
        _check_hami(plan, kinds[plan.gpu.key])
    lines = [*_HAMI_LINES, *apply_lines([], [])]
    places = max(own.replicas for kind in kinds.values() for own in kind.values())
    if places > _HAMI_PLACES:
        lines.append(f"# Set devicePlugin.deviceSplitCount of HAMi to {places} or more.")
    for key, profiles in _profiles(plans).items():
        lines.append(f"# In migProfileAllowlist for {key} list {', '.join(profiles)} alone.")
    jobs = [
        _hami_job(plan, part, start, kinds[plan.gpu.key][resource_of(part)])
        for plan, part, start in placed_starts(plans)
    ]
    return manifest(head(plans, lines), jobs)


def _profiles(plans: Sequence[LaunchPlan]) -> dict[str, list[str]]:
    """MIG profiles of `plans` by the key of the GPU."""
    profiles: dict[str, list[str]] = {}
    for plan in plans:
        for part in plan.partitions:
            own = profiles.setdefault(plan.gpu.key, []) if part.instance else []
            if part.instance and part.instance.profile not in own:
                own.append(part.instance.profile)
    return profiles


def _check_hami(plan: LaunchPlan, kind: Mapping[str, Places]) -> None:
    for part in plan.partitions:
        places = kind[resource_of(part)]
        if places.strategy == "mps":
            raise refusal(plan, _HAMI, "run jobs under MPS", "kai")
        if part.instance and places.replicas > 1:
            raise refusal(plan, _HAMI, "share a MIG instance", "kubernetes")
    profiles = _profiles([plan]).get(plan.gpu.key, [])
    sizes_mib = {profile_of(plan.gpu, profile).memory_mib for profile in profiles}
    if len(sizes_mib) < len(profiles):
        raise refusal(plan, _HAMI, "choose between MIG profiles of equal memory", "kubernetes")


def _hami_job(plan: LaunchPlan, part: LaunchPartition, start: Start, places: Places) -> Document:
    limits = {GPU: start.job.gpus}
    variables = {}
    mode = "hami-core"
    if part.instance:
        # A driver may report a little less than the catalogue; the next profile has half of it.
        mode = "mig"
        limits["nvidia.com/gpumem"] = (
            profile_of(plan.gpu, part.instance.profile).memory_mib * 9 // 10
        )
    else:
        limits["nvidia.com/gpucores"] = 100 // places.replicas
        if places.replicas > 1:
            limits["nvidia.com/gpumem"] = start.memory_mib
            # The cores only count the places of a GPU: under time-slicing a job takes what is free.
            variables = {"GPU_CORE_UTILIZATION_POLICY": "disable"}
    products = (product.removeprefix("NVIDIA ") for product in plan.gpu.products)
    return training_job(
        start,
        {"limits": limits},
        variables=variables,
        pod={},
        annotations={
            "nvidia.com/vgpu-mode": mode,
            "nvidia.com/use-gputype": ",".join(products),
            "hami.io/gpu-scheduler-policy": "binpack",
        },
        folders=shared_memory([start]),
    )
