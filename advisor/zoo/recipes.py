"""The recipe of each model: its network, examples and loss."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor, nn
from torch.nn import functional

from advisor.errors import InvalidInput, UnknownName
from advisor.workload.spec import Workload
from advisor.zoo.diffusion import Diffusion, check_side
from advisor.zoo.examples import (
    Clicks,
    Continuations,
    Examples,
    Frames,
    Graphs,
    Images,
    Ratings,
    Sentences,
    Spans,
    Vectors,
)
from advisor.zoo.images import ImageFiles, found_images
from advisor.zoo.language import (
    BERT_BASE,
    BERT_LARGE,
    GPT2_LARGE,
    GPT2_MEDIUM,
    GPT2_SMALL,
    LSTM_VOCABULARY,
    SPEECH_BANDS,
    T5_VOCABULARY,
    TOY,
    GruClassifier,
    LanguageModel,
    LstmLanguageModel,
    MaskedLanguageModel,
    SentenceClassifier,
    Shape,
    T5Small,
)
from advisor.zoo.tables import (
    ARXIV,
    DENSE_FEATURES,
    ITEMS,
    MOLECULES,
    SPARSE_FEATURES,
    USERS,
    Factors,
    GraphNetwork,
    GraphShape,
    Recommender,
    rows_of_tables,
)
from advisor.zoo.vision import MLP_INPUTS, Cnn, KeptStatistics, MultiColumn, mlp, timm_network

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


def recipe_of(workload: Workload) -> Recipe:
    """How `workload` is trained.

    Raises:
        UnknownName: No such model.
        InvalidInput: The workload lacks a number that its model needs.
    """
    if workload.source == "timm":
        return _reading(workload, _timm(workload))
    try:
        plain = _PLAIN[workload.model]
    except KeyError:
        raise UnknownName(
            "plain model", workload.model, _PLAIN, "For a model of timm say --timm NAME."
        ) from None
    return _reading(workload, plain(workload))


def _reading(workload: Workload, recipe: Recipe) -> Recipe:
    """`recipe` on the files that `workload` reads, if it reads any."""
    if workload.data is None:
        return recipe
    if not isinstance(recipe.examples, Images):
        raise InvalidInput(f"{workload.name}: its input is no image, so it reads no folder of them")
    side, classes = recipe.examples.resolution, recipe.examples.classes
    files = ImageFiles(found_images(Path(workload.data)), side, classes)
    return replace(recipe, examples=files)


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


def _masked_language_model(workload: Workload) -> Recipe:
    # The target of each token is some token: which, and whether it was hidden, costs no time.
    text = Continuations(BERT_LARGE.vocabulary, _length(workload, BERT_LARGE))
    return Recipe(lambda: MaskedLanguageModel(BERT_LARGE), text, classification_loss)


def _fine_tuned_resnet(workload: Workload) -> Recipe:
    images = Images(_needed(workload, "resolution"), _needed(workload, "classes"))
    return Recipe(
        lambda: KeptStatistics(timm_network(replace(workload, model="resnet50"))),
        images,
        classification_loss,
    )


def _recommender(workload: Workload) -> Recipe:
    rows = rows_of_tables(_needed(workload, "table_mib"))
    clicks = Clicks(DENSE_FEATURES, SPARSE_FEATURES, rows)
    return Recipe(lambda: Recommender(rows), clicks, functional.binary_cross_entropy_with_logits)


def _factors(_workload: Workload) -> Recipe:
    return Recipe(Factors, Ratings(USERS, ITEMS), functional.mse_loss)


def _columns(workload: Workload) -> Recipe:
    images = Images(_needed(workload, "resolution"), _needed(workload, "classes"))
    return Recipe(lambda: MultiColumn(images.classes), images, classification_loss)


def _lstm(workload: Workload) -> Recipe:
    text = Continuations(LSTM_VOCABULARY, _needed(workload, "sequence_length"))
    return Recipe(LstmLanguageModel, text, classification_loss)


def _gru(workload: Workload) -> Recipe:
    classes = _needed(workload, "classes")
    frames = Frames(_needed(workload, "sequence_length"), SPEECH_BANDS, classes)
    return Recipe(lambda: GruClassifier(classes), frames, classification_loss)


def _t5(workload: Workload) -> Recipe:
    source = _needed(workload, "sequence_length")
    # 15 % of the tokens are hidden, in spans of three with a mark before each (Raffel et al. 2020,
    # section 3.1.4): 114 of 512, here the quarter to which that is padded.
    spans = Spans(T5_VOCABULARY, source, max(1, source // 4))
    return Recipe(T5Small, spans, classification_loss)


def _unet(workload: Workload) -> Recipe:
    resolution = _needed(workload, "resolution")
    check_side(resolution)
    # The network tells its own errors: there is nothing to compare them with.
    return Recipe(
        lambda: Diffusion(resolution), Images(resolution, 1), lambda errors, _: errors.mean()
    )


def _graph_network(shape: GraphShape) -> Callable[[Workload], Recipe]:
    def recipe(workload: Workload) -> Recipe:
        classes = _needed(workload, "classes")
        graphs = Graphs(shape.nodes, shape.edges, shape.features, classes, shape.per_node)
        return Recipe(lambda: GraphNetwork(shape, classes), graphs, classification_loss)

    return recipe


_PLAIN: dict[str, Callable[[Workload], Recipe]] = {
    "mlp": _mlp,
    "cnn": _cnn,
    "transformer": _language_model(TOY),
    "bert-base": _classifier(BERT_BASE),
    "bert-large": _masked_language_model,
    "gpt2-small": _language_model(GPT2_SMALL),
    "gpt2-medium": _language_model(GPT2_MEDIUM),
    "gpt2-large": _language_model(GPT2_LARGE),
    "resnet50-kept-statistics": _fine_tuned_resnet,
    "t5-small": _t5,
    "lstm": _lstm,
    "gru": _gru,
    "dlrm": _recommender,
    "mf": _factors,
    "mcdnn": _columns,
    "unet": _unet,
    "gcn-arxiv": _graph_network(ARXIV),
    "gcn-molecules": _graph_network(MOLECULES),
}


def _needed(workload: Workload, field: str) -> int:
    value: int | None = getattr(workload, field)
    if value is None:
        raise InvalidInput(f"{workload.name}: {workload.model} needs {field}, and has none")
    return value


def _length(workload: Workload, shape: Shape) -> int:
    length = _needed(workload, "sequence_length")
    if length > shape.positions:
        raise InvalidInput(
            f"{workload.name}: {workload.model} takes at most {shape.positions} tokens, "
            f"got {length}"
        )
    return length
