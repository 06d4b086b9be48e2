"""The command line, run in this process, on made-up profiles and a model fitted to made-up runs."""

import json
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import pytest

from advisor.cli import main
from advisor.files.reading import MODEL_FILE
from advisor.files.writing import append_record, record_line
from advisor.hardware.gpus import gpu
from advisor.learn.surrogate_fit import with_surrogate
from advisor.prediction.model import model_text
from tests import synthetic
from tests.fitted import fit, folds_fitted_once
from tests.hardware.conftest import install

__all__ = ["folds_fitted_once", "install"]

GPU = "h200-141gb"
RESNET, BERT, SMALL = (
    "resnet50-imagenet64-bs128",
    "bert-base-finetune-bs16",
    "resnet26-cifar10-bs128",
)
PROFILES = {
    each.name: each
    for each in (
        synthetic.profile(RESNET, host_s=0.04, gpu_s=0.05),
        synthetic.profile(SMALL, host_s=0.007, gpu_s=0.002, blocks=60),
        synthetic.profile(BERT, host_s=0.03, gpu_s=0.02, blocks=300),
        synthetic.profile("dlrm-29gb-bs128", host_s=0.01, gpu_s=0.004, memory_mib=90_000),
        synthetic.profile("gpt2-medium-pretrain-bs16", memory_mib=190_000),
    )
}


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


def _runs():
    """Five of each pair in each mode, so that any family can be left out."""
    names = (RESNET, BERT, "dlrm-29gb-bs128")
    pairs = list(combinations(names, 2)) * 5
    for mode in ("naive", "mps", "mps=50,50"):
        for number, pair in enumerate(pairs):
            tenants = [PROFILES[name] for name in pair]
            yield synthetic.run(tenants, mode, 1.5 + number / 20, f"{mode}-{number}")


@pytest.fixture(scope="session")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("measured")
    (folder / "profiles" / GPU).mkdir(parents=True)
    for name, profile in PROFILES.items():
        (folder / "profiles" / GPU / f"{name}.json").write_text(record_line(profile))
    runs = tuple(_runs())
    for run in runs:
        append_record(folder / "profiles" / GPU / "runs" / "made-up.jsonl", run)
    (folder / "models").mkdir()
    (folder / "models" / MODEL_FILE).write_text(model_text(fit(PROFILES, runs, gpu(GPU))))
    return folder


@dataclass(frozen=True)
class CommandLine:
    capsys: pytest.CaptureFixture

    def __call__(self, *words):
        """Run a command; return its exit code and what it printed."""
        with pytest.raises(SystemExit) as end:
            main(list(map(str, words)))
        printed = self.capsys.readouterr()
        return Said(end.value.code or 0, printed.out, printed.err)

    def document(self, *words):
        """Return the JSON document of a command that ends well."""
        ended = self(*words, "--json")
        assert ended.code == 0, ended.err
        return json.loads(ended.out)


@pytest.fixture
def own(tmp_path):
    """The user's folder of data."""
    return tmp_path / "nobody" / "advisor"


@pytest.fixture
def advisor(measured, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ADVISOR_PROFILES", str(measured / "profiles"))
    monkeypatch.setenv("ADVISOR_MODELS", str(measured / "models"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "nobody"))
    monkeypatch.setenv("COLUMNS", "80")
    # On a machine with such a GPU, profiles that were made up are stale.
    monkeypatch.setattr("advisor.measure.device.present_machine", lambda _gpu: None)
    monkeypatch.setattr("advisor.hardware.live_gpu.first_gpu", lambda: None)
    monkeypatch.delenv("ADVISOR_GPU", raising=False)

    return CommandLine(capsys)


@pytest.fixture
def few_lessons(monkeypatch):
    """`advisor fit` fits its surrogate model to few mixes; how good they are others test."""
    brief = partial(with_surrogate, lessons=60)
    monkeypatch.setattr("advisor.learn.surrogate_fit.with_surrogate", brief)
