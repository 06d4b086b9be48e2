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
from advisor.zoo import language, tables
from advisor.zoo.diffusion import Diffusion, check_side
from advisor.zoo.images import ImageFiles, find_images
from advisor.zoo.vision import MLP_INPUTS, Cnn, KeptStatistics, MultiColumn, mlp, timm_network

# What the padding and random crop of the usual CIFAR-10 recipe add (He et al. 2016, section 4.2),
# as a share of the side.
_CROP_MARGIN = 1 / 8


class Examples(Protocol):
    """Synthetic training examples: right in shape, type and host cost, random in content.

    Inputs come first and the target last.
    """

    def batch(self, count: int) -> tuple[Tensor, ...]:
        """Return `count` examples on torch's default device; `count` is each first dimension."""
        ...

    def one(self) -> tuple[Tensor, ...]:
        """Return one example in host memory, with the work that a data loader does for it."""
        return tuple(tensor[0] for tensor in self.batch(1))


@dataclass(frozen=True, slots=True)
class Images(Examples):
    """RGB images of `resolution` x `resolution` pixels with a label."""

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
class Vectors(Examples):
    """Rows of `width` numbers with a label."""

    width: int
    classes: int

    def batch(self, count: int) -> tuple[Tensor, ...]:
        return torch.randn(count, self.width), torch.randint(self.classes, (count,))


@dataclass(frozen=True, slots=True)
class Sentences(Examples):
    """Sequences of `length` token ids below `vocabulary`, with a label."""

    vocabulary: int
    length: int
    classes: int

    def batch(self, count: int) -> tuple[Tensor, ...]:
        tokens = torch.randint(self.vocabulary, (count, self.length))
        return tokens, torch.randint(self.classes, (count,))


@dataclass(frozen=True, slots=True)
class Continuations(Examples):
    """Sequences of `length` token ids below `vocabulary`; the target is each one's successor."""

    vocabulary: int
    length: int

    def batch(self, count: int) -> tuple[Tensor, ...]:
        tokens = torch.randint(self.vocabulary, (count, self.length + 1))
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


@dataclass(frozen=True, slots=True)
class Clicks(Examples):
    """Adverts with `dense` numbers and `sparse` row numbers below `rows`; clicked, 1, or not, 0."""

    dense: int
    sparse: int
    rows: int

    def batch(self, count: int) -> tuple[Tensor, ...]:
        numbers = torch.randn(count, self.dense)
        return (
            numbers,
            torch.randint(self.rows, (count, self.sparse)),
            torch.randint(2, (count,), dtype=torch.float32),
        )


@dataclass(frozen=True, slots=True)
class Ratings(Examples):
    """Pairs of a user and an item, by number, with a rating of about 0."""

    users: int
    items: int

    def batch(self, count: int) -> tuple[Tensor, ...]:
        users, items = torch.randint(self.users, (count,)), torch.randint(self.items, (count,))
        return users, items, torch.randn(count)


@dataclass(frozen=True, slots=True)
class Frames(Examples):
    """Sequences of `length` frames, each of `width` numbers, with a label."""

    length: int
    width: int
    classes: int

    def batch(self, count: int) -> tuple[Tensor, ...]:
        frames = torch.randn(count, self.length, self.width)
        return frames, torch.randint(self.classes, (count,))


@dataclass(frozen=True, slots=True)
class Spans(Examples):
    """Sequences of `source` token ids below `vocabulary`; the label of each is `target`.

    Inputs are the source and the target so far; the target is each of its tokens' successor.
    """

    vocabulary: int
    source: int
    target: int

    def batch(self, count: int) -> tuple[Tensor, ...]:
        tokens = torch.randint(self.vocabulary, (count, self.source))
        return tokens, *Continuations(self.vocabulary, self.target).batch(count)


