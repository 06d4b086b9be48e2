"""Wrong use: the exit code, the name of the thing, and where there is one, the remedy."""

import json
from dataclasses import replace

import pytest

from advisor.workload.minimal_profile import minimal_text
from advisor.workload.writing import profile_text
from tests import synthetic
from tests.cli.conftest import BERT, RESNET, SMALL
from tests.cli.test_answers import BARE
from tests.hardware.conftest import install  # noqa: F401 - a fixture
from tests.hardware.nvml import MIB, FakeGpu, FakeLibrary

TYPO = "bert-base-finetune-bs61"
WRONG = [
    # Words that are no command, option or number.
    ("recomend", 2, "recommend"),
    ("fly", 2, "fly"),
    ("recommend --fast", 2, "--fast"),
    ("recommend train.py --lr 0.1", 2, "--lr"),
    ("validate --top 0", 2, "--top"),
    ("validate --top few", 2, "--top"),
    ("recommend --top 3", 2, "--top"),
    ("recommend --objective beauty", 2, "beauty"),
    ("compare", 2, "PLAN"),
    ("simulate --memory-margin 10GiB", 2, "--memory-margin"),
    ("simulate --memory-margin=-0.1", 2, "--memory-margin"),
    ("init banana", 2, "campaign"),
    # Jobs.
    (f"recommend {TYPO}", 2, BERT),
    (f"recommend {TYPO} --gpu a100-80gb", 2, BERT),
    ("recommend my-job", 2, "advisor workloads"),
    ("batch nobody", 2, "nobody"),
    ("recommend runs/nosuch.py", 2, "advisor profile -- python runs/nosuch.py"),
    (f"recommend {BERT}:0", 2, "copies"),
    (f"recommend {BERT}:-2", 2, "copies"),
    (f"recommend {BERT}:1000000", 2, "48"),
    (f"recommend {BERT}:x", 2, "COPIES"),
    (f"recommend {BERT}:1001 --gpus 2", 2, "1,000"),
    ("recommend .", 2, "folder"),
    ("recommend jobs.toml", 2, "--jobs jobs.toml"),
    ("recommend ./none.json", 2, "none.json"),
    ("recommend --jobs none.toml", 2, "none.toml"),
    (f"compare naive {BERT}", 2, "naive mps"),
    ("recommend gpt2-medium-pretrain-bs16", 3, "MiB"),
    (f"trials {RESNET}:2", 2, RESNET),
    ("simulate gpt2-medium-pretrain-bs16", 3, "MiB"),
    (f"trials {RESNET}@2", 2, RESNET),
    # GPUs and folders.
    (f"recommend {BERT} --gpu h2000", 2, "h200-141gb"),
    ("recommend --gpu a100", 2, "a100-80gb"),
    ("recommend --profiles nowhere", 2, "nowhere"),
    ("recommend --models nowhere", 2, "nowhere"),
    ("fit --gpu a30-24gb", 2, "advisor validate"),
    ("evaluate --gpu a30-24gb", 2, "a30-24gb"),
    # Ways to share.
    (f"predict {BERT} --sharing mpss", 2, "mpss"),
    (f"predict {BERT} --sharing mps=200", 2, "100"),
    (f"predict {BERT} --sharing mps=50,50", 2, "2 limits for 1 job"),
    (f"predict {BERT} --sharing mig=9g.71gb", 2, "4g.71gb"),
    (f"predict {BERT}:2 --sharing mig=4g.71gb,4g.71gb", 3, "at most 1 of 4g.71gb"),
    (f"predict {BERT} --sharing mig=4g.71gb[1]+3g.71gb[2]", 2, "job 1, 2"),
    (f"predict {BERT} --sharing naive[1];mps[1]", 2, "job 1"),
    (f"predict {BERT} --sharing mig=4g.71gb@1[1]", 2, "starts at 0"),
    (f"predict {BERT} --sharing 7g.141gb/ci=5c[1]", 2, "5c"),
    (f"predict {BERT}:2 --sharing 7g.141gb/ci=4c[1]+4c[2]", 3, "cannot hold"),
    (f"simulate {BERT} {RESNET} --sharing mps[1];naive[2] --gpus 2", 2, "one GPU"),
    (f"predict {BERT}:3 --sharing mps/1", 2, "serial"),
    (f"predict {BERT}:3 --sharing serial/2", 2, "naive/2"),
    (f"predict {BERT}:3 --sharing mps=50,50,50/2", 2, "mps/2"),
    (f"predict {BERT}:3 --sharing mps/x", 2, "mps/2"),
    (f"predict {BERT}:3 --sharing mps/3[1,2]", 2, "Write mps"),
    (f"predict {BERT}:4 --sharing mps/2[1,2,3]", 2, "job 1, 2, 3"),
    (f"simulate {BERT}:3 --sharing mps/2[3,1,2] --gpus 2", 2, "one GPU"),
    (f"simulate {BERT}:3 --sharing mps/2[3,1,2] --policy first-come", 2, "--policy"),
    (f"simulate {BERT}:3 --sharing mps/2 --at-once 1", 2, "--at-once"),
    (f"export {BERT}:3 --sharing mps/2 --format mps", 2, "order"),
    (f"export {BERT}:3 --sharing naive/2 --format radt", 2, "radT"),
    (f"admit {BERT} --running {RESNET}:3 --sharing mps/2", 2, "naive"),
    ("layouts --gpu l4-24gb", 3, "MIG"),
    ("layouts --with 9g.71gb", 2, "1g.18gb"),
    ("layouts --with 3g.71gb@2", 2, "0, 4"),
    ("layouts --with 4g.71gb,4g.71gb", 3, "at most 1"),
    ("layouts --driver 418", 2, "450"),
    # Power caps, plans and prices.
    (f"predict {BERT} --power-cap 800", 2, "700 W"),
    (f"export {BERT} --power-cap low", 2, "low"),
    (f"export {BERT} --rank 99", 2, "99"),
    (f"export {BERT} --rank 2 --sharing naive", 2, "--rank"),
    (f"run {BERT}.json", 2, BERT),
    (f"export {BERT} --format xml", 2, "xml"),
    ("simulate --policy luck", 2, "luck"),
    (f"export {BERT}:2 --sharing naive --format mps", 2, "MPS"),
    (f"export {BERT}:2 --sharing mps=50,50 --format radt", 2, "radT"),
    (f"export {BERT} --gres-name gpu:a100", 2, "--format slurm"),
    (f"export {BERT} --format slurm --gres-name a100;ls", 2, "without a count"),
    (f"export {BERT} --format slurm --sharing mig=7g.141gb --gres-name gpu:a100", 2, "Leave"),
    (
        f"export {BERT}:4 --gpus h200:1,h100-sxm-80gb:1 --format slurm --gres-name gpu:tesla",
        2,
        "h200-141gb=gpu:h200,h100-sxm-80gb=gpu:h100",
    ),
    (f"export {BERT}:2 --gpus 2 --format mps", 2, "commands, mig-parted"),
    (f"export {BERT}:3 --gpus 2x1", 2, "2 hosts"),
    (f"export {BERT}:3 --gpus h200-141gb:1,a100-40gb:1", 2, "several models"),
    (f"export {BERT}:3 --gpus 2 --rank 9", 2, "plan 9"),
    ("export dlrm-29gb-bs128:2 --sharing naive", 3, "memory"),
    (f"simulate {BERT} --price -1", 2, "price"),
    (f"simulate {BERT} --at-once 0", 2, "--at-once"),
    (f"trials {RESNET} --steps 0", 2, "step"),
    (f"trials {RESNET} --memory-margin 2", 2, "margin"),
    ("batch dlrm-29gb --batches many", 2, "--batches"),
    ("profiles h200", 2, "h200"),
    (f"trials {RESNET} h200", 2, "h200"),
    (f"predict {RESNET}:2 --sharing mig=3g.40gb", 2, "3g.71gb"),
    ("gpus h200", 2, "h200"),
    # What is asked together and does not go together.
    (f"recommend {BERT} --jobs j.toml", 2, "--jobs"),
    (f"recommend {BERT} --max-slowdown 0.1", 2, "--protect"),
    (f"admit {BERT} --now --sharing mps", 2, "--now"),
    (f"admit {BERT} --running {RESNET} --max-slowdown 20", 2, "slowdown"),
    (f"admit {BERT} --running {RESNET} --sharing serial", 2, "naive"),
    (f"recommend {BERT} --running {RESNET}", 2, "--running"),
    (f"admit {BERT}", 2, "--running"),
    (f"admit {BERT} --running {RESNET} --device 3", 2, "--now"),
    (f"copies {BERT}:2", 2, BERT),
    (f"copies {BERT} {RESNET}", 2, RESNET),
    (f"recommend {BERT} --gpus 2 --protect {BERT}", 2, "protect"),
    (f"recommend {BERT} --effort 3", 2, "several GPUs"),
    (f"recommend {BERT} --host-memory 9GiB", 2, "several GPUs"),
    (f"recommend {BERT} --gpus 2 --host-memory much", 2, "GiB"),
    (f"recommend {BERT} --gpus 2x", 2, "2x4"),
    (f"recommend {BERT} --gpus 900", 2, "128"),
    (f"recommend {BERT} --gpus a30-24gb:1,a30-24gb:2", 2, "once"),
    (f"recommend {BERT} --gpus a30-24gb:2 --gpu h200-141gb", 2, "--gpu"),
    (f"admit {BERT} --running {RESNET} --power-cap auto", 2, "watts"),
    (f"validate {BERT} --runs runs.jsonl", 2, "--runs"),
    (f"simulate {BERT} --kernels", 2, "--timeline"),
    (f"simulate {BERT} --round 60", 2, "--round"),
    (f"simulate {BERT} --policy max-min --round 0", 2, "round"),
    (f"simulate {BERT} --policy max-min --sharing mig", 2, "best-fit"),
    (f"predict {BERT} --sharing mig", 2, "7g.141gb"),
    (f"simulate {BERT} --trace-in a.csv", 2, "--trace-in"),
    ("run", 2, "PLAN"),
    (f"compare naive mps {BERT} --power-cap 9000", 2, "700 W"),
    # Nothing may join, and nothing leaves so much memory.
    (f"admit {RESNET} --running {RESNET} --max-slowdown 0", 3, RESNET),
    (f"simulate {BERT} --memory-margin 0.995", 3, "memory"),
    (f"admit {BERT} --now --device 99", 4, "GPU"),
]


