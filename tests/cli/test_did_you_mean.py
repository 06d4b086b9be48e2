"""Misspelt words are answered by the names that exist."""

import pytest

from tests.cli.conftest import BERT, RESNET

# A command line, and a name that was probably meant.
MEANT = [
    (f"recomend {BERT}", "recomend"),
    (f"predict {BERT} --sharng mps", "--sharing"),
    ("init job", "jobs"),
    (f"recommend {BERT} --objective mean", "mean-completion"),
    (f"export {BERT} --format kubernets", "kubernetes"),
    (f"recommend {BERT} --hurt 0.1", "--hurt"),
    ("recommend bert-base-finetun-bs16:2", BERT),
    ("recommend bert-base-finetun-bs16@3", BERT),
    ("recommend resnet", RESNET),
    (f"predict {BERT} --gpu rtx-309", "rtx-3090-24gb"),
    (f"predict {BERT} --gpu h2000", "h200-141gb"),
    (f"predict {BERT} --sharing exclusive", "serial"),
    (f"predict {BERT}:2 --sharing mpss=43,57", "mps"),
    ("layouts --slices 1g.18g", "1g.18gb"),
]


@pytest.mark.parametrize(("words", "meant"), MEANT, ids=[each[0] for each in MEANT])
def test_a_slip_is_answered_in_a_line_by_names_that_exist(advisor, words, meant):
    said = advisor(*words.split())
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert meant in said.err


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
    assert (
        advisor("compare", *reversed(words[:2]), words[2]).out
        == advisor("compare", words[2], "mps", "naive").out
    )
