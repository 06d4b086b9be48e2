"""The answer for several GPUs: its numbers, how to start it, and what cannot be started."""

import csv
import json
import re

import pytest

from tests.cli.conftest import BERT, RESNET, SMALL

JOBS = (f"{RESNET}:2", f"{BERT}:3", f"{SMALL}:4")
FEW = (f"{RESNET}:2", BERT, SMALL)


def test_json_and_csv_have_the_best_plan_of_each_way_best_first(advisor, tmp_path):
    file = tmp_path / "plans.csv"
    document = advisor.document("recommend", *JOBS, "--gpus", 2, "--csv", file)
    plans, rows = document["plans"], list(csv.DictReader(file.read_text().splitlines()))
    assert [plan["rank"] for plan in plans] == list(range(1, len(plans) + 1))
    assert len({plan["way"] for plan in plans}) == len(plans) > 2
    assert [plan["makespan_s"] for plan in plans] == sorted(plan["makespan_s"] for plan in plans)
    serial_s = document["serial"]["makespan_s"]
    text = advisor("recommend", *JOBS, "--gpus", 2).out
    for plan in plans:
        assert f"{plan['memory_total_mib'] / 1024:.3g} GiB" in text
    for plan, row in zip(plans, rows, strict=True):
        assert f"{plan['gain']['p50']:.2f}x" in text
        assert plan["gain"]["p50"] == pytest.approx(serial_s / plan["makespan_s"])
        assert float(row["total_time_p95_s"]) == pytest.approx(plan["makespan_interval_s"]["p95"])
        assert float(row["gain_p05"]) == pytest.approx(plan["gain"]["p05"])
        assert (row["sharing"], int(row["rank"])) == (plan["sharing"], plan["rank"])
        assert len(plan["jobs"]) == 9
        assert max(job["end_s"]["p50"] for job in plan["jobs"]) == pytest.approx(plan["makespan_s"])


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--objective", "energy", "--no-root"),
        pytest.param(("--pessimistic",), marks=pytest.mark.exhaustive),
    ],
)
def test_export_writes_the_script_of_the_plan_that_the_same_words_recommend(advisor, options):
    words = (*FEW, "--gpus", "2", *options)
    assert "`export` instead of `recommend`" in advisor("recommend", *words).out
    printed = advisor("export", *words)
    assert printed.code == 0
    whole = advisor.document("recommend", *words)["plans"][0]["commands"]
    names = re.compile(r"\./(\S+)\.sh")
    assert names.findall(printed.out) == names.findall("\n".join(whole))
    assert len(names.findall(printed.out)) == 1 + 4


def test_a_job_on_two_gpus_is_on_both_and_no_shell_script_starts_it(advisor, tmp_path):
    (jobs := tmp_path / "jobs.toml").write_text(
        f'[[job]]\nprofile = "{RESNET}"\ngpus = 2\n[[job]]\nprofile = "{BERT}"\n'
    )
    (plan, *_) = advisor.document("recommend", "--jobs", jobs, "--gpus", "2")["plans"]
    assert [len(job["on_gpus"]) for job in plan["jobs"]] == [2, 1]
    assert plan["commands"] == []
    answer = advisor("recommend", "--jobs", jobs, "--gpus", "2")
    assert (answer.code, "--format slurm" in " ".join(answer.out.split())) == (0, True)
    refused = advisor("export", "--jobs", jobs, "--gpus", "2")
    assert (refused.code, RESNET in refused.err) == (2, True)
    slurm = advisor("export", "--jobs", jobs, "--gpus", "2", "--format", "slurm").out
    assert len(re.findall(r"^submit .*--gres=gpu:2 .*--nodes=1 ", slurm, re.M)) == 1
    runs = advisor.document("simulate", "--jobs", jobs, "--gpus", "2")["jobs"]
    assert [run["gpus"] for run in runs] == [[0, 1], [0]]


@pytest.mark.exhaustive
def test_more_effort_is_offered_only_where_the_search_was_cut_short(advisor):
    hasty = (*JOBS, "--gpus", 2, "--effort", 0.01)
    for words in ((*JOBS[:2], "--gpus", 2), (RESNET, BERT, "--gpus", "2"), hasty):
        longer = advisor.document("recommend", *words)["longer_effort"]
        text = advisor("recommend", *words).out
        assert ("--effort" in text) == (longer is not None)
    assert longer == 0.04
    assert "--effort 0.04" in text


def test_trials_are_spread_over_models_and_a_program_reads_how_many_run_where(advisor):
    words = ("trials", SMALL, "--count", 12, "--gpus", "a100-40gb:2x2,h100-sxm-80gb:2")
    document = advisor.document(*words)
    hosts = document["hosts"]
    assert [(each["gpu"], each["hosts"], each["host_gpus"]) for each in hosts] == [
        ("a100-40gb", 2, 2),
        ("h100-sxm-80gb", 1, 2),
    ]
    assert sum(each["count"] for each in hosts) == document["count"] == 12
    assert document["at_once"] == sum(
        each["at_once"] * each["hosts"] * each["host_gpus"] for each in hosts
    )
    text = advisor(*words, "--details").out
    for each in hosts:
        limit = each["environment"].get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
        assert each["sharing"].startswith(f"mps={limit}," if limit else each["sharing"])
        assert f"One {each['gpu']}:" in text


def test_only_writes_the_part_of_a_plan_on_one_model_and_the_parts_are_the_plan(advisor, tmp_path):
    models = ("a100-40gb", "h100-sxm-80gb")
    words = ("export", *FEW, "--gpus", "a100-40gb:1,h100-sxm-80gb:1", "--format", "json")

    def written(*only):
        file = tmp_path / "plan.json"
        answer = advisor(*words, "--out", file, *only)
        assert answer.code == 0, answer.err
        plans = json.loads(file.read_text())["plans"]
        return sorted(job["number"] for plan in plans for job in plan["jobs"])

    parts = [written("--only", model) for model in models]
    assert all(parts)
    assert sorted([*parts[0], *parts[1]]) == written() == list(range(1, 5))
    refused = advisor(*words, "--only", "rtx-3090")
    assert (refused.code, "a100-40gb, h100-sxm-80gb" in refused.err) == (2, True)
    assert advisor("export", *FEW, "--only", "a100-40gb").code == 2
