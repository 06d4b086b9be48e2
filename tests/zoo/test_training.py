"""A workload of the zoo becomes a step that trains."""

import os
from dataclasses import replace
from multiprocessing import active_children

import pytest
import torch

from advisor.errors import InvalidInput
from advisor.workload.catalogue import TIMM, workload
from advisor.zoo import language, task, vision
from advisor.zoo.language import TOY, LanguageModel, MaskedLanguageModel
from advisor.zoo.recipes import (
    Images,
    clicks,
    continuations,
    graphs,
    numbers,
    ratings,
    recipe_of,
    sentences,
    spans,
)
from advisor.zoo.tables import ARXIV, MOLECULES, GraphConvolution, GraphNetwork
from advisor.zoo.task import build, optimizer_for


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("mlp-toy-bs32", 0.05),
        ("cnn-cifar10-bs32", 0.05),
        ("mcdnn-cifar10-bs4", 0.05),
        ("transformer-toy-bs4", 1e-3),
        ("gru-speech-bs4", 0.05),
        ("gcn-molecules-bs8", 1e-3),
        ("mf-movielens-bs32", 0.1),
        ("unet-cifar10-bs1", 1e-3),
        pytest.param("lstm-wikitext-bs2", 1.0, marks=pytest.mark.exhaustive),
        pytest.param("t5-small-pretrain-bs1", 1e-3, marks=pytest.mark.exhaustive),
    ],
)
def test_each_model_learns_the_batches_it_sees_again_and_again(name, rate, monkeypatch):
    monkeypatch.setattr(vision, "_WIDTHS", (32, 32, 32, 32))  # of the U-Net
    full = workload(name)
    short, small = full.sequence_length and 8, full.resolution and 16
    torch.manual_seed(0)
    step = build(replace(full, sequence_length=short, resolution=small), "cpu")
    for group in step.optimizer.param_groups:
        group["lr"] = rate
    losses = []
    for _ in range(4):
        step()
        losses.append(float(step.loss))
    assert sum(losses[2:]) < sum(losses[:2])
    assert all(parameter.isfinite().all() for parameter in step.network.parameters())


# Of the same layers as smaller ones, or slow: these are built without memory elsewhere.
LARGER = {"resnet50", "resnet152", "vit_base_patch16_224", "mixer_b16_224", "nasnetalarge"}
LARGER |= {"xcit_small_12_p16_224", "res2net50_26w_4s", "tf_efficientnetv2_s", "cait_xxs24_224"}
LARGER |= {"swin_tiny_patch4_window7_224", "hrnet_w18_small_v2"}


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(each, marks=[pytest.mark.exhaustive] if slow else [])
        for each in TIMM
        for slow in ["_large_" in each or each in LARGER]
    ],
)
def test_every_image_model_of_the_zoo_trains_at_32_pixels(model):
    step = build(workload(f"{model}-cifar10-bs2"), "cpu")
    weight = next(iter(step.network.parameters()))
    before = weight.detach().clone()
    step()
    assert not torch.equal(before, weight)
    assert weight.grad is None, "gradients are freed, not zeroed"


def test_the_recommender_learns_and_its_tables_have_the_size_asked_for():
    step = build(replace(workload("dlrm-1gb-bs32"), table_mib=8), "cpu")
    tables = [table.weight for table in step.network.tables]
    before = [table.detach().clone() for table in tables]
    step()
    assert sum(table.nbytes for table in tables) == 8 * 2**20
    assert not any(torch.equal(*pair) for pair in zip(before, tables, strict=True))


@pytest.mark.parametrize("model", [LanguageModel, MaskedLanguageModel])
def test_a_kernel_for_each_operation_computes_what_one_kernel_for_all_does(model):
    torch.manual_seed(0)
    network = model(replace(TOY, fused=False)).eval()
    fused = model(TOY).eval()
    fused.load_state_dict(network.state_dict())
    tokens = torch.randint(1000, (2, 16))
    with torch.no_grad():
        torch.testing.assert_close(network(tokens), fused(tokens))


def test_a_resnet_fine_tuned_in_eval_mode_learns_but_keeps_its_statistics():
    step = build(replace(workload("resnet50-finetune-bs2"), resolution=32), "cpu")
    weights = dict(step.network.named_parameters())
    before = {name: each.detach().clone() for name, each in weights.items()}
    kept = {name: each.clone() for name, each in step.network.named_buffers()}
    step()
    assert any(not torch.equal(before[name], each) for name, each in weights.items())
    assert all(torch.equal(kept[name], each) for name, each in step.network.named_buffers())


def switches():
    cudnn = torch.backends.cudnn
    return (torch.backends.cuda.matmul.fp32_precision, cudnn.conv.fp32_precision)


def test_tf32_turns_both_switches_on_and_the_next_default_workload_turns_them_back():
    own = switches()
    build(workload("mlp-toy-bs2-tf32"), "cpu").close()
    assert switches() == ("tf32", "tf32")
    build(workload("mlp-toy-bs2"), "cpu").close()
    assert switches() == own