@pytest.mark.parametrize(("words", "code", "named"), WRONG, ids=[each[0] for each in WRONG])
def test_wrong_words_end_with_their_code_and_name_what_is_wrong(advisor, words, code, named):
    said = advisor(*words.split(" "))
    assert (said.code, said.out) == (code, "")
    assert named in said.err
    assert "Traceback" not in said.err


def changed(**changes):
    return json.dumps(json.loads(profile_text(synthetic.profile())) | changes)


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("p.json", "", "p.json"),
        ("p.json", "[]", "p.json"),
        ("p.json", '{"a": 1}', "workload"),
        ("p.json", changed()[:-30], "p.json"),
        ("p.json", changed(step_ms=3), "step_ms"),
        ("p.json", changed(gpu_s=-1), "gpu_s"),
        ("p.json", changed(gpu_s=0.125).replace("0.125", "NaN"), "gpu_s"),
        ("p.json", changed(gpu="cpu"), "CPU"),
        ("p.json", minimal_text(replace(BARE, power_w=1900)), "700 W"),
        ("p.json", minimal_text(replace(BARE, gpu="A100")), "a100-40gb"),
        ("j.toml", "", "advisor init jobs"),
        ("j.toml", f'[[jobs]]\nprofile = "{BERT}"', "jobs"),
        ("j.toml", '{"job": []}', "TOML"),
        ("j.toml", '[[job]]\nprofil = "x"', "profile"),
        ("t.csv", f"arrival_s,job\n0,{BERT}\nnan,{BERT}\n", "t.csv:3"),
        ("r.jsonl", "", "r.jsonl"),
        ("sharing.json", "{}", "sharing.json"),
    ],
)
def test_a_file_that_cannot_be_true_is_named_with_its_field(advisor, tmp_path, name, text, named):
    (path := tmp_path / name).write_text(text)
    words = {
        "p.json": ("recommend", path),
        "j.toml": ("recommend", "--jobs", path),
        "t.csv": ("simulate", "--trace-in", path),
        "r.jsonl": ("validate", "--runs", path),
        "sharing.json": ("recommend", BERT, "--models", tmp_path),
    }[name]
    said = advisor(*words, *(("--gpu", "h200-141gb") if "A100" not in text else ()))
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: ")
    assert named in said.err


