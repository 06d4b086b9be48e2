"""``advisor export``: files whole, read back by the commands that take them."""

import json

import pytest

from advisor.hardware.catalogue import gpu
from advisor.launch.plan_file import read_plan
from advisor.measure.shared.run_list_file import read_plans
from advisor.prediction.estimated_profile import profile_finder
from advisor.workload.job_file import read_jobs

RESNET, BERT = "resnet50-imagenet64-bs128", "bert-base-finetune-bs16"
BOTH = (RESNET, BERT)


@pytest.fixture
def exported(advisor, tmp_path):
    """A plan file of two jobs that differ in all that a job file can say."""
    (tmp_path / "jobs.toml").write_text(
        f'[[job]]\nprofile = "{RESNET}"\nepochs = 3\nvalidation_s = 40\ncheckpoint_s = 2.5\n'
        f'[[job]]\nprofile = "{BERT}"\nexamples_per_epoch = 5000\nuser = "ada"\nisolated = true\n'
    )

    def export(sharing, *words):
        words = ["--jobs", tmp_path / "jobs.toml", "--sharing", sharing, *words]
        said = advisor("export", *words, "--format", "json", "--out", tmp_path / "plan.json")
        assert (said.code, said.out) == (0, "")
        return tmp_path / "plan.json"

    return export


@pytest.mark.parametrize("form", ["commands", "mps", "mig-parted", "slurm", "json"])
def test_what_is_written_is_what_would_be_printed(advisor, tmp_path, form):
    words = ["export", *BOTH, "--sharing", "mps=60,60", "--format", form]
    printed = advisor(*words)
    assert (printed.code, printed.err) == (0, "")
    assert advisor(*words, "--out", tmp_path / "file").out == ""
    assert (tmp_path / "file").read_text() == printed.out


def test_without_a_sharing_the_best_plan_is_exported(advisor):
    said = advisor("recommend", *BOTH, "--commands", 1).out.splitlines()
    best = [line.strip() for line in said if line not in ("(", ")")]
    file = advisor("export", *BOTH).out.splitlines()
    assert [line.strip() for line in file] == ["#!/usr/bin/env bash", *best]


def test_of_many_jobs_the_groups_are_exported_that_recommend_found(advisor):
    words = (f"{BOTH[0]}:5", f"{BOTH[1]}:5")
    recommended, exported = (
        json.loads(advisor(*verb, *words).out)["plans"]
        for verb in (("recommend", "--json"), ("export", "--format", "json"))
    )
    assert len(exported[0]["sharing"].split(";")) > 1
    assert [each["sharing"] for each in exported] == [each["sharing"] for each in recommended]


def test_of_a_plan_under_a_power_cap_it_is_said_that_run_does_not_take_it(advisor, tmp_path):
    words = ("export", *BOTH, "--power-cap", 400, "--format", "json", "--out", tmp_path / "p.json")
    for more in ((), ("--gpus", 2)):
        said = advisor(*words, *more)
        assert said.code == 0
        assert (
            "`advisor run` will refuse this plan: the plan is under a power cap of 400" in said.err
        )
        assert "shows what it would do" not in said.err


def test_for_several_gpus_a_plan_is_written_for_each_that_run_takes(advisor, tmp_path):
    words = ("export", *BOTH, "--gpus", 2, "--format", "json")
    said = advisor(*words, "--out", tmp_path / "plan.json")
    files = [tmp_path / f"plan-gpu{number}.json" for number in (0, 1)]
    assert [str(file) in said.err for file in files] == [True, True]
    jobs = [job.name for file in files for job in read_plan(file).jobs]
    assert sorted(jobs) == sorted(BOTH)
    assert advisor("run", files[1], "--device", 1).code == 0
    nowhere = advisor(*words)
    assert (nowhere.code, "--out FILE.json" in nowhere.err) == (2, True)


@pytest.mark.parametrize("form", ["mps", "mig-parted", "radt"])
def test_what_sets_up_one_gpu_is_refused_for_several_in_words(advisor, form):
    said = advisor("export", *BOTH, "--gpus", 2, "--format", form)
    assert (said.code, said.out) == (2, "")
    assert f"--format {form} is for one GPU: for several use commands, slurm or json" in said.err
    assert advisor("export", *BOTH, "--gpus", 2, "--sharing", "mps").code == 2


