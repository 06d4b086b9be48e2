"""Plans as files: what `export` and `recommend --json` wrote is read back by the other commands."""

import csv
import json

import pytest

from advisor.files.writing import record_line
from advisor.hardware.gpus import gpu
from advisor.launch.plan_file import read_plan, read_plans
from advisor.prediction.find_profile import profile_finder
from advisor.workload.job import read_jobs
from tests import synthetic
from tests.cli.conftest import BERT, GPU, PROFILES, RESNET

BOTH = (RESNET, BERT)


@pytest.fixture
def exported(advisor, tmp_path):
    """A plan file of two jobs that differ in all that a job file can say."""
    (tmp_path / "jobs.toml").write_text(
        f'[[job]]\nprofile = "{RESNET}"\nepochs = 3\nvalidation_s = 40\ncheckpoint_s = 2.5\n'
        'command = ["python3", "train.py", "--lr", "0.1"]\nfolder = "exp dir"\n'
        f'[[job]]\nprofile = "{BERT}"\nexamples_per_epoch = 5000\nuser = "ada"\nisolated = true\n'
    )

    def export(sharing, *words):
        words = ["--jobs", tmp_path / "jobs.toml", "--sharing", sharing, *words]
        said = advisor("export", *words, "--format", "json", "--out", tmp_path / "plan.json")
        assert (said.code, said.out) == (0, "")
        return tmp_path / "plan.json"

    return export


@pytest.mark.parametrize("form", ["slurm", "json"])
def test_a_file_holds_what_would_be_printed(advisor, tmp_path, form):
    words = ["export", *BOTH, "--sharing", "mps=60,60", "--format", form]
    printed = advisor(*words)
    assert (printed.code, printed.err) == (0, "")
    assert advisor(*words, "--out", tmp_path / "file").out == ""
    assert (tmp_path / "file").read_text() == printed.out


@pytest.mark.parametrize("sharing", ["mps=60,60", "mig=3g.71gb@4,4g.71gb@0", "mps[2];serial[1]"])
def test_a_plan_file_gives_back_jobs_and_sharing(exported, measured, tmp_path, sharing):
    planned = read_plan(exported(sharing), measured / "profiles")
    jobs = read_jobs(tmp_path / "jobs.toml", profile_finder(gpu(GPU), measured / "profiles"))
    assert (planned.gpu, str(planned.sharing), planned.jobs) == (GPU, sharing, jobs)


OWN = "mlp-toy-bs32"
WAYS_TO_NAME = {
    "a path, and another in a job file": ("--jobs", "deep/jobs.toml"),
    "a name in a folder of the environment": (RESNET, BERT),
    "a name in one's own folder": (f"{OWN}:2",),
    "a batch size between measured ones": (BERT.replace("16", "24"), "--profiles", "mine/set"),
}


