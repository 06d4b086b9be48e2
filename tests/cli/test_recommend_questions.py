"""Many jobs, several GPUs, copies of a job, and jobs beside others, on the command line."""

import json

import pytest

from advisor.hardware.mps import MpsProcess
from tests.hardware.conftest import install  # noqa: F401 - a fixture
from tests.hardware.nvml import MIB, FakeGpu, FakeLibrary

RESNET, BERT, SMALL = (
    "resnet50-imagenet64-bs128", "bert-base-finetune-bs16", "resnet26-cifar10-bs128",
)  # fmt: skip
MANY = (f"{RESNET}:3", f"{BERT}:3", f"{SMALL}:4")
QUICK = ("--time-limit", 1)


def test_jobs_on_two_gpus_are_each_on_one_and_the_gap_is_said(advisor):
    said = advisor("recommend", *MANY, "--gpus", 2, *QUICK)
    assert said.code == 0
    assert said.out.startswith("Run the 10 jobs on 2 GPUs in the groups below: all done in")
    assert "\n4-6   bert" in said.out, "set in as far as 7-10"
    assert "groups of jobs compared" in said.out


def test_jobs_on_two_gpus_as_json(advisor):
    document = json.loads(advisor("recommend", *MANY, "--gpus", 2, *QUICK, "--json").out)
    assert (document["schema"], document["gpus"]) == (1, 2)
    (plan,) = document["plans"]
    assert plan["speedup_vs_serial"] >= 1
    placed = [job for gpu in plan["gpus"] for job in gpu["job_numbers"]]
    assert all(gpu["commands"] for gpu in plan["gpus"])
    assert sorted(placed) == list(range(1, 11))
    assert len(plan["jobs"]) == 10
    assert 0 <= plan["search"]["gap"] <= 1
    assert plan["search"]["bound"] <= plan["search"]["cost"]


def test_more_than_eight_jobs_on_one_gpu_have_commands(advisor):
    lines = advisor("recommend", *MANY, *QUICK, "--commands", 1).out
    assert lines.count(f"./{BERT}.sh") == 3


def test_several_gpus_have_commands_each_in_a_shell_of_its_own(advisor):
    said = advisor("recommend", *MANY, "--gpus", 2, *QUICK, "--commands", 1).out.splitlines()
    lines = [line.removeprefix("  ") for line in said if line != "("]
    assert sum(f"./{BERT}.sh" in line for line in lines) == 3
    assert [line for line in lines if line.startswith("(")] == [
        line for line in lines if line.startswith(("(  # GPU 0: job ", "(  # GPU 1: job "))
    ]
    assert lines[-3:] == ["ended", 'exit "$failed"', ")"]


@pytest.mark.parametrize("objective", ["mean-completion", "throughput", "energy"])
def test_every_objective_can_be_asked_of_several_gpus(advisor, objective):
    words = ("recommend", RESNET, BERT, "--gpus", 2, *QUICK, "--objective", objective, "--json")
    assert json.loads(advisor(*words).out)["ranked_by"] == objective


def test_how_many_copies_fit_and_pay(advisor):
    said = advisor("recommend", f"{RESNET}:auto")
    assert said.code == 0
    assert said.out.startswith(f"Run 3 copies of {RESNET} at once on h200-141gb, under mps")
    assert "35 fit." in said.out
    document = json.loads(advisor("recommend", f"{RESNET}:auto", "--json").out)
    assert 1 <= document["pay"] <= document["fit"]
    assert [row["copies"] for row in document["rows"]] == list(range(1, len(document["rows"]) + 1))


def test_memory_limits_the_copies_and_it_is_said(advisor):
    document = json.loads(advisor("recommend", "dlrm-29gb-bs128:auto", "--json").out)
    assert document["fit"] == 1
    assert "MiB" in document["limited_by"]


