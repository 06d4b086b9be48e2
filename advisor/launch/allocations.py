"""What a cluster runs as one job of its own: the jobs that share a GPU, or a job of several GPUs.

A GPU is one allocation from its first job to its last: so its jobs stay together, and no other user
gets it between two groups. A job that takes several GPUs is an allocation by itself. It waits for
the allocations before it on each of its GPUs, and those after it wait for it. Equal GPUs are
interchangeable: which of them an allocation gets does not matter.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from heapq import nlargest
from math import ceil, inf, isfinite

from advisor.errors import InvalidInput
from advisor.hardware.gpus import gpu_meant
from advisor.launch import shell
from advisor.launch.launch_plan import LaunchPlan, Stage, Start
from advisor.simulation.events import line_s

_QUARTER_MIN = 15
_TIME_FACTOR = 2  # the predicted time is of steps alone, on a host without other load
_MEMORY_FACTOR = 1.5  # of what the profile measured, which may not have met the largest example
_MIB_IN_GIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Jobs that one job of a cluster runs on the GPU, MIG instance or GPUs that it gets.

    Attributes:
        name: A word, unique in the plan.
        gres: Slurm's name of what it runs on, e.g. ``gpu:a100``.
        plan: Its stages, on one whole device.
        gpus: GPUs of one host.
        after: Names of the allocations that have to end before it starts.
    """

    name: str
    gres: str
    plan: LaunchPlan
    gpus: int = 1
    after: tuple[str, ...] = ()

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
        return self.gpus * int(self._most_at_once(lambda start: start.cores or 0))

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
        if any(start.job.profile.host_memory_mib is None for start in self.starts):
            return None
        held_mib = self._most_at_once(lambda start: start.job.profile.host_memory_mib or 0.0)
        return ceil(_MEMORY_FACTOR * self.gpus * held_mib / _MIB_IN_GIB)

    def _most_at_once(self, amount: Callable[[Start], float]) -> float:
        """The largest sum of an amount over jobs that run at the same time."""
        return max(
            sum(nlargest(stage.at_once, map(amount, stage.starts))) for stage in self.plan.stages
        )


def shared_lines(allocations: Sequence[Allocation]) -> list[str]:
    """Return the lines that follow those of each allocation that is not `alone`."""
    functions = shell.functions([each.plan for each in allocations if not each.alone])
    return [*functions, 'begin whole; plan; exit "$failed"']


def allocations(plans: Sequence[LaunchPlan]) -> tuple[Allocation, ...]:
    """Return the allocations of `plans` of whole GPUs, each after those that it waits for."""
    made = dict[str, Allocation]()
    after = dict[str, list[str]]()
    for plan in plans:
        before: str | None = None
        for position, stages in enumerate(_pieces(plan), start=1):
            first = stages[0].starts[0]
            name = f"gpu_{plan.number}" + (f"_{position}" if position > 1 else "")
            name = f"job_{first.number}" if first.job.gpus > 1 else name
            own = replace(plan, stages=tuple(stages), power_cap_w=None)
            made[name] = Allocation(
                name=name, gres=plan.gres or "gpu", plan=own, gpus=first.job.gpus
            )
            after.setdefault(name, []).extend([before] if before else [])
            before = name
    in_order = TopologicalSorter(after).static_order()
    return tuple(replace(made[each], after=tuple(dict.fromkeys(after[each]))) for each in in_order)


def _pieces(plan: LaunchPlan) -> list[list[Stage]]:
    """The stages of `plan` by allocation."""
    pieces = list[list[Stage]]()
    for stage in _split(plan):
        gpus = stage.starts[0].job.gpus
        if pieces and gpus == pieces[-1][0].starts[0].job.gpus == 1:
            pieces[-1].append(stage)
        else:
            pieces.append([stage])
    return pieces


def _split(plan: LaunchPlan) -> Iterator[Stage]:
    """The stages of `plan`, in which a job of several GPUs has a stage of its own."""
    for stage in plan.stages:
        if all(start.job.gpus == 1 for start in stage.starts):
            yield stage
            continue
        (part,) = stage.partitions  # such jobs share nothing: they run one by one
        yield from (Stage((replace(part, starts=(start,)),)) for start in part.starts)


_GRES = re.compile(r"[A-Za-z][\w.-]*(:[\w.-]+)?")


def with_gres(plans: Sequence[LaunchPlan], names: str | None = None) -> tuple[LaunchPlan, ...]:
    """Return `plans` with Slurm's name of each GPU that has none.

    Without names, several models have the types ``a100``, ``h100``, ...: Slurm accepts any part of
    the driver's name of a GPU as its type.

    Args:
        plans: Plans of whole GPUs.
        names: ``gpu:tesla``, or by model, as ``a100-40gb=gpu:a100,h100-sxm-80gb=gpu:h100``.

    Raises:
        InvalidInput: `names` are malformed, or do not name each model of several.
    """
    keys = list(dict.fromkeys(plan.gpu.key for plan in plans))
    by_key = dict[str, str]()
    for word in filter(None, (names or "").replace(" ", "").split(",")):
        model, _, name = word.rpartition("=")
        if not _GRES.fullmatch(name) or (not model and len(keys) > 1):
            example = ",".join(f"{key}=gpu:{_first_word(key)}" for key in keys)
            raise InvalidInput(
                f"--gres-name {names!r:.60}: expected Slurm's name of each GPU, without a count, "
                f"as {example}."
            )
        by_key[gpu_meant(model).key if model else keys[0]] = name
    if others := by_key.keys() - {*keys}:
        raise InvalidInput(
            f"--gres-name {names!r:.60}: the plan has no {min(others)}. It has {', '.join(keys)}."
        )
    if len(keys) > 1:
        words = [_first_word(key) for key in keys]
        types = words if len({*words}) == len(words) else keys
        defaults = [f"gpu:{each}" for each in types]
        by_key = dict(zip(keys, defaults, strict=True)) | by_key
    return tuple(replace(plan, gres=plan.gres or by_key.get(plan.gpu.key)) for plan in plans)


def _first_word(key: str) -> str:
    return key.partition("-")[0]