def test_a_recommendation_for_several_gpus_is_not_run_on_one_and_what_to_do_is_said(
    advisor, tmp_path
):
    found = advisor("recommend", *BOTH, "--gpus", 2, "--json").out
    (tmp_path / "found.json").write_text(found)
    said = advisor("run", tmp_path / "found.json")
    assert said.code == 2
    assert "it is a plan for 2 GPUs, and a run is on one" in said.err
    assert "advisor export --gpus 2 --format json" in said.err


def test_a_plan_is_exported_by_the_rank_that_recommend_gives_it(advisor):
    plans = json.loads(advisor("recommend", *BOTH, "--json").out)["plans"]
    for rank in (1, 3):
        found = json.loads(advisor("export", *BOTH, "--rank", rank, "--format", "json").out)
        (exported,) = found["plans"]
        assert exported["sharing"] == plans[rank - 1]["sharing"]


def test_plans_on_mig_say_that_no_hardware_ran_them_even_where_a_file_cannot(advisor):
    said = advisor("export", *BOTH, "--sharing", "mig=3g.71gb,4g.71gb", "--format", "radt")
    assert said.code == 0
    assert "warning: Untested on MIG hardware" in said.err


@pytest.mark.parametrize(
    "sharing", ["serial", "naive", "mps=60,60", "mig=3g.71gb@4,4g.71gb@0", "mps[2];serial[1]"]
)
def test_a_plan_file_gives_back_jobs_and_sharing(exported, measured, tmp_path, sharing):
    planned = read_plan(exported(sharing), measured / "profiles")
    jobs = read_jobs(
        tmp_path / "jobs.toml", profile_finder(gpu("h200-141gb"), measured / "profiles")
    )
    assert (planned.gpu, str(planned.sharing), planned.jobs) == ("h200-141gb", sharing, jobs)


def test_simulate_reads_a_plan_file(advisor, exported, tmp_path):
    path = exported("mps=60,60", "--power-cap", 400)
    words = ["--jobs", tmp_path / "jobs.toml", "--sharing", "mps=60,60", "--power-cap", 400]
    named = advisor("simulate", *words, "--json")
    assert named.code == 0
    assert advisor("simulate", "--plan", path, "--json").out == named.out


def test_the_command_that_runs_mixes_reads_a_plan_file(exported):
    (plan,) = read_plans(exported("mps=60,60"), "h200-141gb")
    assert (plan.sharing, len(plan.workloads)) == ("mps=60,60", 2)


def test_a_plan_file_starts_each_job_by_its_own_command(advisor, measured, tmp_path):
    jobs = tmp_path / "trials.toml"
    entry = '[[job]]\nprofile = "{}"\ncommand = ["python", "train.py", "--seed", "{}"]\n'
    jobs.write_text("".join(entry.format(BOTH[0], seed) for seed in (1, 2)))
    out = tmp_path / "plan.json"
    words = ["--jobs", jobs, "--sharing", "naive", "--format", "json", "--out", out]
    assert advisor("export", *words).code == 0
    seeds = [job.profile.workload.script.command[-1] for job in read_plan(
        out, measured / "profiles").jobs]  # fmt: skip
    assert seeds == ["1", "2"]
    (plan,) = read_plans(out, "h200-141gb")
    assert [each.script.command[-1] for each in plan.workloads] == seeds


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": 2}, "schema"),
        ({"plans": []}, "plans"),
        ({"extra": 1}, "extra"),
        ({"gpu": "voodoo-2"}, "voodoo-2"),
        ({"workloads": {}}, "workloads lacks"),
    ],
)
def test_a_plan_file_that_was_changed_is_refused(advisor, exported, change, said):
    path = exported("mps=60,60")
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    answer = advisor("simulate", "--plan", path)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [("sharing", "mps=60", "1 limit for 2 jobs"), ("sharing", "mpss", "is not a sharing")],
)
def test_a_plan_whose_sharing_was_changed_is_refused(advisor, exported, key, value, said):
    path = exported("mps=60,60")
    document = json.loads(path.read_text())
    document["plans"][0][key] = value
    path.write_text(json.dumps(document))
    answer = advisor("simulate", "--plan", path)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--format", "xml"], 2, "error: Invalid value for '--format': 'xml' is not one of"),
        (["--rank", "99"], 2, "there is no plan 99: `advisor recommend` ranks"),
        (["--rank", "2", "--sharing", "naive"], 2, "--sharing and --rank do not go together"),
        ([f"{BERT}:7", "--rank", "1"], 2, "--rank is for up to 8 jobs"),
        (["--sharing", "mpss"], 2, "'mpss' is not a sharing"),
        (["--sharing", "naive", "--format", "mps"], 2, "no job of it shares by MPS"),
        (["--sharing", "mps=50,50", "--format", "radt"], 2, "radT has no MPS limits"),
        (["--sharing", "mig=4g.71gb,4g.71gb"], 3, "at most 1 of 4g.71gb"),
        (["--sharing", "mig=1g.18gb,7g.141gb"], 3, "cannot hold"),
        (
            ["dlrm-29gb-bs128:2", "--sharing", "naive", "--out", "/dev/null/plan"],
            3,
            "out of memory",
        ),
        (["--sharing", "naive", "--out", "/dev/null/plan"], 2, "Choose another path"),
        (["--sharing", "naive", "--out", "/dev/full"], 2, "/dev/full: it is a device"),
        (["--sharing", "naive", "--out", "/dev/null"], 2, "/dev/null: it is a device"),
        (["--sharing", "naive", "--out", "/tmp"], 2, "/tmp: it is a folder"),
    ],
)
def test_what_cannot_be_exported_is_refused(advisor, words, code, said):
    answer = advisor("export", *BOTH, *words)
    assert said in answer.err
    assert (answer.code, answer.out) == (code, "")


