"""The workloads that have names.

A name is ``MODEL-TASK-bsBATCH`` with options after it, in this order: ``-tf32`` or ``-amp``,
then ``-loaderN``; for example ``resnet50-imagenet64-bs128-amp-loader4``.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from advisor.errors import UnknownName
from advisor.workload.spec import Precision, Workload


@dataclass(frozen=True, slots=True)
class _Images:
    resolution: int
    classes: int
    examples: int


# Sizes of the public training sets: Krizhevsky 2009; Chrabaszcz et al. 2017 (same images as
# ImageNet, 64 px); Russakovsky et al. 2015.
_IMAGES = {
    "cifar10": _Images(32, 10, 50_000),
    "imagenet64": _Images(64, 1000, 1_281_167),
    "imagenet": _Images(224, 1000, 1_281_167),
}

# timm's name -> family. The first five are those of the collocation studies.
_TIMM = {
    "resnet26": "resnet",
    "resnet50": "resnet",
    "resnet152": "resnet",
    "tf_efficientnetv2_s": "efficientnetv2",
    "cait_xxs24_224": "cait",
    "vit_small_patch16_224": "vit",
    "convnext_tiny": "convnext",
    "mobilenetv3_large_100": "mobilenetv3",
}

# Sequences of one pass: SST-2 has 67,349 sentences; WikiText-103 has 103,227,021 tokens and
# WikiText-2 has 2,088,628, here cut into 1,024 each.
_LANGUAGE = {
    "bert-base-finetune": Workload(
        name="bert-base-finetune", source="plain", model="bert-base", family="bert",
        batch=1, sequence_length=128, classes=2, examples_per_epoch=67_349,
    ),
    "gpt2-small-pretrain": Workload(
        name="gpt2-small-pretrain", source="plain", model="gpt2-small", family="gpt2",
        batch=1, sequence_length=1024, examples_per_epoch=100_807,
    ),
    "gpt2-medium-pretrain": Workload(
        name="gpt2-medium-pretrain", source="plain", model="gpt2-medium", family="gpt2",
        batch=1, sequence_length=1024, examples_per_epoch=100_807,
    ),
    "gpt2-small-finetune": Workload(
        name="gpt2-small-finetune", source="plain", model="gpt2-small", family="gpt2",
        batch=1, sequence_length=256, examples_per_epoch=8_158,
    ),
    "gpt2-medium-finetune": Workload(
        name="gpt2-medium-finetune", source="plain", model="gpt2-medium", family="gpt2",
        batch=1, sequence_length=256, examples_per_epoch=8_158,
    ),
}  # fmt: skip

# Criteo's display advertising challenge has 45,840,617 examples; the table sizes are ours.
_DLRM = {
    f"dlrm-{gib}gb": Workload(
        name=f"dlrm-{gib}gb", source="plain", model="dlrm", family="dlrm",
        batch=1, table_mib=gib * 1024, examples_per_epoch=45_840_617,
    )
    for gib in (1, 8, 29)
}  # fmt: skip

# Small enough to train on a CPU: for trying out.
_TOYS = {
    "mlp-toy": Workload(
        name="mlp-toy", source="plain", model="mlp", family="mlp",
        batch=1, classes=10, examples_per_epoch=50_000,
    ),
    "cnn-cifar10": Workload(
        name="cnn-cifar10", source="plain", model="cnn", family="cnn",
        batch=1, resolution=32, classes=10, examples_per_epoch=50_000,
    ),
    "transformer-toy": Workload(
        name="transformer-toy", source="plain", model="transformer", family="transformer",
        batch=1, sequence_length=64, examples_per_epoch=8_158,
    ),
}  # fmt: skip

_PRETRAIN_BATCHES, _FINETUNE_BATCHES = (4, 8, 16), (1, 2, 4, 8, 16, 32)
_PATTERN = re.compile(
    r"(?P<task>[a-z0-9_-]+?)-bs(?P<batch>[1-9]\d{0,5})"
    r"(?:-(?P<precision>tf32|amp))?(?:-loader(?P<workers>[1-9]\d?))?"
)


def _vision() -> Iterator[tuple[str, Workload]]:
    for (model, family), (task, images) in product(_TIMM.items(), _IMAGES.items()):
        name = f"{model}-{task}"
        yield name, Workload(
            name=name, source="timm", model=model, family=family, batch=1,
            resolution=images.resolution, classes=images.classes,
            examples_per_epoch=images.examples,
        )  # fmt: skip


_TASKS = dict(_vision()) | _LANGUAGE | _DLRM | _TOYS


def _batches(task: str) -> tuple[int, ...]:
    if task.endswith("-pretrain"):
        return _PRETRAIN_BATCHES
    return _FINETUNE_BATCHES if task.endswith("-finetune") else (32, 128)


def zoo() -> tuple[Workload, ...]:
    """Every named workload at its usual batch sizes, resident input, torch's own precision."""
    return tuple(workload(f"{task}-bs{batch}") for task in _TASKS for batch in _batches(task))


def workload(name: str) -> Workload:
    """The workload that `name` stands for; any batch size will do.

    Raises:
        UnknownName: `name` follows another pattern, or its model or task is not in the zoo.
    """
    match = _PATTERN.fullmatch(name)
    if match is None or match["task"] not in _TASKS:
        known = [f"{task}-bs{batch}" for task in _TASKS for batch in _batches(task)]
        raise UnknownName(
            "workload", name, known, "`advisor workloads` lists all; any timm model: --timm NAME."
        )
    precision: Precision = match["precision"] or "default"  # type: ignore[assignment]
    return replace(
        _TASKS[match["task"]],
        name=name,
        batch=int(match["batch"]),
        precision=precision,
        loader_workers=int(match["workers"] or 0),
    )


def timm_workload(  # noqa: PLR0913 - each is a word of the user's
    model: str,
    *,
    resolution: int,
    classes: int,
    batch: int,
    precision: Precision = "default",
    loader_workers: int = 0,
    examples_per_epoch: int | None = None,
) -> Workload:
    """A workload of any timm model; whether timm knows it shows when it is built.

    Raises:
        InvalidInput: A number is below 1, or the precision is none.
    """
    name = f"{model}-{resolution}px-{classes}c-bs{batch}"
    name += f"-{precision}" * (precision != "default")
    name += f"-loader{loader_workers}" * (loader_workers > 0)
    family = re.split(r"[\d_.]", model, maxsplit=1)[0] or model
    return Workload(
        name=name, source="timm", model=model, family=_TIMM.get(model, family), batch=batch,
        precision=precision, loader_workers=loader_workers, resolution=resolution,
        classes=classes, examples_per_epoch=examples_per_epoch,
    )  # fmt: skip
