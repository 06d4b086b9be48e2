"""Plans for schedulers that choose the GPU of a pod themselves: how many pods share each GPU.

They know no plan: any pods whose requests fit may share any GPU of a kind. So each GPU of a kind
must run as many jobs at once in the same way, and any such jobs must fit into its memory.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Literal

from advisor.errors import InvalidInput
from advisor.hardware.mig import profile_of
from advisor.launch.launch_plan import LaunchPartition, LaunchPlan, Start

Strategy = Literal["mps", "timeSlicing"]
GPU = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Places:
    """How a GPU or MIG instance is shared, and by how many jobs at once; None: by one alone."""

    strategy: Strategy | None
    replicas: int


def placed_starts(
    plans: Sequence[LaunchPlan],
) -> Iterator[tuple[LaunchPlan, LaunchPartition, Start]]:
    """Yield each job once, in the plan's order, with a GPU and partition of it."""
    seen: set[int] = set()
    for plan in plans:
        for part in plan.partitions:
            for start in part.starts:
                if start.number not in seen:
                    seen.add(start.number)
                    yield plan, part, start


def resource_of(part: LaunchPartition) -> str:
    """Return the device plugin's resource of a GPU or MIG instance (`mixed` strategy)."""
    if part.instance is None:
        return GPU
    return f"nvidia.com/mig-{part.instance.profile.replace('+', '.')}"


def check_compute(plan: LaunchPlan, form: str) -> None:
    """Check that `plan` has no compute instances.

    Raises:
        InvalidInput: It has.
    """
    if any(part.slices is not None for part in plan.partitions):
        raise refusal(plan, form, "divide a MIG instance into compute instances", "commands")


def refusal(
    plan: LaunchPlan, form: str, lacking: str, other: str = "kubernetes-script"
) -> InvalidInput:
    """Return the error for a plan that `form` cannot express, with the format that can."""
    return InvalidInput(
        f"{plan.sharing}: --format {form} cannot {lacking}. Export it by --format {other}."
    )


def places_by_kind(plans: Sequence[LaunchPlan], form: str) -> dict[str, dict[str, Places]]:
    """Return how each resource is shared, by the key of the GPU and the resource.

    Raises:
        InvalidInput: GPUs of a kind would need different sharing, or jobs that may meet do not fit
            into the memory, or a job takes several GPUs that others share.
    """
    kinds: dict[str, dict[str, Places]] = {}
    memory_mib: dict[tuple[str, str], list[int]] = defaultdict(list)
    for plan in plans:
        if len(plan.stages) > 1:
            raise refusal(plan, form, "run groups of jobs in turn")
        check_compute(plan, form)
        kind = kinds.setdefault(plan.gpu.key, {})
        for part in plan.partitions:
            resource = resource_of(part)
            own = _places(part)
            if kind.setdefault(resource, own) != own:
                raise refusal(
                    plan,
                    form,
                    f"share {resource} of a kind of GPU in several ways: "
                    f"{_described(kind[resource])}, and {_described(own)}",
                )
            mib = memory_mib[plan.gpu.key, resource]
            mib += [start.memory_mib for start in part.starts]
            capacity_mib = plan.gpu.usable_mib
            if part.instance:
                row_mib = profile_of(plan.gpu, part.instance.profile).memory_mib
                capacity_mib = min(row_mib, capacity_mib)
            if sum(nlargest(own.replicas, mib)) > capacity_mib:
                raise refusal(
                    plan,
                    form,
                    f"choose which {own.replicas} jobs meet on a GPU, and some do not fit together",
                )
            if own.replicas > 1 and any(start.job.gpus > 1 for start in part.starts):
                raise refusal(plan, form, "give a job several GPUs that others share")
    return kinds


def _places(part: LaunchPartition) -> Places:
    one_by_one = part.sharing.mode == "serial"
    replicas = 1 if one_by_one else part.at_once or len(part.starts)
    if replicas == 1:
        return Places(None, 1)
    return Places("mps" if part.under_mps else "timeSlicing", replicas)


def _described(places: Places) -> str:
    how = {"mps": " by MPS", "timeSlicing": " by time-slicing", None: ""}[places.strategy]
    return f"{places.replicas} at once{how}"
