"""A workload becomes a step that trains."""

from dataclasses import replace
from multiprocessing import active_children

import pytest
import torch

from advisor.errors import InvalidInput, UnknownName
from advisor.workload.named_workloads import TIMM, timm_workload, workload
from advisor.zoo.examples import Clicks, Continuations, Images, Sentences, Vectors
from advisor.zoo.networks.language import TOY, LanguageModel, MaskedLanguageModel
from advisor.zoo.networks.recommender import Recommender, rows_of_tables
from advisor.zoo.optimizers import optimizer_of
from advisor.zoo.precision import autocast, set_switches
from advisor.zoo.recipe import recipe_of
from advisor.zoo.task import build


def losses(name: str, steps: int) -> list[float]:
    torch.manual_seed(0)
    step = build(workload(name), "cpu")
    seen = []
    for _ in range(steps):
        step()
        assert step.loss is not None
        seen.append(float(step.loss))
    step.close()
    return seen


@pytest.mark.parametrize("name", ["mlp-toy-bs32", "transformer-toy-bs4", "cnn-cifar10-bs32"])
def test_a_toy_learns_the_batches_it_sees_again_and_again(name):
    seen = losses(name, 60)
    assert sum(seen[-4:]) < sum(seen[:4])


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(each, marks=[pytest.mark.exhaustive] if "_large_" in each else [])
        for each in TIMM
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


def test_the_largest_recommender_is_as_large_as_its_name_says():
    assert rows_of_tables(29 * 1024) * 4 * 64 * 4 == 29 * 2**30


def test_dot_products_of_the_recommender_are_those_of_each_pair_of_features():
    with torch.device("meta"):
        network = Recommender(rows=10)
    assert network.top[0].in_features == 64 + 27 * 26 // 2


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("gpt2-small-finetune-bs1", 124_439_808),
        ("gpt2-medium-finetune-bs1", 354_823_168),
        ("gpt2-large-pretrain-bs1", 774_030_080),
    ],
)
def test_gpt2_has_as_many_parameters_as_published(name, parameters):
    with torch.device("meta"):
        network = recipe_of(workload(name)).network()
    assert sum(each.numel() for each in network.parameters()) == parameters


def test_bert_base_has_as_many_parameters_as_published():
    with torch.device("meta"):
        network = recipe_of(workload("bert-base-finetune-bs1")).network()
    # As published, with the pooler; our one segment is part of the positions, and a head is new.
    segments, head = 2 * 768, 768 * 2 + 2
    assert sum(p.numel() for p in network.parameters()) == 109_482_240 - segments + head


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


def test_a_language_model_cannot_see_the_token_it_predicts():
    network = recipe_of(workload("transformer-toy-bs1")).network().eval()
    tokens = torch.randint(1000, (1, 8))
    changed = tokens.clone()
    changed[0, -1] = (changed[0, -1] + 1) % 1000
    with torch.no_grad():
        first, second = network(tokens), network(changed)
    torch.testing.assert_close(first[0, :-1], second[0, :-1])
    assert not torch.allclose(first[0, -1], second[0, -1])


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [
        ("resnet26-cifar10-bs2", "SGD"),
        ("vit_small_patch16_224-cifar10-bs2", "AdamW"),
        ("convnext_tiny-cifar10-bs2", "AdamW"),
        ("gpt2-small-finetune-bs1", "AdamW"),
    ],
)
def test_transformers_get_adamw_and_convolutional_networks_sgd(name, optimizer):
    with torch.device("meta"):
        network = recipe_of(workload(name)).network()
    assert type(optimizer_of(network)).__name__ == optimizer


def test_a_sparse_table_gets_no_momentum_which_would_double_it():
    with torch.device("meta"):
        optimizer = optimizer_of(Recommender(rows=10))
    assert optimizer.defaults["momentum"] == 0


def switches():
    cudnn = torch.backends.cudnn
    return (torch.backends.cuda.matmul.fp32_precision, cudnn.conv.fp32_precision)


def test_tf32_turns_both_switches_on_and_the_next_default_workload_turns_them_back():
    own = switches()
    build(workload("mlp-toy-bs2-tf32"), "cpu").close()
    assert switches() == ("tf32", "tf32")
    build(workload("mlp-toy-bs2"), "cpu").close()
    assert switches() == own


def test_amp_runs_in_bf16_and_leaves_the_switches_alone():
    set_switches("amp")
    with autocast("amp", "cpu"):
        assert torch.is_autocast_enabled("cpu")
        assert torch.get_autocast_dtype("cpu") == torch.bfloat16
    with autocast("default", "cpu"):
        assert not torch.is_autocast_enabled("cpu")


def test_a_loader_feeds_the_step_from_processes_that_end_with_it():
    step = build(workload("cnn-cifar10-bs4-loader2"), "cpu")
    workers = active_children()
    step()
    step()
    assert len(workers) == 2
    step.close()
    assert not [worker for worker in workers if worker.is_alive()]


def test_a_model_that_cannot_be_built_leaves_no_loader_behind():
    with pytest.raises(UnknownName):
        build(timm_workload("resnet51", resolution=32, classes=2, batch=2, loader_workers=1), "cpu")
    assert not active_children()


@pytest.mark.parametrize(
    "examples",
    [
        Images(8, 3),
        Vectors(5, 3),
        Sentences(50, 6, 2),
        Continuations(50, 6),
        Clicks(dense=3, sparse=4, rows=9),
    ],
)
def test_an_example_from_a_loader_looks_like_a_row_of_a_resident_batch(examples):
    batch, one = examples.batch(2), examples.one()
    assert [t.shape[1:] for t in batch] == [t.shape for t in one]
    assert [t.dtype for t in batch] == [t.dtype for t in one]


def test_a_misspelt_timm_model_is_refused_with_near_names():
    wrong = timm_workload("resnet-50", resolution=32, classes=10, batch=2)
    with pytest.raises(UnknownName, match="resnet50"):
        build(wrong, "cpu")


def test_a_size_a_timm_model_cannot_take_is_refused_with_its_reason():
    wrong = timm_workload("xcit_nano_12_p8_224", resolution=4, classes=10, batch=2)
    with pytest.raises(InvalidInput, match="4 px"):
        build(wrong, "cpu")


def test_an_unknown_plain_model_is_refused():
    with pytest.raises(UnknownName, match="gpt2-small"):
        build(replace(workload("gpt2-small-finetune-bs1"), model="gpt2-smal"), "cpu")


@pytest.mark.parametrize(
    ("name", "field"),
    [("dlrm-1gb-bs32", "table_mib"), ("cnn-cifar10-bs2", "resolution"), ("mlp-toy-bs2", "classes")],
)
def test_a_workload_without_a_number_that_its_model_needs_is_refused(name, field):
    with pytest.raises(InvalidInput, match=field):
        build(replace(workload(name), **{field: None}), "cpu")


def test_a_text_longer_than_the_model_takes_is_refused():
    with pytest.raises(InvalidInput, match="at most 1024"):
        build(replace(workload("gpt2-small-pretrain-bs4"), sequence_length=2048), "cpu")
