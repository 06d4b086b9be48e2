import json
import sys

import pytest


def test_memory_of_a_workload_that_was_never_run_is_estimated(advisor):
    answer = json.loads(advisor("estimate-memory", "mlp-toy-bs64", "--json").out)
    memory = answer["memory_mib"]
    assert memory["p05"] < memory["p50"] < memory["p95"]
    assert sum(answer["parts_mib"].values()) == pytest.approx(memory["p50"])


def test_the_estimate_says_that_nothing_was_run(advisor):
    assert "never run" in advisor("estimate-memory", "mlp-toy-bs64").out


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["mlp-tou-bs64"],
        ["mlp-toy-bs64", "--batch", "3"],
        ["--timm", "resnet18"],
        ["mlp-toy-bs64", "--gpu", "h300"],
    ],
)
def test_an_estimate_of_nothing_known_is_wrong_use(advisor, words):
    assert advisor("estimate-memory", *words).code == 2


def test_without_torch_it_says_what_to_install(advisor, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    ended = advisor("estimate-memory", "mlp-toy-bs64")
    assert ended.code == 1
    assert "pip install torch" in ended.err
