"""Allocations of a cluster: what one job of Slurm, or one pod of Kubernetes, runs.

A GPU is one allocation from its first job to its last: so its jobs stay together, and no other user
gets it between two groups. A partition of a GPU in MIG mode is one, too. A job that takes several
GPUs is an allocation by itself. It waits for the allocations before it on each of its GPUs, and
those after it wait for it. Equal GPUs are interchangeable: which of them an allocation gets does
not matter.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from heapq import nlargest
from math import inf, isfinite

from advisor.errors import InvalidInput
from advisor.launch.launch_plan import LaunchPartition, LaunchPlan, Stage, Start

HOST_MARGIN = 0.25
"""Share of the measured host memory that a job may hold on top."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Jobs that run on the GPU, MIG instance or GPUs of one allocation.

    Attributes:
        name: A word, unique in the plan.
        plan: Its stages, on one whole device.
        devices: Indices of its GPUs on their host, in whose place equal ones do as well.
        after: Names of the allocations that have to end before it starts.
        profile: MIG's name of the GPU instance that it gets; None: whole GPUs.
    """

    name: str
    plan: LaunchPlan
    devices: tuple[int, ...] = (0,)
    after: tuple[str, ...] = ()
    profile: str | None = None

    @property
    def gpus(self) -> int:
        """Number of its GPUs, all of one host."""
        return len(self.devices)

    @property
    def starts(self) -> tuple[Start, ...]:
        return self.plan.starts

    @property
    def cores(self) -> int:
        """Host cores of the jobs at once, without jobs whose cores are not known."""
        return self.gpus * max(
            sum(nlargest(stage.at_once, (start.cores or 0 for start in stage.starts)))
            for stage in self.plan.stages
        )

    @property
    def host_mib(self) -> float | None:
        """Host memory of the jobs at once, with a margin; None: a profile lacks it."""
        most_mib = 0.0
        for stage in self.plan.stages:
            measured = [start.job.profile.host_memory_mib for start in stage.starts]
            at_once = nlargest(stage.at_once, (inf if each is None else each for each in measured))
            most_mib = max(most_mib, sum(at_once))
        return self.gpus * most_mib * (1 + HOST_MARGIN) if isfinite(most_mib) else None


def allocations(plans: Sequence[LaunchPlan], scheduler: str) -> list[Allocation]:
    """Return the allocations of `plans`, each after those that it waits for.

    Raises:
        InvalidInput: A plan changes MIG instances between groups of jobs.
    """
    instances = list[Allocation]()
    for plan in plans:
        if plan.on_mig:
            if len(plan.stages) > 1:
                raise InvalidInput(
                    f"{plan.sharing}: {scheduler} does not change MIG instances between jobs. "
                    f"Export the plan as commands, or export each group as a plan of its own."
                )
            instances += (_on_instance(plan, part) for part in plan.partitions)
    return [*instances, *_on_gpus(plan for plan in plans if not plan.on_mig)]


def _on_instance(plan: LaunchPlan, part: LaunchPartition) -> Allocation:
    assert part.instance is not None, "a plan of one group of instances has no other partitions"
    inside = replace(part, instance=None, slices=None, profile=None)
    return Allocation(
        name=f"gpu_{plan.number}_{part.number}",
        plan=replace(plan, sharing=part.sharing, stages=(Stage((inside,)),), power_cap_w=None),
        profile=part.instance.profile,
    )


def _on_gpus(plans: Iterable[LaunchPlan]) -> Iterator[Allocation]:
    made = dict[str, Allocation]()
    after = dict[str, list[str]]()
    for plan in plans:
        before = list[str]()
        for position, stages in enumerate(_pieces(plan), start=1):
            first = stages[0].starts[0]
            name = f"gpu_{plan.number}" + (f"_{position}" if position > 1 else "")
            name = f"job_{first.number}" if first.job.gpus > 1 else name
            devices = (*(made[name].devices if name in made else ()), plan.device)
            own = replace(plan, stages=tuple(stages), power_cap_w=None)
            made[name] = Allocation(name=name, plan=own, devices=devices)
            after.setdefault(name, []).extend(before)
            before = [name]
    for name in TopologicalSorter(after).static_order():
        yield replace(made[name], after=tuple(dict.fromkeys(after[name])))


def _pieces(plan: LaunchPlan) -> list[list[Stage]]:
    """The stages of `plan` by allocation; a job of several GPUs becomes a stage of its own."""
    pieces = list[list[Stage]]()
    for stage in plan.stages:
        own = [stage]
        if any(start.job.gpus > 1 for start in stage.starts):
            (part,) = stage.partitions  # such jobs share nothing: they run one by one
            own = [Stage((replace(part, starts=(start,)),)) for start in part.starts]
        for piece in own:
            gpus = piece.starts[0].job.gpus
            if pieces and gpus == pieces[-1][0].starts[0].job.gpus == 1:
                pieces[-1].append(piece)
            else:
                pieces.append([piece])
    return pieces
