"""``--mlflow URI``: what a command answers is logged too."""

import json
import os
import sys

import pytest

from advisor.cli.tracking_options import profiled_and_logged
from advisor.errors import InvalidInput
from advisor.workload.writing import profile_text
from tests import synthetic
from tests.report import mlflow_stand_in

PROFILE = synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002)


@pytest.fixture
def store(monkeypatch):
    return mlflow_stand_in.install(monkeypatch)


def test_what_profiling_wrote_is_logged_and_nothing_else(store, tmp_path):
    folder = tmp_path / "h200-141gb"
    folder.mkdir()
    old = folder / "old.json"
    old.write_text("not a profile")
    os.utime(old, (1, 1))
    asked = []

    def main(words):
        asked.extend(words)
        (folder / "resnet26-cifar10-bs128.json").write_text(profile_text(PROFILE))
        return 7

    words = ["resnet26-cifar10-bs128", "--mlflow", "sqlite:///x.db", "--out", str(tmp_path)]
    assert profiled_and_logged([*words, "--", "python", "t.py", "--mlflow"], main) == 7
    assert asked == [words[0], *words[3:], "--", "python", "t.py", "--mlflow"]
    assert [each.name for each in store.runs] == ["resnet26-cifar10-bs128"]


def test_without_the_option_words_go_on_as_they_are():
    words = ["a", "--out", "x", "--", "python", "t.py", "--mlflow", "y"]
    assert profiled_and_logged(words, len) == len(words)
    with pytest.raises(InvalidInput, match="--mlflow needs a value"):
        profiled_and_logged(["a", "--mlflow"], len)


def test_recommend_logs_what_it_says(advisor, store):
    said = advisor("recommend", "bert-base-finetune-bs16", "--mlflow", "sqlite:///x.db", "--json")
    assert said.code == 0
    logged, shown = store.runs[0].files["plans.json"], json.loads(said.out)
    assert [each["why"] for each in logged["plans"]] == [each["why"] for each in shown["plans"]]


def test_where_mlflow_is_missing_nothing_is_answered_before_that_is_said(advisor, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    for command in ("recommend", "validate"):
        said = advisor(command, "bert-base-finetune-bs16", "--mlflow", "sqlite:///x.db")
        assert (said.code, said.out) == (1, "")
        assert "pip install 'advisor[mlflow]'" in said.err
