"""The workloads of the zoo by name.

A name is ``MODEL-TASK-bsBATCH`` with options after it, in this order: ``-tf32``, ``-amp`` or
``-fp16``, then ``-compiled`` or ``-graph``, then ``-loaderN``; for example
``resnet50-imagenet64-bs128-amp-compiled-loader4``.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from advisor.errors import UnknownName
from advisor.workload.spec import Execution, Precision, Workload

# timm's name -> family. The first five are those of the collocation studies.
TIMM = {
    "resnet26": "resnet",
    "resnet50": "resnet",
    "resnet152": "resnet",
    "tf_efficientnetv2_s": "efficientnetv2",
    "cait_xxs24_224": "cait",
    "vit_small_patch16_224": "vit",
    "vit_base_patch16_224": "vit",
    "convnext_tiny": "convnext",
    "mobilenetv3_large_100": "mobilenetv3",
    "mixer_s16_224": "mixer",
    "mixer_b16_224": "mixer",
    "swin_tiny_patch4_window7_224": "swin",
    "regnety_016": "regnet",
    "densenet121": "densenet",
    # Parallel branches, many small kernels, and steps far longer than those above.
    "hrnet_w18_small_v2": "hrnet",
    "res2net50_26w_4s": "res2net",
    "nasnetalarge": "nasnet",
    "ghostnet_100": "ghostnet",
    "mixnet_s": "mixnet",
    "xcit_small_12_p16_224": "xcit",
    "beit_large_patch16_224": "beit",
}

# Resolution, classes and examples of the public training sets: Krizhevsky 2009; Chrabaszcz et al.
# 2017 (same images as ImageNet, 64 px); Russakovsky et al. 2015.
_IMAGES = {
    "cifar10": (32, 10, 50_000),
    "imagenet64": (64, 1000, 1_281_167),
    "imagenet": (224, 1000, 1_281_167),
}


def _plain(name: str, model: str, family: str, examples: int, **sizes: Any) -> Workload:
    return Workload(
        name=name,
        source="plain",
        model=model,
        family=family,
        batch=1,
        examples_per_epoch=examples,
        **sizes,
    )


_TASKS = (
    *(
        Workload(
            name=f"{model}-{data}",
            source="timm",
            model=model,
            family=family,
            batch=1,
            resolution=resolution,
            classes=classes,
            examples_per_epoch=examples,
        )
        for model, family in TIMM.items()
        for data, (resolution, classes, examples) in _IMAGES.items()
    ),
    # Sequences of one pass: SST-2 has 67,349 sentences; WikiText-103 has 103,227,021 tokens and
    # WikiText-2 has 2,088,628, here cut into as many as the model takes at once. Speech Commands
    # (Warden 2018, version 2) has 84,843 utterances to train on, of a second, here 100 frames.
    _plain("bert-base-finetune", "bert-base", "bert", 67_349, sequence_length=128, classes=2),
    _plain("bert-large-pretrain", "bert-large", "bert", 201_615, sequence_length=512),
    _plain("gpt2-small-pretrain", "gpt2-small", "gpt2", 100_807, sequence_length=1024),
    _plain("gpt2-medium-pretrain", "gpt2-medium", "gpt2", 100_807, sequence_length=1024),
    _plain("gpt2-large-pretrain", "gpt2-large", "gpt2", 100_807, sequence_length=1024),
    _plain("gpt2-small-finetune", "gpt2-small", "gpt2", 8_158, sequence_length=256),
    _plain("gpt2-medium-finetune", "gpt2-medium", "gpt2", 8_158, sequence_length=256),
    _plain("t5-small-pretrain", "t5-small", "t5", 201_615, sequence_length=512),
    _plain("lstm-wikitext", "lstm", "recurrent", 59_675, sequence_length=35),
    _plain("gru-speech", "gru", "recurrent", 84_843, sequence_length=100, classes=35),
    # Fine-tuned in `eval()` mode, in which batch norms keep their statistics.
    _plain(
        "resnet50-finetune",
        "resnet50-kept-statistics",
        "resnet",
        1_281_167,
        resolution=224,
        classes=1000,
    ),
    # Criteo's display advertising challenge has 45,840,617 examples; the table sizes are ours.
    *(
        _plain(f"dlrm-{gib}gb", "dlrm", "dlrm", 45_840_617, table_mib=gib * 1024)
        for gib in (1, 8, 29)
    ),
    # MovieLens 25M has 25,000,095 ratings (Harper and Konstan 2015).
    _plain("mf-movielens", "mf", "mf", 25_000_095),
    _plain("unet-cifar10", "unet", "unet", 50_000, resolution=32),
    _plain("unet-imagenet64", "unet", "unet", 1_281_167, resolution=64),
    _plain("mcdnn-cifar10", "mcdnn", "mcdnn", 50_000, resolution=32, classes=10),
    # Sizes of ogbn-arxiv and of ogbg-molhiv's training part (Hu et al. 2020). A batch counts
    # graphs, and the first set is one graph.
    _plain("gcn-arxiv", "gcn-arxiv", "gcn", 1, classes=40),
    _plain("gcn-molecules", "gcn-molecules", "gcn", 32_901, classes=2),
    # Small enough to train on a CPU, for trials.
    _plain("mlp-toy", "mlp", "mlp", 50_000, classes=10),
    _plain("cnn-cifar10", "cnn", "cnn", 50_000, resolution=32, classes=10),
    _plain("transformer-toy", "transformer", "transformer", 8_158, sequence_length=64),
)

TASKS = {each.name: each for each in _TASKS}
"""Tasks by the beginning of a workload's name: network and data, at batch 1, without options."""