def test_what_may_join_what_runs(advisor):
    words = ("recommend", f"{SMALL}:2", "--running", f"{BERT},{RESNET}", "--hurt", 3)
    said = advisor(*words)
    assert said.code == 0
    assert said.out.startswith(f"Add {SMALL}")
    document = json.loads(advisor(*words, "--running-sharing", "mps=50,60", "--json").out)
    assert [job["job"] for job in document["running"]["jobs"]] == [BERT, RESNET]
    for plan in document["plans"]:
        assert plan["sharing"].startswith("mps=50,60")
        assert plan["hurt"] <= document["most_hurt"] == 3


def test_where_nothing_may_join_the_reason_and_the_exit_code_say_it(advisor):
    said = advisor("recommend", RESNET, "--running", RESNET, "--hurt", 0)
    assert said.code == 3
    assert f"slows {RESNET} by" in said.err
    assert "--running-sharing how what runs shares the GPU if not by naive" in said.err


@pytest.mark.parametrize("columns", ["60", "80", "200"])
def test_names_of_what_may_join_are_never_broken(advisor, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    said = advisor("recommend", SMALL, "--running", f"{BERT},{RESNET}", "--hurt", 3).out
    table = said.partition("\n\n")[2]
    assert SMALL in table
    assert BERT in table or RESNET in table
    assert " of 140 GiB" in table


def test_deadlines_of_what_runs_and_of_what_joins_are_judged_together(advisor, tmp_path):
    file = tmp_path / "jobs.toml"
    file.write_text(f'[[job]]\nprofile = "{SMALL}"\ndeadline_s = 60\nepochs = 100\n')
    words = ("recommend", "--jobs", file, "--running", RESNET, "--hurt", 3)
    said = advisor(*words).out
    assert f"but late: {SMALL}." in said
    assert "as if all epochs of every job were still to come" in said
    assert json.loads(advisor(*words, "--json").out)["plans"][0]["late"] == [SMALL]
    file.write_text(file.read_text().replace("60", "900000"))
    assert "; all deadlines hold." in advisor(*words).out


@pytest.fixture
def on_gpu(install):  # noqa: F811
    """Puts processes on an H200 at hand."""
    return lambda **how: install(FakeLibrary(FakeGpu(**how)))


def test_now_reads_from_the_driver_that_there_is_no_mps(advisor, on_gpu):
    on_gpu(processes={11: 4_000 * MIB})
    words = ("recommend", SMALL, "--now", "--running", RESNET, "--hurt", 3, "--json")
    document = json.loads(advisor(*words).out)
    assert document["running"]["sharing"] == "naive"
    assert document["running"]["free_mib"] == 143771 - 612


def test_now_sees_an_mps_server_and_counts_its_clients_only(advisor, on_gpu, monkeypatch):
    on_gpu(processes={7: 30 * MIB, 11: 4_000 * MIB}, mps_clients={11: 4_000 * MIB})
    served = (MpsProcess(7, "server", "ada", None),)
    monkeypatch.setattr("advisor.hardware.live_gpu.mps_processes", lambda: served)
    words = ("recommend", SMALL, "--now", "--running", RESNET, "--hurt", 3, "--json")
    assert json.loads(advisor(*words).out)["running"]["sharing"] == "mps"


def test_now_on_a_free_gpu_ranks_the_ways_to_share_it(advisor, on_gpu):
    on_gpu()
    said = advisor("recommend", SMALL, BERT, "--now")
    assert "nothing runs on GPU 0 now" in said.err
    assert " as fast as one after another" in " ".join(said.out.split())


def test_now_lists_the_processes_that_nobody_named_and_what_they_look_like(advisor, on_gpu):
    on_gpu(processes={11: 90_100 * MIB, 12: None})
    said = advisor("recommend", SMALL, "--now")
    assert said.code == 2
    assert "pid 11 with 90,100 MiB, as much as dlrm-29gb-bs128; pid 12)" in said.err
    assert "knows processes, not what they train" in said.err
    assert "--running JOB,JOB" in said.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([f"{BERT}:auto", RESNET], "asked of one JOB"),
        ([f"{BERT}:auto", "--running", RESNET], "JOB:4 instead of JOB:auto"),
        ([f"{BERT}:auto", "--gpus", 2], "asked of one JOB"),
        ([BERT, "--hurt", 0.1], "--hurt says nothing alone: it needs --running or --now"),
        ([BERT, "--running-sharing", "mps"], "it needs --running or --now"),
        ([BERT, "--now", "--running-sharing", "mps"], "--now and --running-sharing do not"),
        ([BERT, "--running", ""], "no job runs"),
        ([BERT, "--running", "bert-base-finetune-bs61"], "Near: bert-base-finetune-bs16"),
        ([BERT, "--running", RESNET, "--running-sharing", "serial"], "naive, mps or on mig"),
        ([BERT, "--running", RESNET, "--hurt", -1], "--hurt is a share"),
        ([BERT, "--running", RESNET, "--hurt", 20], "got 20: 20 % is 0.2"),
        ([BERT, RESNET, "--protect", BERT, "--hurt", 5], "got 5: 5 % is 0.05"),
        ([BERT, "--running", RESNET, "--commands", 1], "--running and --commands do not go"),
        ([BERT, "--gpus", 0], "--gpus"),
        ([f"{BERT}:97", "--gpus", 2], "Use 1 to 96"),
        ([BERT, "--gpus", 2, "--time-limit", 0], "more than 0 s"),
        (
            [f"{BERT}:auto", "--objective", "energy"],
            "--objective energy and bert-base-finetune-bs16:auto",
        ),
        ([BERT, "--running", RESNET, "--objective", "energy"], "by the throughput"),
        ([BERT, "--running", RESNET, "--pessimistic"], "--hurt"),
        ([BERT, "--gpus", 2, "--power-cap", "auto"], "with --objective energy"),
        ([BERT, "--running", RESNET, "--power-cap", "auto"], "Give watts"),
        ([f"{BERT}:auto", "--power-cap", "auto"], "Give watts"),
        ([*MANY, *QUICK, "--commands", 2], "there is no plan 2"),
    ],
)
def test_wrong_use_is_refused_with_its_reason(advisor, words, said):
    found = advisor("recommend", *words)
    assert found.code == 2
    assert said in found.err