@dataclass(frozen=True, slots=True)
class Graphs(Examples):
    """Graphs of `nodes` nodes with `features` each, and `edges` random edges between them.

    Inputs are features (nodes, features) and edges (2, edges), from the first row to the second;
    the target is a label of each node, or one of the graph.
    """

    nodes: int
    edges: int
    features: int
    classes: int
    per_node: bool

    def batch(self, count: int) -> tuple[Tensor, ...]:
        return (
            torch.randn(count, self.nodes, self.features),
            torch.randint(self.nodes, (count, 2, self.edges)),
            torch.randint(self.classes, (count, self.nodes) if self.per_node else (count,)),
        )


Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Recipe:
    """Network, examples and loss of a workload.

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


def recipe_of(workload: Workload) -> Recipe:
    """Return how `workload` is trained.

    Raises:
        UnknownName: No such model.
        InvalidInput: The workload lacks a number that its model needs.
    """
    if workload.source == "timm":
        recipe = _image_classifier(timm_network)(workload)
    elif workload.model in _PLAIN:
        recipe = _PLAIN[workload.model](workload)
    else:
        raise UnknownName(
            "plain model", workload.model, _PLAIN, "For a model of timm say --timm NAME."
        )
    if workload.data is None:
        return recipe
    if not isinstance(recipe.examples, Images):
        raise InvalidInput(
            f"{workload.name}: its input is not an image, so it cannot read a folder of images"
        )
    side, classes = recipe.examples.resolution, recipe.examples.classes
    files = ImageFiles(find_images(Path(workload.data)), side, classes)
    return replace(recipe, examples=files)


def _image_classifier(network: Callable[[Workload], nn.Module]) -> Callable[[Workload], Recipe]:
    def recipe(workload: Workload) -> Recipe:
        images = Images(_needed(workload, "resolution"), _needed(workload, "classes"))
        return Recipe(lambda: network(workload), images, classification_loss)

    return recipe


def _mlp(workload: Workload) -> Recipe:
    classes = _needed(workload, "classes")
    return Recipe(lambda: mlp(classes), Vectors(MLP_INPUTS, classes), classification_loss)


def _classifier(shape: language.Shape) -> Callable[[Workload], Recipe]:
    def recipe(workload: Workload) -> Recipe:
        classes = _needed(workload, "classes")
        sentences = Sentences(shape.vocabulary, _length(workload, shape), classes)
        return Recipe(
            lambda: language.SentenceClassifier(shape, classes), sentences, classification_loss
        )

    return recipe


def _language_model(shape: language.Shape) -> Callable[[Workload], Recipe]:
    def recipe(workload: Workload) -> Recipe:
        text = Continuations(shape.vocabulary, _length(workload, shape))
        return Recipe(lambda: language.LanguageModel(shape), text, classification_loss)

    return recipe


def _masked_language_model(workload: Workload) -> Recipe:
    # The target of each token is some token: which, and whether it was hidden, costs no time.
    text = Continuations(language.BERT_LARGE.vocabulary, _length(workload, language.BERT_LARGE))
    return Recipe(
        lambda: language.MaskedLanguageModel(language.BERT_LARGE), text, classification_loss
    )


def _recommender(workload: Workload) -> Recipe:
    rows = tables.rows_of_tables(_needed(workload, "table_mib"))
    clicks = Clicks(tables.DENSE_FEATURES, tables.SPARSE_FEATURES, rows)
    return Recipe(
        lambda: tables.Recommender(rows), clicks, functional.binary_cross_entropy_with_logits
    )


def _lstm(workload: Workload) -> Recipe:
    text = Continuations(language.LSTM_VOCABULARY, _needed(workload, "sequence_length"))
    return Recipe(language.LstmLanguageModel, text, classification_loss)


def _gru(workload: Workload) -> Recipe:
    classes = _needed(workload, "classes")
    frames = Frames(_needed(workload, "sequence_length"), language.SPEECH_BANDS, classes)
    return Recipe(lambda: language.GruClassifier(classes), frames, classification_loss)


def _t5(workload: Workload) -> Recipe:
    source = _needed(workload, "sequence_length")
    # 15 % of the tokens are hidden, in spans of three with a mark before each (Raffel et al. 2020,
    # section 3.1.4): 114 of 512, here the quarter to which that is padded.
    spans = Spans(language.T5_VOCABULARY, source, max(1, source // 4))
    return Recipe(language.T5Small, spans, classification_loss)


def _unet(workload: Workload) -> Recipe:
    resolution = _needed(workload, "resolution")
    check_side(resolution)
    # The network tells its own errors: there is nothing to compare them with.
    return Recipe(
        lambda: Diffusion(resolution), Images(resolution, 1), lambda errors, _: errors.mean()
    )


def _graph_network(shape: tables.GraphShape) -> Callable[[Workload], Recipe]:
    def recipe(workload: Workload) -> Recipe:
        classes = _needed(workload, "classes")
        graphs = Graphs(shape.nodes, shape.edges, shape.features, classes, shape.per_node)
        return Recipe(lambda: tables.GraphNetwork(shape, classes), graphs, classification_loss)

    return recipe


_PLAIN: dict[str, Callable[[Workload], Recipe]] = {
    "mlp": _mlp,
    "cnn": _image_classifier(lambda workload: Cnn(_needed(workload, "classes"))),
    "transformer": _language_model(language.TOY),
    "bert-base": _classifier(language.BERT_BASE),
    "bert-large": _masked_language_model,
    "gpt2-small": _language_model(language.GPT2_SMALL),
    "gpt2-medium": _language_model(language.GPT2_MEDIUM),
    "gpt2-large": _language_model(language.GPT2_LARGE),
    "resnet50-kept-statistics": _image_classifier(
        lambda workload: KeptStatistics(timm_network(replace(workload, model="resnet50")))
    ),
    "t5-small": _t5,
    "lstm": _lstm,
    "gru": _gru,
    "dlrm": _recommender,
    "mf": lambda _: Recipe(
        tables.Factors, Ratings(tables.USERS, tables.ITEMS), functional.mse_loss
    ),
    "mcdnn": _image_classifier(lambda workload: MultiColumn(_needed(workload, "classes"))),
    "unet": _unet,
    "gcn-arxiv": _graph_network(tables.ARXIV),
    "gcn-molecules": _graph_network(tables.MOLECULES),
}


def _needed(workload: Workload, field: str) -> int:
    value: int | None = getattr(workload, field)
    if value is None:
        raise InvalidInput(f"{workload.name}: {workload.model} needs {field}, and has none")
    return value


def _length(workload: Workload, shape: language.Shape) -> int:
    length = _needed(workload, "sequence_length")
    if length > shape.positions:
        raise InvalidInput(
            f"{workload.name}: {workload.model} takes at most {shape.positions} tokens, "
            f"got {length}"
        )
    return length