def test_a_plan_file_takes_no_jobs_beside_it(advisor, exported):
    answer = advisor("simulate", RESNET, "--plan", exported("naive"))
    assert answer.code == 2
    assert "one of these" in answer.err


@pytest.mark.parametrize(
    ("form", "held"), [("json", "--token, WANDB_API_KEY"), ("commands", "--token")]
)
def test_of_a_plan_that_holds_secrets_is_said_which(form, held, advisor, tmp_path):
    jobs = tmp_path / "jobs.toml"
    jobs.write_text(
        f'[[job]]\nprofile = "{RESNET}"\ncommand = ["python", "train.py", "--token=hidden"]\n'
        '[job.environment]\nWANDB_API_KEY = "hidden"\n'
    )
    advice = ("--json",) if form == "json" else ("--commands", 1)
    for words in (("export", "--format", form, "--sharing", "serial"), ("recommend", *advice)):
        said = advisor(*words, "--jobs", jobs)
        _check_held(said, held)
    for words in (("recommend",), ("predict", "--sharing", "serial", "--json")):
        assert "the plan holds" not in advisor(*words, "--jobs", jobs).err


def _check_held(said, held):
    assert said.code == 0
    assert f"the plan holds the values of {held}: keep it to yourself" in said.err
    assert "hidden" not in said.err


@pytest.mark.parametrize("form", ["mps", "mig-parted"])
def test_a_file_without_commands_holds_no_secrets_and_nothing_is_said_of_them(
    form, advisor, tmp_path
):
    jobs = tmp_path / "jobs.toml"
    jobs.write_text(f'[[job]]\nprofile = "{RESNET}"\ncommand = ["python", "t.py", "--token=x"]\n')
    said = advisor("export", "--jobs", jobs, "--format", form, "--sharing", "mps")
    assert (said.code, said.err) == (0, "")


def test_radt_is_given_scripts_and_words_and_secrets_among_them_are_named(advisor, tmp_path):
    jobs = tmp_path / "jobs.toml"
    entry = '[[job]]\nprofile = "{}"\ncommand = {}\n'
    plain, wide = (
        ["python3", "train.py", "--lr", "0.2", "--token", "hidden"],
        ["python", "-u", "t.py"],
    )
    words = ["export", "--jobs", jobs, "--sharing", "mps", "--format", "radt"]
    jobs.write_text(entry.format(RESNET, plain))
    said = advisor(*words)
    assert f"{tmp_path}/train.py,smi+top+dcgmi,--lr 0.2 --token hidden\n" in said.out
    assert "the plan holds the values of --token" in said.err
    assert "placeholder" not in said.err
    jobs.write_text(entry.format(RESNET, [*wide, "--token", "hidden"]))
    said = advisor(*words)
    assert f"{RESNET}.py,smi+top+dcgmi,-\n" in said.out
    assert f"warning: {RESNET}.py: placeholders" in said.err
    assert "--token" not in said.err
