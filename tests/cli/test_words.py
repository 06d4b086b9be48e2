"""Words as people write them: accepted if their meaning is plain, else answered with what to do."""

import json
import re
from dataclasses import replace
from typing import get_args

import pytest

from advisor import Advisor
from advisor.cli import COMMANDS
from advisor.errors import UnknownName
from advisor.plan import Layouts, ObjectiveName
from advisor.plan.rules import Conditions
from advisor.prediction.prediction import LEVELS
from advisor.simulation import Policy
from advisor.simulation.simulate import Fleet
from advisor.workload.spec import Execution, Precision
from tests.cli.conftest import BERT, GPU, PROFILES, RESNET, SMALL
from tests.hardware.nvml import MIB, FakeGpu, FakeLibrary

PAIR = f"{BERT} {RESNET}"
SHARED = f"predict {PAIR} --gpu {GPU} --sharing"
# A command line, its exit code, and what the answer contains; "_" is a space within a word.
WORDS = [
    # Commands, options and values.
    ("recomend", 2, "recommend"),
    (f"predict {BERT} --sharng mps", 2, "--sharing"),
    ("recommend train.py --lr 0.1", 2, "--lr"),
    ("recommend --top 3", 2, "--top"),
    ("init job", 2, "jobs"),
    (f"recommend {BERT} --objective mean", 2, "mean-completion"),
    (f"recommend {PAIR} --objective MakeSpan", 0, RESNET),
    (f"export {BERT} --format k8s", 2, "kubernetes"),
    ("compare", 2, "PLAN"),
    ("doctor --fast", 2, "advisor doctor -h"),
    # Numbers with units.
    (f"trials {BERT} --memory-margin 10%", 0, BERT),
    (f"trials {BERT} --memory-margin 10GB", 2, "10%"),
    (f"simulate {BERT} --price 2_EUR", 0, "EUR"),
    (f"predict {BERT} --power-cap 80%", 2, "watts"),
    (f"predict {BERT} --power-cap 800", 2, "700 W"),
    (f"recommend {BERT} --power-cap 80%", 2, "watts"),
    (f"trials {RESNET} --start-up 10s", 0, "10 s"),
    (f"recommend {BERT} --gpus 2 --host-memory much", 2, "GiB"),
    (f"admit {SMALL} --running {RESNET},_{BERT} --max-slowdown 400%", 0, SMALL),
    (f"admit {BERT} --running {RESNET} --max-slowdown 20", 2, "slowdown"),
    # Jobs.
    ("recommend bert-base-finetun-bs16:2", 2, BERT),
    ("recommend resnet", 2, RESNET),
    ("recommend my-job", 2, "advisor workloads"),
    ("recommend runs/nosuch.py", 2, "advisor profile -- python runs/nosuch.py"),
    (f"recommend {BERT}:1000000", 2, "48"),
    (f"predict {BERT} x2", 2, "JOB:2"),
    (f"predict {BERT},_{RESNET},", 0, RESNET),
    (f"predict {BERT}@half", 2, f"{BERT}@3"),
    (f"copies {BERT} {RESNET}", 2, RESNET),
    ("recommend jobs.toml", 2, "--jobs jobs.toml"),
    ("recommend --jobs none.toml", 2, "none.toml"),
    (f"predict --jobs {BERT}", 2, "without --jobs"),
    (f"predict {PAIR} naive", 2, "--sharing naive"),
    (f"compare naive {BERT}", 2, "naive mps"),
    ("compare mps", 2, "naive mps"),
    (f"compare mpss mps {BERT}", 2, "naive mps"),
    (f"compare naive none.json {BERT}", 2, "none.json"),
    (f"recommend {PAIR} --protect all", 2, RESNET),
    # GPUs, folders, and MIG instances.
    (f"predict {BERT} --gpu h2000", 2, "h200-141gb"),
    (f"predict {BERT} --gpu 3090", 0, "rtx-3090-24gb"),
    (f"predict {BERT} --gpu h100", 2, "h100-sxm-80gb or h100-pcie-80gb"),
    (f"predict {BERT} --gpu 2xh200", 2, "--gpu h200-141gb --gpus 2"),
    (f"recommend {BERT} --profiles nowhere", 2, "nowhere"),
    ("fit --gpu a30-24gb", 2, "advisor validate"),
    ("layouts --with 4g.71gb,4g.71gb", 3, "at most 1"),
    ("layouts --slices 1g.18g", 2, "1g.18gb"),
    # Ways to share.
    (f"{SHARED}=mig", 2, "mig=3g.71gb,3g.71gb"),
    (f"{SHARED}=mig=3g,3g", 0, "mig=3g.71gb@0,3g.71gb@4"),
    (f"{SHARED}=exclusive", 2, "serial"),
    (f"predict {BERT}:2 --sharing mig=4g.71gb,4g.71gb", 3, "at most 1 of 4g.71gb"),
    (f"simulate {BERT}:3 --sharing mps/2[3,1,2] --policy first-come", 2, "--policy"),
    (f"simulate {BERT}:3 --sharing mps/2 --at-once 1", 2, "--at-once"),
    (f"admit {BERT} --running {RESNET}:3 --sharing mps/2", 2, "naive"),
    # Plans as files.
    (f"export {BERT} --rank 99", 2, "99"),
    (f"run {BERT}.json", 2, BERT),
    (f"export {BERT} --gres-name gpu:a100", 2, "--format slurm"),
    (f"export {BERT}:2 --gpus 2 --format mps", 2, "commands, mig-parted"),
    (f"export {BERT}:3 --gpus 2x1", 2, "2 hosts"),
    # What does not go together, or has no effect.
    (f"export {BERT} --rank 2 --sharing naive", 2, "--rank"),
    (f"recommend {BERT} --jobs j.toml", 2, "--jobs"),
    (f"recommend {BERT} --max-slowdown 0.1", 2, "--protect"),
    (f"recommend {BERT} --running {RESNET}", 2, "--running"),
    (f"recommend {BERT} --gpus 2 --protect {BERT}", 2, "protect"),
    (f"recommend {BERT} --effort 3", 2, "several GPUs"),
    (f"recommend {BERT} --host-memory 9GiB", 2, "several GPUs"),
    (f"recommend {BERT} --gpus a30-24gb:2 --gpu h200-141gb", 2, "--gpu"),
    (f"admit {BERT}", 2, "--running"),
    (f"admit {BERT} --running {RESNET} --running {SMALL} --max-slowdown 3", 0, "GPU 1"),
    (f"admit {BERT} --running {RESNET} --sharing mps --sharing naive", 2, "--running"),
    (f"admit {BERT} --now --running {RESNET} --running {RESNET}", 2, "--now"),
    (f"admit {BERT} --now --sharing mps", 2, "--now"),
    (f"admit {BERT} --running {RESNET} --device 3", 2, "--now"),
    (f"admit {BERT} --running {RESNET} --sharing serial", 2, "naive"),
    (f"validate {BERT} --runs runs.jsonl", 2, "--runs"),
    (f"simulate {BERT} --kernels", 2, "--timeline"),
    (f"simulate {BERT} --round 60", 2, "--round"),
    (f"simulate {BERT} --trace-in a.csv", 2, "--trace-in"),
    # Nothing fits, nothing may join, and no GPU is there.
    ("recommend gpt2-medium-pretrain-bs16", 3, "MiB"),
    ("export dlrm-29gb-bs128:2 --sharing naive", 3, "memory"),
    (f"admit {RESNET} --running {RESNET} --max-slowdown 0", 3, RESNET),
    (f"simulate {BERT} --memory-margin 0.995", 3, "memory"),
    (f"admit {BERT} --now --device 99", 4, "GPU"),
]


