"""What each model is trained with: its network, examples, loss and optimizer."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from advisor.errors import InvalidInput, UnknownName
from advisor.training.examples import (
    Clicks,
    Continuations,
    Examples,
    Images,
    Sentences,
    Vectors,
)
from advisor.training.language import (
    BERT_BASE,
    GPT2_MEDIUM,
    GPT2_SMALL,
    TOY,
    LanguageModel,
    SentenceClassifier,
    Shape,
)
from advisor.training.recommender import (
    DENSE_FEATURES,
    SPARSE_FEATURES,
    Recommender,
    rows_of_tables,
)
from advisor.training.toys import MLP_INPUTS, Cnn, mlp
from advisor.training.vision import timm_network
from advisor.workload.spec import Workload

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a workload is trained.

    Attributes:
        network: Builds the model on torch's default device.
        loss: Of the model's output and the target.
    """

    network: Callable[[], nn.Module]
    examples: Examples
    loss: Loss


def classification_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of `logits` (..., classes) and class numbers `targets` (...)."""
    return functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


def optimizer_of(network: nn.Module) -> torch.optim.Optimizer:
    """The optimizer such networks are usually trained with, at torch's defaults for its kind.

    Plain SGD where gradients are sparse; AdamW where layers are normalised, which is transformers
    and ConvNeXt; SGD with momentum for the rest, the convolutional networks. Rates are low, since
    the data is random and a step that diverged to NaN would draw less power.
    """
    parameters = list(network.parameters())
    if _has(network, nn.EmbeddingBag):
        return torch.optim.SGD(parameters, lr=0.01)
    if _has(network, nn.LayerNorm):
        return torch.optim.AdamW(parameters, lr=1e-4)
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)


def _has(network: nn.Module, kind: type[nn.Module]) -> bool:
    return any(isinstance(module, kind) for module in network.modules())


def recipe_of(workload: Workload) -> Recipe:
    """How `workload` is trained.

    Raises:
        UnknownName: No such model.
        InvalidInput: The workload lacks a number that its model needs.
    """
    if workload.source == "timm":
        return _timm(workload)
    try:
        plain = _PLAIN[workload.model]
    except KeyError:
        raise UnknownName(
            "plain model", workload.model, _PLAIN, "For a model of timm say --timm NAME."
        ) from None
    return plain(workload)


def _timm(workload: Workload) -> Recipe:
    images = Images(_needed(workload, "resolution"), _needed(workload, "classes"))
    return Recipe(lambda: timm_network(workload), images, classification_loss)


def _mlp(workload: Workload) -> Recipe:
    classes = _needed(workload, "classes")
    return Recipe(lambda: mlp(classes), Vectors(MLP_INPUTS, classes), classification_loss)


def _cnn(workload: Workload) -> Recipe:
    images = Images(_needed(workload, "resolution"), _needed(workload, "classes"))
    return Recipe(lambda: Cnn(images.classes), images, classification_loss)


def _classifier(shape: Shape) -> Callable[[Workload], Recipe]:
    def recipe(workload: Workload) -> Recipe:
        classes = _needed(workload, "classes")
        sentences = Sentences(shape.vocabulary, _length(workload, shape), classes)
        return Recipe(lambda: SentenceClassifier(shape, classes), sentences, classification_loss)

    return recipe


def _language_model(shape: Shape) -> Callable[[Workload], Recipe]:
    def recipe(workload: Workload) -> Recipe:
        text = Continuations(shape.vocabulary, _length(workload, shape))
        return Recipe(lambda: LanguageModel(shape), text, classification_loss)

    return recipe


def _recommender(workload: Workload) -> Recipe:
    rows = rows_of_tables(_needed(workload, "table_mib"))
    clicks = Clicks(DENSE_FEATURES, SPARSE_FEATURES, rows)
    return Recipe(lambda: Recommender(rows), clicks, functional.binary_cross_entropy_with_logits)


_PLAIN: dict[str, Callable[[Workload], Recipe]] = {
    "mlp": _mlp,
    "cnn": _cnn,
    "transformer": _language_model(TOY),
    "bert-base": _classifier(BERT_BASE),
    "gpt2-small": _language_model(GPT2_SMALL),
    "gpt2-medium": _language_model(GPT2_MEDIUM),
    "dlrm": _recommender,
}


def _needed(workload: Workload, field: str) -> int:
    value: int | None = getattr(workload, field)
    if value is None:
        raise InvalidInput(f"{workload.name}: {workload.model} needs a {field}, and has none")
    return value


def _length(workload: Workload, shape: Shape) -> int:
    length = _needed(workload, "sequence_length")
    if length > shape.positions:
        raise InvalidInput(
            f"{workload.name}: {workload.model} takes at most {shape.positions} tokens, "
            f"got {length}"
        )
    return length