def test_a_loader_feeds_the_step_from_processes_that_end_with_it():
    step = build(workload("cnn-cifar10-bs4-loader2"), "cpu")
    workers = active_children()
    step()
    step()
    assert len(workers) == 2
    step.close()
    assert not [worker for worker in workers if worker.is_alive()]


def test_t5_cannot_see_the_token_it_predicts_but_all_of_the_source(monkeypatch):
    monkeypatch.setattr(language, "_LAYERS", 1)
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
    features, edges, _ = graphs(MOLECULES, 2).batch(3)
    changed = features.clone()
    changed[2] += 1
    with torch.no_grad():
        before, after = network(features, edges), network(changed, edges)
    torch.testing.assert_close(before[:2], after[:2])
    assert not torch.allclose(before[2], after[2])


def test_a_compiled_step_trains_the_same_weights_in_one_process(monkeypatch, tmp_path):
    monkeypatch.setattr(task, "_BACKEND", "eager")  # captures the network, compiles no code
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    losses = []
    for name in ("transformer-toy-bs2", "transformer-toy-bs2-compiled"):
        torch.manual_seed(0)
        step = build(workload(name), "cpu")
        step.network.eval()  # without dropout, whose numbers may be drawn in another order
        step(), step()
        losses.append(float(step.loss))
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert isinstance(step.network, torch._dynamo.OptimizedModule)
    assert os.environ.pop("TORCHINDUCTOR_CACHE_DIR") == str(tmp_path / "advisor" / "inductor")
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("gpt2-small-finetune-bs1", 124_439_808),
        ("gpt2-medium-finetune-bs1", 354_823_168),
        ("gpt2-large-pretrain-bs1", 774_030_080),
        # With the pooler; our one segment is part of the positions, and a head is new.
        ("bert-base-finetune-bs1", 109_482_240 - 2 * 768 + (768 * 2 + 2)),
        ("t5-small-pretrain-bs1", 60_506_624),  # Raffel et al. 2020
        ("unet-cifar10-bs1", 35_700_000),  # Ho et al. 2020, appendix B
    ],
)
def test_a_published_model_has_as_many_parameters_as_published(name, parameters):
    with torch.device("meta"):
        network = recipe_of(workload(name)).network()
    count = sum(each.numel() for each in network.parameters())
    assert count == pytest.approx(parameters, abs=50_000 if parameters == 35_700_000 else 0)


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [
        ("resnet26-cifar10-bs2", "SGD"),
        ("lstm-wikitext-bs1", "SGD"),
        ("vit_small_patch16_224-cifar10-bs2", "AdamW"),
        ("gpt2-small-finetune-bs1", "AdamW"),
        ("unet-cifar10-bs1", "AdamW"),
    ],
)
def test_a_model_gets_the_optimizer_it_is_usually_trained_with(name, optimizer):
    with torch.device("meta"):
        network = recipe_of(workload(name)).network()
    assert type(optimizer_for(workload(name), network)).__name__ == optimizer


@pytest.mark.parametrize(
    "examples",
    [
        Images(8, 3),
        numbers(5, classes=3),
        numbers(6, 5, classes=3),
        sentences(50, 6, 2),
        continuations(50, 6),
        spans(50, 6, 2),
        clicks(dense=3, sparse=4, rows=9),
        ratings(5, 6),
        graphs(MOLECULES, 2),
        graphs(replace(ARXIV, nodes=5, edges=7), 2),
    ],
)
def test_an_example_from_a_loader_looks_like_a_row_of_a_resident_batch(examples):
    batch, one = examples.batch(2), examples.one()
    assert [t.shape[1:] for t in batch] == [t.shape for t in one]
    assert [t.dtype for t in batch] == [t.dtype for t in one]


@pytest.mark.parametrize(
    ("name", "change", "remedy"),
    [
        ("dlrm-1gb-bs32", {"table_mib": None}, "table_mib"),
        ("cnn-cifar10-bs2", {"resolution": None}, "resolution"),
        ("mlp-toy-bs2", {"classes": None}, "classes"),
        ("lstm-wikitext-bs1", {"sequence_length": None}, "sequence_length"),
        ("gcn-molecules-bs1", {"classes": None}, "classes"),
        ("gpt2-small-pretrain-bs4", {"sequence_length": 2048}, "1024"),
        ("gpt2-small-finetune-bs1", {"model": "gpt2-smal"}, "gpt2-small"),
        ("resnet50-cifar10-bs2", {"model": "resnet-50"}, "resnet50"),
        ("unet-cifar10-bs1", {"resolution": 36}, "multiple of 8"),
        ("mlp-toy-bs2-graph", {}, "GPU"),
        ("mlp-toy-bs2-fp16", {}, "GPU"),
    ],
)
def test_a_workload_that_cannot_be_built_here_is_refused_and_leaves_no_loader(name, change, remedy):
    with pytest.raises(InvalidInput, match=remedy):
        build(replace(workload(name), **change, loader_workers=1), "cpu")
    assert not active_children()