@pytest.mark.parametrize(("words", "code", "named"), WORDS, ids=[each[0] for each in WORDS])
def test_words_are_understood_or_answered_in_a_line_with_what_is_wrong(advisor, words, code, named):
    ended = advisor(*(word.replace("_", " ") for word in words.split(" ")))
    assert ended.code == code, ended.err
    assert named in (ended.err if code else ended.out)
    if code:
        assert (ended.out, ended.err.count("\n")) == ("", 1)
        assert ended.err.startswith("error: ")


@pytest.mark.parametrize("command", COMMANDS)
def test_an_error_about_an_option_with_choices_lists_all_of_them(advisor, command):
    offered = re.findall(r"^ +(--[a-z-]+) +<([a-z|-]+)>", advisor(command, "-h").out, re.M)
    for option, choices in offered:
        ended = advisor(command, option, "speed")
        assert ended.code == 2
        assert [each for each in choices.split("|") if f"'{each}'" not in ended.err] == []


WORKLOAD = PROFILES[RESNET].workload


@pytest.mark.parametrize(
    ("ask", "choices"),
    [
        (lambda: Advisor(GPU).recommend([RESNET], "speed"), get_args(ObjectiveName)),
        (
            lambda: Advisor(GPU).compare(["naive", "mps"], [RESNET], "speed"),
            get_args(ObjectiveName),
        ),
        (lambda: Advisor(GPU).recommend([RESNET], level="speed"), LEVELS),
        (lambda: Conditions(mig="speed"), get_args(Layouts)),
        (lambda: Fleet(GPU, 1, "speed"), get_args(Policy)),
        (lambda: replace(WORKLOAD, precision="speed"), get_args(Precision)),
        (lambda: replace(WORKLOAD, execution="speed"), get_args(Execution)),
    ],
)
def test_an_error_about_a_wrong_choice_in_python_lists_all_of_them(ask, choices):
    with pytest.raises(UnknownName) as wrong:
        ask()
    assert [each for each in choices if each not in str(wrong.value)] == []