_PATTERN = re.compile(
    r"(?P<task>[a-z0-9_-]+?)-bs(?P<batch>[1-9]\d{0,5})"
    r"(?:-(?P<precision>tf32|amp|fp16))?(?:-(?P<execution>compiled|graph))?"
    r"(?:-loader(?P<workers>[1-9]\d?))?"
)

# One workload with every option, to show how options are written.
_OPTIONS = ("tf32", "amp", "fp16", "compiled", "graph", "loader4", "amp-compiled-loader4")
_WITH_OPTIONS = tuple(f"resnet50-imagenet64-bs128-{options}" for options in _OPTIONS)


def zoo() -> tuple[Workload, ...]:
    """Return every named workload at its usual batch sizes, then one of them with options."""
    return tuple(map(workload, (*_names_without_options(), *_WITH_OPTIONS)))


def _names_without_options() -> list[str]:
    """Return the names at the usual batch sizes; any other size is allowed."""

    def batches(task: str) -> tuple[int, ...]:
        if task == "gcn-arxiv":
            return (1,)
        if task.endswith("-pretrain"):
            return 4, 8, 16
        return (1, 2, 4, 8, 16, 32) if task.endswith("-finetune") else (32, 128)

    return [f"{task}-bs{batch}" for task in TASKS for batch in batches(task)]


def workload(name: str) -> Workload:
    """Return the workload called `name`, with any batch size.

    Raises:
        UnknownName: `name` follows another pattern, or its model or task is not in the zoo.
    """
    match = _PATTERN.fullmatch(name)
    if match is None or match["task"] not in TASKS:
        remedy = "`advisor workloads` lists all; any timm model: --timm NAME."
        raise UnknownName("workload", name, _names_without_options(), remedy)
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
    """Return a workload of any timm model; the model is looked up only when it is built."""
    name = f"{model}-{resolution}px-{classes}c-bs{batch}"
    name += f"-{precision}" * (precision != "default")
    name += f"-{execution}" * (execution != "eager")
    name += f"-loader{loader_workers}" * (loader_workers > 0)
    family = re.split(r"[\d_.]", model, maxsplit=1)[0] or model
    return Workload(
        name=name,
        source="timm",
        model=model,
        family=TIMM.get(model, family),
        batch=batch,
        precision=precision,
        execution=execution,
        loader_workers=loader_workers,
        resolution=resolution,
        classes=classes,
        examples_per_epoch=examples_per_epoch,
    )


def how_to_measure(names: Sequence[str]) -> str:
    """Return the command that measures the workloads `names`, or that lists them."""
    try:
        return f"`advisor profile {' '.join(workload(name).name for name in names)}`"
    except UnknownName:
        return (
            "`advisor profile -- python train.py` for a script of yours, or a name of "
            "`advisor workloads`"
        )
