"""Recurrent, diffusion, graph and encoder-decoder models train, and refuse what they cannot do."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from advisor.errors import InvalidInput
from advisor.workload.named_workloads import workload
from advisor.workload.spec import Workload
from advisor.zoo.examples import Frames, Graphs, Spans
from advisor.zoo.networks.graph_network import MOLECULES, GraphConvolution, GraphNetwork
from advisor.zoo.optimizers import optimizer_of
from advisor.zoo.recipe import recipe_of
from advisor.zoo.task import build

# Sizes with which a CPU trains on them quickly; what they are built of stays.
SMALLER = {
    "advisor.zoo.networks.recurrent.LSTM_VOCABULARY": 100,
    "advisor.zoo.networks.recurrent._LSTM_WIDTH": 64,
    "advisor.zoo.recipe.LSTM_VOCABULARY": 100,
    "advisor.zoo.networks.recurrent._GRU_WIDTH": 32,
    "advisor.zoo.networks.diffusion._WIDTHS": (32, 32, 64, 64),
    "advisor.zoo.networks.diffusion._TIME_WIDTH": 128,
    "advisor.zoo.networks.encoder_decoder.T5_VOCABULARY": 100,
    "advisor.zoo.recipe.T5_VOCABULARY": 100,
    "advisor.zoo.networks.encoder_decoder._LAYERS": 2,
}


@pytest.fixture
def _smaller(monkeypatch):
    for place, size in SMALLER.items():
        monkeypatch.setattr(place, size)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for tensors so small, more only wait for each other
    yield
    torch.set_num_threads(threads)


def small(name: str) -> Workload:
    """The workload `name`, its examples cut in the same way."""
    full = workload(name)
    return replace(
        full,
        sequence_length=full.sequence_length and 8,
        resolution=full.resolution and 16,
    )


@pytest.mark.usefixtures("_smaller")
@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("lstm-wikitext-bs2", 1.0),
        ("gru-speech-bs4", 0.05),
        ("gcn-molecules-bs8", 1e-3),
        ("t5-small-pretrain-bs1", 1e-3),
        ("unet-cifar10-bs4", 1e-3),
        ("mcdnn-cifar10-bs4", 0.05),
        ("mf-movielens-bs32", 0.1),
    ],
)
def test_each_new_model_learns_the_batches_it_sees_again_and_again(name, rate):
    torch.manual_seed(0)
    step = build(small(name), "cpu")
    for group in step.optimizer.param_groups:
        group["lr"] = rate
    seen = []
    for _ in range(10):
        step()
        assert step.loss is not None
        seen.append(float(step.loss))
    assert sum(seen[-2:]) < sum(seen[:2])
    assert all(parameter.isfinite().all() for parameter in step.network.parameters())


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("t5-small-pretrain-bs1", 60.506624),  # Raffel et al. 2020 as published
        ("unet-cifar10-bs1", 35.7),  # Ho et al. 2020, appendix B
    ],
)
def test_published_models_have_as_many_parameters_as_published(name, millions):
    with torch.device("meta"):
        network = recipe_of(workload(name)).network()
    count = sum(each.numel() for each in network.parameters()) / 1e6
    assert count == pytest.approx(millions, abs=0.05 if millions == 35.7 else 0)


def test_t5_cannot_see_the_token_it_predicts_but_all_of_the_source():
    torch.manual_seed(0)
    network = recipe_of(workload("t5-small-pretrain-bs1")).network().eval()
    source, target = torch.randint(1000, (1, 12)), torch.randint(1000, (1, 6))
    changed_source, changed_target = source.clone(), target.clone()
    changed_source[0, -1] += 1
    changed_target[0, -1] += 1
    with torch.no_grad():
        logits = network(source, target)
        by_target, by_source = network(source, changed_target), network(changed_source, target)
    torch.testing.assert_close(logits[0, :-1], by_target[0, :-1])
    assert not torch.allclose(logits[0, -1], by_target[0, -1])
    assert not torch.allclose(logits[0, 0], by_source[0, 0])


def test_a_graph_convolution_is_the_product_with_the_normalised_adjacency():
    torch.manual_seed(0)
    layer = GraphConvolution(3, 4)
    nodes, edges = torch.randn(5, 3), torch.tensor([[0, 1, 2, 2], [1, 2, 0, 0]])
    adjacency = torch.eye(5)
    for source, target in edges.T.tolist():
        adjacency[target, source] += 1
    scale = adjacency.sum(1).rsqrt()
    expected = scale[:, None] * adjacency * scale[None, :] @ layer.project(nodes)
    torch.testing.assert_close(layer(nodes, edges, scale[:, None]), expected)


def test_graphs_of_a_batch_do_not_touch_each_other():
    network = GraphNetwork(MOLECULES, classes=2).eval()
    features, edges, _ = Graphs(25, 54, 9, 2, per_node=False).batch(3)
    changed = features.clone()
    changed[2] += 1
    with torch.no_grad():
        before, after = network(features, edges), network(changed, edges)
    torch.testing.assert_close(before[:2], after[:2])
    assert not torch.allclose(before[2], after[2])


def test_the_one_large_graph_has_the_published_size_and_a_label_for_each_node():
    shapes = recipe_of(workload("gcn-arxiv-bs1")).examples
    assert (shapes.nodes, shapes.edges, shapes.features) == (169_343, 1_166_243, 128)
    network = GraphNetwork(replace(MOLECULES, per_node=True), classes=40)
    features, edges, labels = Graphs(25, 54, 9, 40, per_node=True).batch(1)
    assert network(features, edges).shape == (1, 25, 40)
    assert functional.one_hot(labels, 40).shape == (1, 25, 40)


@pytest.mark.parametrize(
    "examples",
    [Frames(6, 5, 3), Spans(50, 6, 2), Graphs(5, 7, 3, 2, True), Graphs(5, 7, 3, 2, False)],
)  # fmt: skip
def test_an_example_of_a_new_kind_looks_like_a_row_of_a_resident_batch(examples):
    batch, one = examples.batch(2), examples.one()
    assert [t.shape[1:] for t in batch] == [t.shape for t in one]
    assert [t.dtype for t in batch] == [t.dtype for t in one]


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [
        ("unet-cifar10-bs1", "AdamW"),
        ("gcn-molecules-bs1", "AdamW"),
        ("t5-small-pretrain-bs1", "AdamW"),
        ("lstm-wikitext-bs1", "SGD"),
        ("regnety_016-cifar10-bs1", "SGD"),
        ("swin_tiny_patch4_window7_224-cifar10-bs1", "AdamW"),
    ],
)
def test_each_new_model_gets_the_optimizer_it_is_usually_trained_with(name, optimizer):
    with torch.device("meta"):
        network = recipe_of(workload(name)).network()
    assert type(optimizer_of(network)).__name__ == optimizer


def test_an_image_that_cannot_be_halved_three_times_is_refused():
    with pytest.raises(InvalidInput, match="36 px is no multiple of 8"):
        build(replace(workload("unet-cifar10-bs1"), resolution=36), "cpu")


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("lstm-wikitext-bs1", "sequence_length"),
        ("gru-speech-bs1", "classes"),
        ("t5-small-pretrain-bs1", "sequence_length"),
        ("unet-cifar10-bs1", "resolution"),
        ("gcn-molecules-bs1", "classes"),
    ],
)
def test_a_new_model_without_a_number_that_it_needs_is_refused(name, field):
    with pytest.raises(InvalidInput, match=field):
        build(replace(workload(name), **{field: None}), "cpu")
