"""The recipe of each model: its network, its synthetic examples and its loss."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from advisor.errors import InvalidInput, UnknownName
from advisor.workload.spec import Workload
from advisor.zoo import language, tables, vision
from advisor.zoo.images import ImageFiles, find_images

# What the padding and random crop of the usual CIFAR-10 recipe add (He et al. 2016, section 4.2),
# as a share of the side.
_CROP_MARGIN = 1 / 8


class Examples(Protocol):
    """Training examples: right in shape, type and host cost; inputs first and the target last."""

    def batch(self, count: int) -> tuple[Tensor, ...]:
        """Return `count` examples on torch's default device; `count` is each first dimension."""
        ...

    def one(self) -> tuple[Tensor, ...]:
        """Return one example in host memory, with the work that a data loader does for it."""
        return tuple(tensor[0] for tensor in self.batch(1))


@dataclass(frozen=True, slots=True)
class Images(Examples):
    """Random RGB images of `resolution` x `resolution` pixels with a label."""

    resolution: int
    classes: int

    def batch(self, count: int) -> tuple[Tensor, ...]:
        pixels = torch.randn(count, 3, self.resolution, self.resolution)
        return pixels, torch.randint(self.classes, (count,))

    def one(self) -> tuple[Tensor, ...]:
        side = self.resolution + max(1, round(self.resolution * _CROP_MARGIN))
        decoded = torch.randint(256, (3, side, side), dtype=torch.uint8)
        top, left = torch.randint(side - self.resolution + 1, (2,)).tolist()
        crop = decoded[:, top : top + self.resolution, left : left + self.resolution]
        if torch.rand(()) < 0.5:
            crop = crop.flip(-1)
        return crop.float().div_(127.5).sub_(1), torch.randint(self.classes, ())


@dataclass(frozen=True, slots=True)
class Drawn(Examples):
    """Random examples, of which `draw` makes as many as wanted."""

    draw: Callable[[int], tuple[Tensor, ...]]

    def batch(self, count: int) -> tuple[Tensor, ...]:
        return self.draw(count)


def numbers(*shape: int, classes: int) -> Drawn:
    """Draw numbers of this shape, with a label."""
    return Drawn(lambda count: (torch.randn(count, *shape), torch.randint(classes, (count,))))


def sentences(vocabulary: int, length: int, classes: int) -> Drawn:
    """Draw sequences of `length` token ids below `vocabulary`, with a label."""
    return Drawn(
        lambda count: (torch.randint(vocabulary, (count, length)), torch.randint(classes, (count,)))
    )


def continuations(vocabulary: int, length: int) -> Drawn:
    """Draw sequences of `length` token ids below `vocabulary`; the target is the next token."""

    def draw(count: int) -> tuple[Tensor, ...]:
        tokens = torch.randint(vocabulary, (count, length + 1))
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    return Drawn(draw)


def spans(vocabulary: int, source: int, target: int) -> Drawn:
    """Draw sequences of `source` token ids; the label of each has `target` of them.

    Inputs are the source and the target so far; the target is each of its tokens' successor.
    """
    text = continuations(vocabulary, target)
    return Drawn(lambda count: (torch.randint(vocabulary, (count, source)), *text.draw(count)))


def clicks(dense: int, sparse: int, rows: int) -> Drawn:
    """Draw adverts with `dense` numbers and `sparse` row numbers below `rows`; clicked: 1."""
    return Drawn(
        lambda count: (
            torch.randn(count, dense),
            torch.randint(rows, (count, sparse)),
            torch.randint(2, (count,), dtype=torch.float32),
        )
    )


def ratings(users: int, items: int) -> Drawn:
    """Draw pairs of a user and an item, by number, with a rating of about 0."""
    return Drawn(
        lambda count: (
            torch.randint(users, (count,)),
            torch.randint(items, (count,)),
            torch.randn(count),
        )
    )


def graphs(shape: tables.GraphShape, classes: int) -> Drawn:
    """Draw graphs of `shape` with random edges, and a label of each node, or one of the graph.

    Inputs are features (nodes, features) and edges (2, edges), from the first row to the second.
    """
    return Drawn(
        lambda count: (
            torch.randn(count, shape.nodes, shape.features),
            torch.randint(shape.nodes, (count, 2, shape.edges)),
            torch.randint(classes, (count, shape.nodes) if shape.per_node else (count,)),
        )
    )


@dataclass(frozen=True, slots=True)
class Recipe:
    """Builds a network on torch's default device; its examples; the loss of output and target."""

    network: Callable[[], nn.Module]
    examples: Examples
    loss: Callable[[Tensor, Tensor], Tensor]


