"""Plans as Kubernetes Jobs whose GPUs NVIDIA's driver for dynamic resource allocation gives out.

After kubernetes-sigs/dra-driver-nvidia-gpu (its specs for ``resource.k8s.io/v1``, its types
`GpuConfig`, `MigDeviceConfig` and `MpsConfig`, and its document of feature gates). Pods that share
a GPU name one common claim; a pod alone has a claim of its own, made from a template. Time-slicing
is CUDA's default, so that it needs no configuration and no feature gate. A claim has one percentage
under MPS: other limits are variables of the containers.
"""

from collections.abc import Sequence
from typing import Any

from advisor.launch.kubernetes import (
    Document,
    apply_lines,
    head,
    job_name,
    manifest,
    shared_memory,
    training_job,
)
from advisor.launch.kubernetes_places import (
    check_expressible,
    mps_variables,
    placed_starts,
    refusal,
)
from advisor.launch.launch_plan import LaunchPartition, LaunchPlan, Start

_FORM = "kubernetes-dra"
_DRIVER = "gpu.nvidia.com"
_REQUEST = "gpu"
_DEVICE = f"device.attributes['{_DRIVER}']"
_NEEDS = "# It needs Kubernetes 1.34 and NVIDIA's DRA driver for GPUs."
_MPS_GATE = (
    "# MPS is alpha in the driver, and off: --set featureGates.MPSSupport=true. It excludes the",
    "# gate DynamicMIG.",
)
_MIG_SLICES = (
    "# Make the MIG instances before the driver starts: --format mig-parted. Or the driver makes",
    "# them: --set featureGates.DynamicMIG=true, which is alpha, and excludes MPS.",
)


def kubernetes_dra_text(plans: Sequence[LaunchPlan]) -> str:
    """Return a Job for each training, and the claims of the GPUs or MIG instances.

    Raises:
        InvalidInput: Claims cannot express a plan.
    """
    for plan in plans:
        check_expressible(plan, _FORM)
        for part in plan.partitions:
            _check_claim(plan, part)
    claims: dict[str, Document] = {}
    jobs: list[Document] = []
    for plan, part, start in placed_starts(plans):
        claim = _claim(plan, part, start)
        name = claims.setdefault(claim["metadata"]["name"], claim)["metadata"]["name"]
        reference = {
            "ResourceClaim": {"name": _REQUEST, "resourceClaimName": name},
            "ResourceClaimTemplate": {"name": _REQUEST, "resourceClaimTemplateName": name},
        }[claim["kind"]]
        jobs.append(
            training_job(
                start,
                {"claims": [{"name": _REQUEST}]},
                variables=_variables(part, start),
                pod={"resourceClaims": [reference]},
                annotations={},
                folders={} if _by_mps(part) else shared_memory([start]),
            )
        )
    lines = [_NEEDS]
    lines += _MPS_GATE if any(_by_mps(part) for plan in plans for part in plan.partitions) else ()
    lines += _MIG_SLICES if any(plan.on_mig for plan in plans) else ()
    lines += apply_lines([], [])
    return manifest(head(plans, lines), [*claims.values(), *jobs])


def _check_claim(plan: LaunchPlan, part: LaunchPartition) -> None:
    if part.at_once and part.at_once < len(part.starts):
        raise refusal(plan, _FORM, f"hold a queue to {part.at_once} jobs at once")
    if _shared(part) and (wide := next((s.job for s in part.starts if s.job.gpus > 1), None)):
        raise refusal(plan, _FORM, f"give {wide.name} several GPUs that others share")


def _shared(part: LaunchPartition) -> bool:
    """True if the jobs of `part` run at the same time."""
    return part.sharing.mode != "serial" and len(part.starts) > 1


def _by_mps(part: LaunchPartition) -> bool:
    return part.under_mps and _shared(part)


def _claim(plan: LaunchPlan, part: LaunchPartition, start: Start) -> Document:
    """The claim of all jobs of `part`; or the template of claims for one job alone."""
    count = {"count": start.job.gpus} if start.job.gpus > 1 else {}
    kind = "gpu.nvidia.com" if part.instance is None else "mig.nvidia.com"
    selectors = [{"cel": {"expression": _selector(plan, part)}}]
    request = {"deviceClassName": kind, **count, "selectors": selectors}
    devices: Document = {"requests": [{"name": _REQUEST, "exactly": request}]}
    if _by_mps(part):
        devices["config"] = [{"requests": [_REQUEST], "opaque": _mps(part)}]
    if _shared(part):
        name = job_name(f"gpu-{plan.number}{_suffix(part)}")
        return _object("ResourceClaim", name, {"devices": devices})
    copies = f"-x{start.job.gpus}" if count else ""
    name = job_name(f"{plan.gpu.key}{'' if part.instance is None else f'-{part.profile}'}{copies}")
    return _object("ResourceClaimTemplate", name, {"spec": {"devices": devices}})


def _suffix(part: LaunchPartition) -> str:
    return "" if part.instance is None else f"-{part.number}"


def _object(kind: str, name: str, spec: Document) -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def _selector(plan: LaunchPlan, part: LaunchPartition) -> str:
    """A condition in CEL on the model of the GPU, and on the profile of a MIG instance."""
    products = ", ".join(f"'{product}'" for product in plan.gpu.products)
    model = f"{_DEVICE}.productName in [{products}]"
    return model if part.instance is None else f"{model} && {_DEVICE}.profile == '{part.profile}'"


def _mps(part: LaunchPartition) -> dict[str, Any]:
    """The driver's parameters for a GPU or MIG instance under MPS."""
    percent = _common_percent(part)
    config = {} if percent is None else {"defaultActiveThreadPercentage": percent}
    parameters = {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "GpuConfig" if part.instance is None else "MigDeviceConfig",
        "sharing": {"strategy": "MPS", "mpsConfig": config},
    }
    return {"driver": _DRIVER, "parameters": parameters}


def _common_percent(part: LaunchPartition) -> int | None:
    """The limit that all jobs of `part` have, in whole percent; None: there is no such limit."""
    limits = {start.limit for start in part.starts}
    (limit,) = limits if len(limits) == 1 else (None,)
    return int(limit) if limit is not None and limit == int(limit) else None


def _variables(part: LaunchPartition, start: Start) -> dict[str, str]:
    if not _by_mps(part):
        return {}
    return mps_variables(start, None if _common_percent(part) is not None else start.limit)
