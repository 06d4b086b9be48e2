"""Allocations of a cluster: one for the jobs that share a GPU, one for each job of several GPUs.

A GPU is one allocation from its first job to its last: so its jobs stay together, and no other user
gets it between two groups. A job that takes several GPUs is an allocation by itself. It waits for
the allocations before it on each of its GPUs, and those after it wait for it. Equal GPUs are
interchangeable: which of them an allocation gets does not matter.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from math import ceil, inf, isfinite

from advisor.launch import shell
from advisor.launch.launch_plan import LaunchPlan, Stage, Start, host_needs
from advisor.simulation.turns import line_s

_QUARTER_MIN = 15
_TIME_FACTOR = 2  # the predicted time is of steps alone, on a host without other load
_MIB_IN_GIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Jobs that one job of a cluster runs on the GPU, MIG instance or GPUs that it gets.

    Attributes:
        name: A word, unique in the plan.
        gres: Slurm's name of what it runs on, e.g. ``gpu:a100``.
        plan: Its stages, on one whole device.
        devices: Indices of its GPUs on their host, in whose place equal ones do as well.
        after: Names of the allocations that have to end before it starts.
    """

    name: str
    gres: str
    plan: LaunchPlan
    devices: tuple[int, ...] = (0,)
    after: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """Number of its GPUs, all of one host."""
        return len(self.devices)

    @property
    def starts(self) -> tuple[Start, ...]:
        return self.plan.starts

    @property
    def alone(self) -> bool:
        """True if it is one job without MPS, which needs no functions."""
        return len(self.starts) == 1 and not self.plan.under_mps

    @property
    def lines(self) -> list[str]:
        """A script of it; `shared_lines` have to follow unless it is `alone`."""
        if self.alone:
            return ["#!/bin/sh", shell.without_mps(self.starts[0])]
        plan = ["plan() {", *(f"  {line}" for line in shell.plan_lines(self.plan)), "}"]
        return ["#!/usr/bin/env bash", "GPU=${CUDA_VISIBLE_DEVICES:-0}", *plan]

    @property
    def cores(self) -> int:
        """Host cores of the jobs at once, without jobs whose cores are not known."""
        return self.gpus * self._host_needs[0]

    @property
    def without_cores(self) -> tuple[int, ...]:
        """Numbers of the jobs whose cores are not known."""
        return tuple(start.number for start in self.starts if start.cores is None)

    @property
    def minutes(self) -> int | None:
        """Time limit, in whole quarters of an hour; None: the length of a job is not known."""
        most_s = 0.0
        for stage in self.plan.stages:
            in_order = [start.most_s for part in stage.partitions for start in part.starts]
            most_s += line_s([inf if each is None else each for each in in_order], stage.at_once)
        quarters = ceil(_TIME_FACTOR * most_s / 60 / _QUARTER_MIN) if isfinite(most_s) else 0
        return quarters * _QUARTER_MIN or None

    @property
    def memory_gib(self) -> int | None:
        """Host memory of the jobs at once, with a margin; None: a profile lacks it."""
        held_mib = self._host_needs[1]
        return None if held_mib is None else ceil(self.gpus * held_mib / _MIB_IN_GIB)

    @property
    def _host_needs(self) -> tuple[int, float | None]:
        return host_needs((stage.starts, stage.at_once) for stage in self.plan.stages)


def shared_lines(allocations: Sequence[Allocation]) -> list[str]:
    """Return the lines that follow those of each allocation that is not `alone`."""
    functions = shell.functions([each.plan for each in allocations if not each.alone])
    return [*functions, 'begin whole; plan; exit "$failed"']


def allocations(plans: Sequence[LaunchPlan]) -> tuple[Allocation, ...]:
    """Return the allocations of `plans` of whole GPUs, each after those that it waits for."""
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
            made[name] = Allocation(name=name, gres=plan.gres or "gpu", plan=own, devices=devices)
            after.setdefault(name, []).extend(before)
            before = [name]
    in_order = TopologicalSorter(after).static_order()
    return tuple(replace(made[each], after=tuple(dict.fromkeys(after[each]))) for each in in_order)


def power_caps(plans: Sequence[LaunchPlan]) -> list[str]:
    """Return a comment for each power cap of `plans`, which nodes have to have on all GPUs."""
    caps_w = {plan.power_cap_w for plan in plans if plan.power_cap_w is not None}
    return [f"# As root on each node: nvidia-smi --power-limit={cap:g}" for cap in sorted(caps_w)]


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