def test_now_refuses_a_gpu_that_the_profiles_are_not_of(advisor, on_gpu):
    on_gpu(product="NVIDIA A100-SXM4-40GB")
    said = advisor("recommend", BERT, "--now")
    assert said.code == 2
    assert "Say --gpu a100-40gb" in said.err


def test_now_on_a_gpu_that_is_cut_asks_for_the_instances(advisor, on_gpu):
    on_gpu(mig=(1, 1))
    said = advisor("recommend", BERT, "--now")
    assert said.code == 2
    assert "--running-sharing mig=" in said.err


def test_now_without_such_a_gpu_has_its_own_exit_code(advisor):
    assert advisor("recommend", BERT, "--now", "--device", "99").code == 4


@pytest.mark.parametrize(
    "asked",
    [
        ("recommend", f"{RESNET}:auto"),
        ("recommend", SMALL, "--running", RESNET, "--hurt", 3),
        ("trials", RESNET),
        ("batch", RESNET),
        ("simulate", f"{RESNET}:2"),
    ],
)
def test_an_answer_under_a_power_cap_says_so_and_what_it_is_translated_from(advisor, asked):
    capped = (*asked, "--power-cap", 400)
    note = "Under a power cap of 400 W: not measured on this GPU: translated from"
    assert note in " ".join(advisor(*capped).out.split())
    assert json.loads(advisor(*capped, "--json").out)["power_cap_w"] == 400
    assert "power cap" not in advisor(*asked).out