@pytest.mark.parametrize("way", WAYS_TO_NAME)
def test_a_plan_is_run_wherever_its_profiles_lay_and_whatever_became_of_them(
    advisor, tmp_path, monkeypatch, way
):
    own = synthetic.profile(OWN)
    larger = synthetic.profile(BERT.replace("16", "32"), host_s=0.03, gpu_s=0.04, blocks=600)
    files = {
        "mine/a.json": own,
        f"mine/set/{GPU}/{RESNET}.json": PROFILES[RESNET],
        f"mine/set/{BERT}.json": PROFILES[BERT],
        f"mine/set/{larger.name}.json": larger,
        f"data/advisor/profiles/{GPU}/{OWN}.json": own,
    }
    for file, profile in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(record_line(profile))
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "jobs.toml").write_text(
        '[[job]]\nprofile = "../mine/a.json"\nexamples_per_epoch = 5000\ncommand = "true 1"\n'
        '[[job]]\nprofile = "../mine/a.json"\ncommand = "true 2"\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", "data")
    if "environment" in way:
        monkeypatch.setenv("ADVISOR_PROFILES", "mine/set")
    words = ("--gpu", GPU, *WAYS_TO_NAME[way])
    asked = advisor("simulate", *words, "--sharing", "mps", "--json")
    advisor("export", *words, "--sharing", "mps", "--format", "json", "--out", "plan.json")
    advice = advisor("recommend", *words, "--no-root", "--json").out
    (tmp_path / "advice.json").write_text(advice)
    for file in files:
        (tmp_path / file).unlink()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for name in ("XDG_DATA_HOME", "ADVISOR_PROFILES"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    simulated = advisor("simulate", "--plan", "../plan.json", "--json")
    assert json.loads(simulated.out)["makespan_s"] == json.loads(asked.out)["makespan_s"]
    for plan in ("../plan.json", "../advice.json"):
        said = advisor("run", plan)
        assert said.code == 0, said.err


def test_a_plan_file_is_simulated_and_compared_as_the_words_are(
    advisor, exported, tmp_path, monkeypatch
):
    path = exported("mps=60,60", "--power-cap", 400)
    words = ["--jobs", tmp_path / "jobs.toml", "--sharing", "mps=60,60", "--power-cap", 400]
    named = advisor("simulate", *words, "--json")
    assert named.code == 0
    with monkeypatch.context() as patch:
        patch.setenv("ADVISOR_GPU", "a100-40gb")  # but the plan is for its own GPU
        assert advisor("simulate", "--plan", path, "--json").out == named.out
    compared = json.loads(advisor("compare", "mps=60,60", path, "--json").out)
    assert [plan["power_cap_w"] for plan in compared["plans"]] == [None, 400]


def test_the_best_plan_and_the_plan_of_a_rank_are_those_of_recommend(advisor):
    plans = advisor.document("recommend", *BOTH)["plans"]
    for rank, words in ((1, ()), (3, ("--rank", 3))):
        (found,) = json.loads(advisor("export", *BOTH, *words, "--format", "json").out)["plans"]
        assert found["sharing"] == plans[rank - 1]["sharing"]
    script = [each.strip() for each in advisor("export", *BOTH).out.splitlines()]
    lines = [each.strip() for each in plans[0]["commands"]]
    brackets = ("(", ")")  # those around all of it
    assert [each for each in script[1:] if each not in brackets] == [
        each for each in lines if each not in brackets
    ]


@pytest.mark.parametrize(
    ("change", "words", "named"),
    [
        ({"plans": []}, "simulate --plan", "plans"),
        ({"gpu": "voodoo-2"}, "simulate --plan", "voodoo-2"),
        ({"sharing": "mps=60"}, "simulate --plan", "1 limit for 2 jobs"),
        ({}, "simulate --gpu a100-40gb --plan", "--gpu a100-40gb"),
        ({}, f"simulate {RESNET} --plan", "--plan"),
        ({}, f"compare mps {RESNET}", "Leave out JOBs"),
    ],
)
def test_a_plan_file_that_was_changed_or_does_not_go_with_the_words_is_refused(
    advisor, exported, change, words, named
):
    path = exported("mps=60,60")
    document = json.loads(path.read_text())
    document["plans"][0] |= {name: change[name] for name in change if name == "sharing"}
    path.write_text(json.dumps(document | {n: change[n] for n in change if n != "sharing"}))
    said = advisor(*words.split(), path)
    assert (said.code, said.out, named in said.err) == (2, "", True), said.err


@pytest.fixture
def of_two_gpus(advisor, tmp_path):
    """The file of a plan for three jobs on two GPUs, which end at once."""
    entry = '[[job]]\nprofile = "{}"\ncommand = ["bash", "-c", "echo it ran"]\nfolder = "."\n'
    jobs = "".join(map(entry.format, (RESNET, BERT, RESNET)))
    (tmp_path / "jobs.toml").write_text(jobs)
    words = ("--gpus", 2, "--format", "json", "--out", tmp_path / "plan.json")
    said = advisor("export", "--jobs", tmp_path / "jobs.toml", *words)
    assert (said.code, f"advisor run {tmp_path}/plan.json" in said.err) == (0, True)
    return tmp_path / "plan.json"


def test_one_file_has_the_plan_of_each_gpu_with_the_numbers_of_its_jobs(
    advisor, of_two_gpus, measured
):
    answer = advisor("recommend", RESNET, BERT, RESNET, "--gpus", 2, "--json")
    (best, *_) = json.loads(answer.out)["plans"]
    plans = read_plans(of_two_gpus, measured / "profiles")
    assert [(plan.host, plan.device) for plan in plans] == [(0, 0), (0, 1)]
    assert [[*plan.numbers] for plan in plans] == [gpu["job_numbers"] for gpu in best["gpus"]]
    assert [str(plan.sharing) for plan in plans] == [gpu["sharing"] for gpu in best["gpus"]]
    said = advisor("simulate", "--plan", of_two_gpus)
    assert (said.code, "advisor run" in said.err) == (2, True)


def test_the_plans_of_several_gpus_of_a_host_run_at_once_in_one_table(
    advisor, of_two_gpus, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert advisor("run", of_two_gpus).out.count("#!/usr/bin/env bash") == 2
    said = advisor("run", of_two_gpus, "--apply", "--device", "cpu")
    assert said.code == 0, said.err
    folders = sorted((tmp_path / "state" / "advisor" / "runs").iterdir())
    assert len(folders) == 2
    for number in (1, 2, 3):
        (log,) = (
            folder / f"job-{number}.log"
            for folder in folders
            if (folder / f"job-{number}.log").exists()
        )
        assert log.read_text() == "it ran\n"
    last = said.out[said.out.rindex(f"{folders[0].name}: ") :]
    assert last.count(": done") == 3
    assert folders[1].name in last


def test_run_starts_all_jobs_but_those_on_several_gpus_and_says_how_to_start_these(
    advisor, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    entry = '[[job]]\nprofile = "{}"\ngpus = {}\ncommand = "touch {}"\n'
    jobs = [(RESNET, 2, "together"), (BERT, 1, "alone")]
    (tmp_path / "jobs.toml").write_text("".join(entry.format(*each) for each in jobs))
    words = ("--gpus", 2, "--format", "json", "--out", tmp_path / "plan.json")
    written = advisor("export", "--jobs", tmp_path / "jobs.toml", *words)
    assert (written.code, f"--only {GPU}" in written.err) == (0, True)
    assert f"advisor run {tmp_path}/plan.json" in written.err
    said = advisor("run", tmp_path / "plan.json", "--apply", "--device", "cpu")
    assert (said.code, f"--format slurm --only {GPU}" in said.err) == (0, True)
    assert (tmp_path / "alone").exists()
    assert not (tmp_path / "together").exists()


@pytest.mark.parametrize(
    ("change", "words", "named"),
    [
        ({"host": 1}, (), "--ray"),
        ({}, ("--device", "0,1,2"), "2 GPUs"),
        ({"device": 0}, (), "device"),
    ],
)
def test_plans_that_a_host_cannot_run_are_refused_with_the_reason(
    advisor, of_two_gpus, change, words, named
):
    document = json.loads(of_two_gpus.read_text())
    document["plans"][1] |= change
    of_two_gpus.write_text(json.dumps(document))
    said = advisor("run", of_two_gpus, "--apply", *words)
    assert (said.code, named in said.err) == (2, True), said.err


def test_run_shows_what_it_would_start_of_a_plan_and_of_advice(advisor, exported, tmp_path):
    for path in (exported("mps=43,57"), tmp_path / "advice.json"):
        if path.name == "advice.json":
            words = ("recommend", "--jobs", tmp_path / "jobs.toml", "--json", "--no-root")
            path.write_text(advisor(*words).out)
        said = advisor("run", path)
        assert said.code == 0, said.err
        assert "python3 train.py --lr 0.1" in said.out
        assert "--apply" in said.err
    assert advisor("run", tmp_path / "advice.json", "--rank", 999).code == 2


def test_a_run_is_watched_listed_watched_again_and_stopped(advisor, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for words in (("run", "nobody"), ("stop",)):
        assert advisor(*words).code == 2
    entry = '[[job]]\nprofile = "{}"\ncommand = ["bash", "-c", "{}"]\nfolder = "."\n'
    codes = ("echo no such data; exit 3", "echo it ran")
    jobs = "".join(entry.format(name, code) for name, code in zip(BOTH, codes, strict=True))
    (tmp_path / "jobs.toml").write_text(jobs)
    words = ("--sharing", "naive", "--format", "json", "--out", tmp_path / "plan.json")
    assert advisor("export", "--jobs", tmp_path / "jobs.toml", *words).code == 0
    said = advisor("run", tmp_path / "plan.json", "--apply", "--device", "cpu")
    assert (said.code, "no such data" in said.err, "job-1.log" in said.err) == (1, True, True)
    (folder,) = (tmp_path / "state" / "advisor" / "runs").iterdir()
    assert (folder / "job-2.log").read_text() == "it ran\n"
    assert folder.name in advisor("run", "--list").out
    assert advisor("run", folder.name[:12]).code == 1
    assert advisor("stop", folder).code == 0


def test_a_plan_that_holds_secrets_names_them_and_not_their_values(advisor, tmp_path):
    (jobs := tmp_path / "jobs.toml").write_text(
        f'[[job]]\nprofile = "{RESNET}"\ncommand = ["python", "train.py", "--token=hidden"]\n'
        '[job.environment]\nWANDB_API_KEY = "hidden"\n'
    )
    for form, named in (("json", "WANDB_API_KEY"), ("commands", "--token"), ("mps", "")):
        words = ("--sharing", "mps", "--format", form)
        said = advisor("export", "--jobs", jobs, *words)
        assert (said.code, "hidden" in said.err) == (0, False)
        assert named in said.err
        assert bool(named) == bool(said.err)


def test_many_plans_are_compared_with_the_first_by_time_energy_memory_and_slowdown(
    advisor, tmp_path
):
    words = ("compare", "naive", "mps", "mps=60,60", "mig=3g.71gb,4g.71gb", *BOTH)
    plans = advisor.document(*words)["plans"]
    assert [plan["sharing"] for plan in plans][:3] == ["naive", "mps", "mps=60,60"]
    assert plans[0]["gain_over_first"] == {"p05": 1, "p50": 1, "p95": 1}
    assert advisor(*words, "--csv", tmp_path / "plans.csv").code == 0
    rows = list(csv.DictReader((tmp_path / "plans.csv").read_text().splitlines()))
    for row, plan in zip(rows, plans, strict=True):
        alone = advisor.document("predict", *BOTH, "--sharing", plan["plan"])
        numbers = {
            "total_time_p50_s": alone["makespan_s"],
            "energy_j": alone["energy_j"]["p50"],
            "memory_mib": alone["memory_total_mib"],
            "slowdown_2": alone["jobs"][1]["slowdown"],
            "gain_over_first_p50": plans[0]["makespan_s"] / plan["makespan_s"],
        }
        assert {name: float(row[name]) for name in numbers} == pytest.approx(numbers)


def test_a_job_has_its_own_mig_instance_unless_any_layout_is_allowed(advisor):
    words = ("recommend", RESNET, BERT, "--json")
    for mig, divided in {"plain": False, "any": True}.items():
        plans = json.loads(advisor(*words, "--mig", mig).out)["plans"]
        assert any("/ci=" in plan["sharing"] for plan in plans) == divided
        assert any(plan["sharing"].startswith("mig=") for plan in plans)
    assert advisor(*words, "--mig", "some").code == 2