def classification_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross entropy of `logits` (..., classes) and class numbers `targets` (...)."""
    return functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


def recipe_of(workload: Workload) -> Recipe:
    """Return how `workload` is trained.

    Raises:
        UnknownName: No such model.
        InvalidInput: The workload lacks a number that its model needs.
    """
    if workload.source == "timm":
        recipe = _image_classifier(vision.timm_network)(workload)
    elif workload.model in _PLAIN:
        recipe = _PLAIN[workload.model](workload)
    else:
        raise UnknownName(
            "plain model", workload.model, _PLAIN, "For a timm model, write --timm NAME."
        )
    if workload.data is None:
        return recipe
    if not isinstance(recipe.examples, Images):
        raise InvalidInput(
            f"{workload.name}: its input is not an image, so it cannot read a folder of images"
        )
    side, classes = recipe.examples.resolution, recipe.examples.classes
    return replace(recipe, examples=ImageFiles(find_images(Path(workload.data)), side, classes))


def _image_classifier(network: Callable[[Workload], nn.Module]) -> Callable[[Workload], Recipe]:
    def recipe(workload: Workload) -> Recipe:
        images = Images(_needed(workload, "resolution"), _needed(workload, "classes"))
        return Recipe(lambda: network(workload), images, classification_loss)

    return recipe


def _mlp(workload: Workload) -> Recipe:
    classes = _needed(workload, "classes")
    rows = numbers(vision.MLP_INPUTS, classes=classes)
    return Recipe(lambda: vision.mlp(classes), rows, classification_loss)


def _bert_base(workload: Workload) -> Recipe:
    shape, classes = language.BERT_BASE, _needed(workload, "classes")
    text = sentences(shape.vocabulary, _length(workload, shape), classes)
    return Recipe(lambda: language.SentenceClassifier(shape, classes), text, classification_loss)


def _language_model(
    shape: language.Shape, network: Callable[[language.Shape], nn.Module] = language.LanguageModel
) -> Callable[[Workload], Recipe]:
    def recipe(workload: Workload) -> Recipe:
        text = continuations(shape.vocabulary, _length(workload, shape))
        return Recipe(lambda: network(shape), text, classification_loss)

    return recipe


def _lstm(workload: Workload) -> Recipe:
    text = continuations(language.LSTM_VOCABULARY, _needed(workload, "sequence_length"))
    return Recipe(language.LstmLanguageModel, text, classification_loss)


def _gru(workload: Workload) -> Recipe:
    classes = _needed(workload, "classes")
    length = _needed(workload, "sequence_length")
    frames = numbers(length, language.SPEECH_BANDS, classes=classes)
    return Recipe(lambda: language.GruClassifier(classes), frames, classification_loss)


def _t5(workload: Workload) -> Recipe:
    source = _needed(workload, "sequence_length")
    # 15 % of the tokens are hidden, in spans of three with a mark before each (Raffel et al. 2020,
    # section 3.1.4): 114 of 512, here the quarter to which that is padded.
    text = spans(language.T5_VOCABULARY, source, max(1, source // 4))
    return Recipe(language.T5Small, text, classification_loss)


def _recommender(workload: Workload) -> Recipe:
    rows = tables.rows_of_tables(_needed(workload, "table_mib"))
    adverts = clicks(tables.DENSE_FEATURES, tables.SPARSE_FEATURES, rows)
    loss = functional.binary_cross_entropy_with_logits
    return Recipe(lambda: tables.Recommender(rows), adverts, loss)


def _factors(_workload: Workload) -> Recipe:
    return Recipe(tables.Factors, ratings(tables.USERS, tables.ITEMS), functional.mse_loss)


def _unet(workload: Workload) -> Recipe:
    resolution = _needed(workload, "resolution")
    vision.check_side(resolution)
    # The network tells its own errors: there is nothing to compare them with.
    return Recipe(
        lambda: vision.Diffusion(resolution), Images(resolution, 1), lambda errors, _: errors.mean()
    )


def _graph_network(shape: tables.GraphShape) -> Callable[[Workload], Recipe]:
    def recipe(workload: Workload) -> Recipe:
        classes = _needed(workload, "classes")
        examples = graphs(shape, classes)
        return Recipe(lambda: tables.GraphNetwork(shape, classes), examples, classification_loss)

    return recipe


_PLAIN: dict[str, Callable[[Workload], Recipe]] = {
    "mlp": _mlp,
    "cnn": _image_classifier(lambda workload: vision.Cnn(_needed(workload, "classes"))),
    "transformer": _language_model(language.TOY),
    "bert-base": _bert_base,
    # The target of each token is some token: which, and whether it was hidden, costs no time.
    "bert-large": _language_model(language.BERT_LARGE, language.MaskedLanguageModel),
    "gpt2-small": _language_model(language.GPT2_SMALL),
    "gpt2-medium": _language_model(language.GPT2_MEDIUM),
    "gpt2-large": _language_model(language.GPT2_LARGE),
    "resnet50-kept-statistics": _image_classifier(
        lambda workload: vision.KeptStatistics(
            vision.timm_network(replace(workload, model="resnet50"))
        )
    ),
    "t5-small": _t5,
    "lstm": _lstm,
    "gru": _gru,
    "dlrm": _recommender,
    "mf": _factors,
    "mcdnn": _image_classifier(lambda workload: vision.MultiColumn(_needed(workload, "classes"))),
    "unet": _unet,
    "gcn-arxiv": _graph_network(tables.ARXIV),
    "gcn-molecules": _graph_network(tables.MOLECULES),
}


def _needed(workload: Workload, field: str) -> int:
    value: int | None = getattr(workload, field)
    if value is None:
        raise InvalidInput(f"{workload.name}: {workload.model} needs {field}, which is missing")
    return value


def _length(workload: Workload, shape: language.Shape) -> int:
    length = _needed(workload, "sequence_length")
    if length > shape.positions:
        raise InvalidInput(
            f"{workload.name}: {workload.model} accepts at most {shape.positions} tokens, got "
            f"{length}"
        )
    return length