@pytest.mark.parametrize(
    ("variable", "value", "named"),
    [
        ("ADVISOR_PROFILES", "/nope", "Unset ADVISOR_PROFILES"),
        ("ADVISOR_MODELS", "/nope", "Unset ADVISOR_MODELS"),
        ("ADVISOR_GPU", "h2000", "ADVISOR_GPU"),
        ("ADVISOR_CHECK_HOST", "maybe", "ADVISOR_CHECK_HOST"),
    ],
)
def test_a_wrong_variable_is_named(advisor, monkeypatch, variable, value, named):
    monkeypatch.setenv(variable, value)
    ended = advisor("recommend", BERT)
    assert (ended.code, named in ended.err) == (2, True)


def test_debug_shows_where_an_error_came_from(advisor):
    for words in (["--debug", "recommend", "none"], ["recommend", "none", "--debug"]):
        ended = advisor(*words)
        assert ended.code == 2
        assert "Traceback" in ended.err


def test_plans_may_stand_behind_the_jobs(advisor):
    jobs = f"{BERT}:2"
    behind, before = (
        advisor("compare", jobs, "mps", "naive"),
        advisor("compare", "mps", "naive", jobs),
    )
    assert behind.out == before.out


@pytest.mark.parametrize(
    ("there", "named"),
    [
        ({"processes": {11: 90_100 * MIB, 12: None}}, "--running JOB,JOB"),
        ({"product": "NVIDIA A100-SXM4-40GB"}, "--gpu a100-40gb"),
        ({"mig": (1, 1)}, "--sharing mig="),
    ],
)
def test_now_refuses_what_the_driver_cannot_tell(advisor, install, there, named):
    install(FakeLibrary(FakeGpu(**there)))
    ended = advisor("admit", SMALL, "--now")
    assert (ended.code, named in ended.err) == (2, True)


def test_now_reads_how_the_running_jobs_share_and_ranks_plans_on_a_free_gpu(advisor, install):
    install(FakeLibrary(FakeGpu(processes={11: 4_000 * MIB})))
    words = ("admit", SMALL, "--now", "--running", RESNET, "--max-slowdown", 3, "--json")
    running = json.loads(advisor(*words).out)["running"]
    assert (running[0]["sharing"], running[0]["free_mib"]) == ("naive", 143771 - 612)
    install(FakeLibrary(FakeGpu()))
    assert advisor.document("admit", SMALL, "--now")["plans"]
