"""Misspelt words: the command that was meant, if one alone can be; else the near names."""

import re
import shlex

import pytest

from tests.cli.conftest import BERT, RESNET

# A command line, and the corrected one.
MEANT = [
    # Commands and options.
    (f"recomend {BERT}", f"recommend {BERT}"),
    (f"predcit {BERT}:2 --sharing mps", f"predict {BERT}:2 --sharing mps"),
    (f"predict {BERT} --sharng mps", f"predict {BERT} --sharing mps"),
    (f"recommend --objetive energy {BERT}", f"recommend --objective energy {BERT}"),
    ("init job", "init jobs"),
    # Choices.
    (f"recommend {BERT} --objective time", f"recommend {BERT} --objective makespan"),
    (f"recommend {BERT} --objective=joules", f"recommend {BERT} --objective=energy"),
    (f"recommend {BERT} --objective mean", f"recommend {BERT} --objective mean-completion"),
    (f"simulate {BERT}:3 --policy fifo", f"simulate {BERT}:3 --policy first-come"),
    (f"export {BERT} --format bash", f"export {BERT} --format commands"),
    (f"export {BERT} --no-root --format k8s", f"export {BERT} --no-root --format kubernetes"),
    (f"export {BERT} --no-root --format=DRA", f"export {BERT} --no-root --format=kubernetes-dra"),
    # Jobs and GPUs.
    ("recommend bert-base-finetun-bs16:2", f"recommend {BERT}:2"),
    ("recommend bert-base-finetun-bs16@3", f"recommend {BERT}@3"),
    (f"predict {BERT} --gpu rtx-309", f"predict {BERT} --gpu rtx-3090-24gb"),
    # Sharings.
    (f"predict {BERT}:2 --sharing mpss=43,57", f"predict {BERT}:2 --sharing mps=43,57"),
    (f"predict --sharing mps = 43, 57 {BERT}:2", f"predict --sharing mps=43,57 {BERT}:2"),
    (f"predict --sharing mps 43 57 {BERT}:2", f"predict --sharing mps=43,57 {BERT}:2"),
    (f"predict {BERT}:2 --sharing=mps=43, 57", f"predict {BERT}:2 --sharing=mps=43,57"),
    (f"compare naive mps = 43 , 57 {BERT}:2", f"compare naive mps=43,57 {BERT}:2"),
    (f"compare naive mpss {BERT}:2", f"compare naive mps {BERT}:2"),
    (f"export --sharing mig = 3g.71gb, 4g.71gb {BERT}:2",
     f"export --sharing mig=3g.71gb,4g.71gb {BERT}:2"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "meant"), MEANT, ids=[each[0] for each in MEANT])
def test_a_slip_is_answered_by_the_command_that_was_meant_which_runs(advisor, words, meant):
    said = advisor(*words.split())
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert f"`advisor {meant}`" in said.err
    again = advisor(*meant.split()[:1], "--help") if meant.startswith("init") else advisor(
        *shlex.split(meant)
    )  # fmt: skip
    assert again.code == 0


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("recommend resnet", RESNET), ("recommend --shring mps", "--running"),
        ("recommend x --objective beauty", "mean-completion"),
        (f"recommend --sharing mps {BERT}", "advisor predict"),
        (f"predict {BERT} --objective energy", "advisor recommend"),
        (f"predict {BERT} --gpu h2000", "h200-141gb"),
        (f"predict {BERT} --sharing exclusive", "serial"),
    ],
)  # fmt: skip
def test_if_several_may_be_meant_no_command_is_proposed(advisor, words, named):
    said = advisor(*words.split())
    assert (said.code, named in said.err) == (2, True)
    assert re.search(r"`advisor [a-z]+ [^-]", said.err) is None


SMI = "timestamp, utilization.gpu [%], memory.used [MiB]\n2026/11/20, 93 %, 5300 MiB\n"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("recommend", "smi.csv"), SMI),
        (("recommend", "--jobs", "smi.csv"), SMI),
        (("recommend", "smi.csv"), "| NVIDIA-SMI 580.159.04     Driver Version: 580.159.04 |\n"),
        (("predict", "smi.csv"), "# gpu   sm   mem   enc\n# Idx  %  %  %\n  0  93  41  0\n"),
    ],
)
def test_what_nvidia_smi_wrote_is_no_job_but_numbers_for_a_profile(
    advisor, tmp_path, monkeypatch, words, text
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smi.csv").write_text(text)
    said = advisor(*words)
    assert (said.code, "advisor profile --from-numbers" in said.err) == (2, True)


@pytest.mark.parametrize("gpu", ["3090", "a100-40", "rtx-3090", "RTX 3090", "A100 40GB"])
def test_a_gpu_is_found_by_a_part_of_its_name(advisor, gpu):
    assert advisor("predict", BERT, "--gpu", gpu).code == 0


def test_plans_may_stand_behind_the_jobs(advisor):
    words = ("naive", "mps", f"{BERT}:2")
    assert advisor("compare", *reversed(words[:2]), words[2]).out == advisor(
        "compare", words[2], "mps", "naive"
    ).out  # fmt: skip
