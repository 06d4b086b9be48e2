"""A step runs as torch does, compiled, or captured; fp16 scales its gradients."""

import os
from dataclasses import replace

import pytest
import torch
from torch import nn

from advisor.errors import InvalidInput
from advisor.workload.named_workloads import timm_workload, workload
from advisor.zoo import task
from advisor.zoo.examples import Continuations
from advisor.zoo.optimizers import optimizer_for, optimizer_of
from advisor.zoo.precision import autocast
from advisor.zoo.recipe import recipe_of
from advisor.zoo.task import build, check_device

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("name", "why"), [("mlp-toy-bs2-graph", "CUDA graphs"), ("mlp-toy-bs2-fp16", "fp16")]
)
def test_what_only_a_gpu_can_do_is_refused_on_a_cpu(name, why):
    with pytest.raises(InvalidInput, match=why):
        build(workload(name), "cpu")


def test_compiling_without_a_compiler_is_refused_before_anything_is_built(monkeypatch):
    monkeypatch.setattr(task, "which", lambda _: None)
    with pytest.raises(InvalidInput, match="C compiler"):
        build(workload("mlp-toy-bs2-compiled"), "cpu")


def test_compiling_for_a_gpu_without_triton_is_refused(monkeypatch):
    monkeypatch.setattr(task, "find_spec", lambda _: None)
    with pytest.raises(InvalidInput, match="triton"):
        check_device(workload("mlp-toy-bs2-compiled"), CUDA)


def test_a_gpu_may_do_everything(monkeypatch):
    monkeypatch.setattr(task, "find_spec", lambda _: "found")
    monkeypatch.setattr(task, "which", lambda _: "found")
    for option in ("fp16", "graph", "compiled", "fp16-graph", "amp-compiled-loader2"):
        check_device(workload(f"mlp-toy-bs2-{option}"), CUDA)


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


def test_a_users_own_cache_of_compiled_code_is_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(task, "_BACKEND", "eager")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    task.compiled(nn.Linear(1, 1))
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path)


@pytest.mark.parametrize("option", ["graph", "fp16"])
def test_sparse_gradients_are_neither_captured_nor_scaled(option):
    asked = replace(workload(f"dlrm-1gb-bs8-{option}"), table_mib=8)
    network = recipe_of(asked).network()
    with pytest.raises(InvalidInput, match=f"Leave out -{option}"):
        optimizer_for(asked, network)


def test_the_optimizer_of_a_captured_step_can_be_captured_and_that_of_fp16_undoes_the_scale():
    normed, plain = nn.LayerNorm(4), nn.Linear(4, 4)
    assert optimizer_of(normed, capturable=True).defaults["capturable"]
    for network in (normed, plain):
        optimizer = optimizer_of(network, fused=True)
        assert optimizer._step_supports_amp_scaling, "or a step would wait for the GPU"
        assert not hasattr(optimizer_of(network), "_step_supports_amp_scaling")


def test_fp16_runs_in_half_precision():
    with autocast("fp16", "cpu"):
        assert torch.get_autocast_dtype("cpu") == torch.float16


def test_a_timm_models_name_tells_its_precision_and_execution():
    asked = timm_workload(
        "resnet18", resolution=32, classes=2, batch=2, precision="fp16", execution="graph"
    )
    assert asked.name == "resnet18-32px-2c-bs2-fp16-graph"


def test_a_text_and_its_successors_are_one_token_apart():
    tokens, successors = Continuations(50, 6).batch(2)
    torch.testing.assert_close(tokens[:, 1:], successors[:, :-1])
