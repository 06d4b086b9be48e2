"""The tasks of the named workloads: what they train on how much data, without batch and options."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from advisor.workload.spec import Workload


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
TIMM = {
    "resnet26": "resnet",
    "resnet50": "resnet",
    "resnet152": "resnet",
    "tf_efficientnetv2_s": "efficientnetv2",
    "cait_xxs24_224": "cait",
    "vit_small_patch16_224": "vit",
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

# Sequences of one pass: SST-2 has 67,349 sentences; WikiText-103 has 103,227,021 tokens and
# WikiText-2 has 2,088,628, here cut into as many as the model takes at once. Speech Commands
# (Warden 2018, version 2) has 84,843 utterances to train on, of a second, here 100 frames.
_SEQUENCES = {
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
    "t5-small-pretrain": Workload(
        name="t5-small-pretrain", source="plain", model="t5-small", family="t5",
        batch=1, sequence_length=512, examples_per_epoch=201_615,
    ),
    "lstm-wikitext": Workload(
        name="lstm-wikitext", source="plain", model="lstm", family="recurrent",
        batch=1, sequence_length=35, examples_per_epoch=59_675,
    ),
    "gru-speech": Workload(
        name="gru-speech", source="plain", model="gru", family="recurrent",
        batch=1, sequence_length=100, classes=35, examples_per_epoch=84_843,
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

_DIFFUSION = {
    f"unet-{task}": Workload(
        name=f"unet-{task}", source="plain", model="unet", family="unet", batch=1,
        resolution=_IMAGES[task].resolution, examples_per_epoch=_IMAGES[task].examples,
    )
    for task in ("cifar10", "imagenet64")
}  # fmt: skip

# MovieLens 25M has 25,000,095 ratings (Harper and Konstan 2015).
_RATINGS = {
    "mf-movielens": Workload(
        name="mf-movielens", source="plain", model="mf", family="mf",
        batch=1, examples_per_epoch=25_000_095,
    ),
}  # fmt: skip

_COLUMNS = {
    "mcdnn-cifar10": Workload(
        name="mcdnn-cifar10", source="plain", model="mcdnn", family="mcdnn", batch=1,
        resolution=_IMAGES["cifar10"].resolution, classes=10, examples_per_epoch=50_000,
    ),
}  # fmt: skip

# Sizes of ogbn-arxiv and of ogbg-molhiv's training part (Hu et al. 2020). A batch counts graphs,
# and the first set is one graph.
_GRAPHS = {
    "gcn-arxiv": Workload(
        name="gcn-arxiv", source="plain", model="gcn-arxiv", family="gcn",
        batch=1, classes=40, examples_per_epoch=1,
    ),
    "gcn-molecules": Workload(
        name="gcn-molecules", source="plain", model="gcn-molecules", family="gcn",
        batch=1, classes=2, examples_per_epoch=32_901,
    ),
}  # fmt: skip

# Small enough to train on a CPU, for trials.
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


def _vision() -> Iterator[tuple[str, Workload]]:
    for (model, family), (task, images) in product(TIMM.items(), _IMAGES.items()):
        name = f"{model}-{task}"
        yield name, Workload(
            name=name, source="timm", model=model, family=family, batch=1,
            resolution=images.resolution, classes=images.classes,
            examples_per_epoch=images.examples,
        )  # fmt: skip


# Each at batch 1, by what its name begins with.
TASKS = dict(_vision()) | _SEQUENCES | _DLRM | _RATINGS | _DIFFUSION | _COLUMNS | _GRAPHS | _TOYS

_PRETRAIN_BATCHES, _FINETUNE_BATCHES = (4, 8, 16), (1, 2, 4, 8, 16, 32)


def usual_batches(task: str) -> tuple[int, ...]:
    """Batch sizes at which `task` is listed; any other is allowed."""
    if task == "gcn-arxiv":
        return (1,)
    if task.endswith("-pretrain"):
        return _PRETRAIN_BATCHES
    return _FINETUNE_BATCHES if task.endswith("-finetune") else (32, 128)
