"""The workloads of the zoo by name.

A name is ``MODEL-TASK-bsBATCH`` with options after it, in this order: ``-tf32``, ``-amp`` or
``-fp16``, then ``-compiled`` or ``-graph``, then ``-loaderN``; for example
``resnet50-imagenet64-bs128-amp-compiled-loader4``.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from advisor.errors import UnknownName
from advisor.workload.spec import Execution, Precision, Workload
from advisor.workload.tasks import TASKS, TIMM, usual_batches

_PATTERN = re.compile(
    r"(?P<task>[a-z0-9_-]+?)-bs(?P<batch>[1-9]\d{0,5})"
    r"(?:-(?P<precision>tf32|amp|fp16))?(?:-(?P<execution>compiled|graph))?"
    r"(?:-loader(?P<workers>[1-9]\d?))?"
)

# One workload with every option, to show how options are written.
_OPTIONS = ("tf32", "amp", "fp16", "compiled", "graph", "loader4", "amp-compiled-loader4")
_WITH_OPTIONS = tuple(f"resnet50-imagenet64-bs128-{options}" for options in _OPTIONS)


def zoo() -> tuple[Workload, ...]:
    """Every named workload at its usual batch sizes, then one of them with options."""
    return tuple(map(workload, (*_plain_names(), *_WITH_OPTIONS)))


def _plain_names() -> list[str]:
    return [f"{task}-bs{batch}" for task in TASKS for batch in usual_batches(task)]


def workload(name: str) -> Workload:
    """The workload called `name`, with any batch size.

    Raises:
        UnknownName: `name` follows another pattern, or its model or task is not in the zoo.
    """
    match = _PATTERN.fullmatch(name)
    if match is None or match["task"] not in TASKS:
        raise UnknownName(
            "workload",
            name,
            _plain_names(),
            "`advisor workloads` lists all; any timm model: --timm NAME.",
        )
    precision: Precision = match["precision"] or "default"  # type: ignore[assignment]
    execution: Execution = match["execution"] or "eager"  # type: ignore[assignment]
    return replace(
        TASKS[match["task"]],
        name=name,
        batch=int(match["batch"]),
        precision=precision,
        execution=execution,
        loader_workers=int(match["workers"] or 0),
    )


def timm_workload(  # noqa: PLR0913 - each is an option of the user's
    model: str,
    *,
    resolution: int,
    classes: int,
    batch: int,
    precision: Precision = "default",
    execution: Execution = "eager",
    loader_workers: int = 0,
    examples_per_epoch: int | None = None,
) -> Workload:
    """A workload of any timm model; the model is looked up only when it is built.

    Raises:
        InvalidInput: A number is below 1, or the precision or execution is not known.
    """
    name = f"{model}-{resolution}px-{classes}c-bs{batch}"
    name += f"-{precision}" * (precision != "default")
    name += f"-{execution}" * (execution != "eager")
    name += f"-loader{loader_workers}" * (loader_workers > 0)
    family = re.split(r"[\d_.]", model, maxsplit=1)[0] or model
    return Workload(
        name=name, source="timm", model=model, family=TIMM.get(model, family), batch=batch,
        precision=precision, execution=execution, loader_workers=loader_workers,
        resolution=resolution, classes=classes, examples_per_epoch=examples_per_epoch,
    )  # fmt: skip


def how_to_measure(names: Sequence[str]) -> str:
    """The command that measures the workloads `names`, or that lists those that can be measured."""
    try:
        return f"`advisor profile {' '.join(workload(name).name for name in names)}`"
    except UnknownName:
        return "`advisor workloads` lists what can be measured by name"