def test_debug_shows_where_an_error_came_from(advisor):
    for words in (["--debug", "recommend", "none"], ["recommend", "none", "--debug"]):
        said = advisor(*words)
        assert said.code == 2
        assert "Traceback" in said.err
        assert "none" in said.err


@pytest.fixture
def on_gpu(install):  # noqa: F811
    """Put processes on an H200 in this machine."""
    return lambda **how: install(FakeLibrary(FakeGpu(**how)))


@pytest.mark.parametrize(
    ("there", "named"),
    [
        ({"processes": {11: 90_100 * MIB, 12: None}}, "--running JOB,JOB"),
        ({"product": "NVIDIA A100-SXM4-40GB"}, "--gpu a100-40gb"),
        ({"mig": (1, 1)}, "--sharing mig="),
    ],
)
def test_now_refuses_what_the_driver_cannot_tell(advisor, on_gpu, there, named):
    on_gpu(**there)
    said = advisor("admit", SMALL, "--now")
    assert said.code == 2
    assert named in said.err


def test_now_reads_how_the_running_jobs_share_and_ranks_plans_on_a_free_gpu(advisor, on_gpu):
    on_gpu(processes={11: 4_000 * MIB})
    words = ("admit", SMALL, "--now", "--running", RESNET, "--max-slowdown", 3, "--json")
    running = json.loads(advisor(*words).out)["running"]
    assert (running["sharing"], running["free_mib"]) == ("naive", 143771 - 612)
    on_gpu()
    assert json.loads(advisor("admit", SMALL, "--now", "--json").out)["plans"]
