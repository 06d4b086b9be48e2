"""Every command answers: exit code, the keys of its JSON document, and numbers that agree."""

import csv
import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest

import advisor as library
from advisor.files.writing import append_record, record_line, write_whole
from advisor.hardware import DEFAULT_GPU
from advisor.workload.minimal_profile import minimal_text
from tests import synthetic
from tests.cli.conftest import BERT, GPU, PROFILES, RESNET, SMALL
from tests.report import mlflow_stand_in
from tests.test_schemas import problems

MANY = (f"{RESNET}:3", f"{BERT}:3", f"{SMALL}:4")
DLRM = "dlrm-29gb-bs128"
BARE = synthetic.numbers(examples_per_epoch=64_000)
UNKNOWN = replace(BARE, power_w=None, gpu_utilization=None, memory_utilization=None)
PAIR = (RESNET, BERT)
# The schema of an answer, and the words that ask for it.
ANSWERS = [
    ("recommendation", "recommend", *PAIR),
    ("recommendation", "recommend", *PAIR, "--power-cap", "auto"),
    ("recommendation", "recommend", *PAIR, "--gpu", "a100-40gb"),
    ("recommendation", "recommend", *MANY),
    ("recommendation", "recommend", *MANY, "--gpus", 2),
    ("copies", "copies", RESNET),
    ("additions", "admit", SMALL, "--running", f"{BERT},{RESNET}", "--max-slowdown", 3),
    ("trials", "trials", RESNET, "--steps", 500, "--count", 24),
    ("batch", "batch", "dlrm-29gb", "--slices", "whole"),
    ("prediction", "predict", *PAIR),
    ("prediction", "predict", *PAIR, "--sharing", "serial"),
    ("prediction", "predict", *PAIR, "--sharing", "mig=3g.71gb,4g.71gb"),
    ("comparison", "compare", "naive", "mps", "mig=3g.71gb,4g.71gb", *PAIR),
    ("simulation", "simulate", *PAIR, "--gpus", 2, "--price", 2),
    ("plan", "export", *PAIR, "--format", "json"),
    ("gpus", "gpus"),
    ("layouts", "layouts"),
    ("workloads", "workloads"),
    ("profiles", "profiles"),
]


@pytest.fixture
def own_profiles(own):
    """The user's folder of profiles, with another batch size of a job and one of bare numbers."""
    folder = own / "profiles" / GPU
    small = synthetic.profile("dlrm-29gb-bs32", host_s=0.008, gpu_s=0.002, memory_mib=60_000)
    write_whole(folder / f"{small.name}.json", record_line(small))
    (folder / "my-job.json").write_text(minimal_text(BARE))
    return folder


@pytest.mark.usefixtures("own_profiles")
@pytest.mark.parametrize(("schema", "words"), [(schema, words) for schema, *words in ANSWERS])
def test_every_command_prints_text_and_one_json_document(advisor, schema, words):
    said = advisor(*words, *(() if words[0] == "export" else ("--json",)))
    assert (said.code, said.err) == (0, "")
    assert problems(schema, json.loads(said.out)) == []
    text = advisor(*words[:-2]) if words[0] == "export" else advisor(*words)
    assert (text.code, "\x1b" in text.out) == (0, False)
    assert len(text.out) > 100


@pytest.mark.parametrize(
    "words",
    [
        ("recommend", "JOB", "JOB", RESNET),
        ("admit", "JOB", "--running", RESNET, "--max-slowdown", 3),
        ("recommend", "JOB", "--gpus", 2),
        ("predict", "JOB", RESNET, "--sharing", "mps=43,57"),
        ("predict", "JOB", RESNET, "--sharing", "mig=4g.71gb[1,2]/mps"),
        ("simulate", "JOB", RESNET, "--sharing", "mps"),
        ("compare", "naive", "mps", "JOB", RESNET),
        ("export", "JOB", RESNET, "--sharing", "mps", "--format", "slurm"),
    ],
)
def test_every_command_takes_a_job_of_bare_numbers(advisor, tmp_path, words):
    bare = BARE if words[0] == "predict" else UNKNOWN
    (path := tmp_path / "my-job.json").write_text(minimal_text(bare))
    said = advisor(*(path if word == "JOB" else word for word in words))
    assert (said.code, said.err) == (0, "")


@pytest.mark.parametrize(
    "sharing",
    [
        "naive",
        "mps=43,57",
        "mig=4g.71gb@0[1,2]/mps=60,40",
        "mig=7g.141gb@0/ci=3c[1]+4c[2]",
        "serial[1];naive[2]",
    ],
)
def test_predict_simulate_compare_and_the_library_agree(advisor, sharing):
    words = (RESNET, BERT, "--sharing", sharing)
    predicted, simulated = (advisor.document(verb, *words) for verb in ("predict", "simulate"))
    assert predicted["sharing"] == sharing
    assert predicted["confirmed_on_hardware"] is not sharing.startswith("mig")
    assert simulated["makespan_s"] == pytest.approx(predicted["makespan_interval_s"])
    assert simulated["energy_j"] == pytest.approx(predicted["energy_j"])
    (_, second) = advisor.document("compare", "serial", sharing, RESNET, BERT)["plans"]
    assert second["cost"] == pytest.approx(predicted["makespan_interval_s"])
    if ";" not in sharing:
        found = library.predict([RESNET, BERT], sharing, gpu="H200").prediction
        steps_s = [job["step_s"]["p50"] for job in predicted["jobs"]]
        assert [job.step_s.p50 for job in found.jobs] == pytest.approx(steps_s)


def test_a_csv_file_has_every_plan_and_each_way_to_share(advisor, tmp_path):
    file = tmp_path / "plans.csv"
    assert advisor("recommend", RESNET, BERT, "--csv", file).code == 0
    rows = list(csv.DictReader(file.read_text().splitlines()))
    document = advisor.document("recommend", RESNET, BERT)
    assert [row["sharing"] for row in rows] == [plan["sharing"] for plan in document["plans"]]
    assert {row["way"] for row in rows} >= {"one after another", "time-slicing", "MPS", "MIG"}
    for row, plan in zip(rows, document["plans"], strict=True):
        assert float(row["total_time_p50_s"]) == pytest.approx(plan["makespan_s"])
        assert (row["estimated"] == "True") is not plan["confirmed_on_hardware"]


def test_memory_limits_copies_and_a_mix_that_cannot_fit_has_its_risk(advisor):
    copies = advisor.document("copies", DLRM)
    assert copies["fit"] == 1
    assert "MiB" in copies["limited_by"]
    mix = advisor("predict", f"{DLRM}:2", "--json")
    assert json.loads(mix.out)["oom_probability"] > 0.99
    text = advisor("predict", f"{DLRM}:2")
    assert text.out.startswith("DOES NOT FIT")
    none_fits = advisor("compare", "naive", "mps", f"{DLRM}:2", "--json")
    assert len(json.loads(none_fits.out)["plans"]) == 2
    assert mix.code == text.code == none_fits.code == 3
    assert advisor("compare", "serial", "mps", f"{DLRM}:2").code == 0


def test_a_trace_of_arrivals_keeps_its_order_its_gpus_and_how_many_share_one(advisor, tmp_path):
    lines = [f"{30 * at},{(RESNET, BERT, SMALL)[at % 3]},{1 + at}" for at in range(6)]
    trace, out = tmp_path / "arrivals.csv", tmp_path / "t.json"
    trace.write_text("\n".join(["arrival_s,job,epochs", *lines]) + "\n")
    words = ("simulate", "--trace-in", trace, "--gpus", 2, "--policy", "best-fit", "--at-once", 1)
    found = advisor.document(*words, "--timeline", out)
    assert [job["arrival_s"] for job in found["jobs"]] == [0, 30, 60, 90, 120, 150]
    assert all(job["start_s"] >= job["arrival_s"] for job in found["jobs"])
    assert max(len(each["jobs"]) for each in found["usage"]) == 1
    busy_s = sum(each["end_s"] - each["start_s"] for each in found["usage"])
    assert busy_s / 3600 == pytest.approx(found["occupied_gpu_hours"])
    events = json.loads(out.read_text())["traceEvents"]
    assert sum(each.get("cat") == "job" for each in events) == 6
    assert all(each.get("dur", 0) >= 0 for each in events)


def test_a_simulation_writes_a_row_for_each_job_with_its_mean_slowdown(advisor, tmp_path):
    file, jobs = tmp_path / "jobs.csv", tmp_path / "jobs.toml"
    jobs.write_text(f'[[job]]\nprofile = "{RESNET}"\ngpus = 2\n[[job]]\nprofile = "{BERT}"\n')
    for words in ((RESNET, f"{BERT}:2"), ("--jobs", jobs, "--gpus", 2, "--policy", "max-min")):
        document = advisor.document("simulate", *words, "--csv", file)
        rows = list(csv.DictReader(file.read_text().splitlines()))
        for row, job in zip(rows, document["jobs"], strict=True):
            assert (row["job"], row["gpus"].split()) == (job["job"], [*map(str, job["gpus"])])
            for level, end_s in job["end_s"].items():
                assert float(row[f"end_{level}_s"]) == pytest.approx(end_s)
            ran_s = job["end_s"]["p50"] - job["start_s"]  # none is stopped
            assert float(row["running_s"]) == pytest.approx(ran_s)
            alone = advisor.document("simulate", job["job"], "--sharing", "serial")
            alone_s = alone["jobs"][0]["end_s"]["p50"] / len(job["gpus"])
            assert float(row["mean_slowdown"]) == pytest.approx(ran_s / alone_s)


def test_a_job_that_rounds_stop_runs_for_less_than_it_takes_and_is_not_slowed(advisor, tmp_path):
    (trace := tmp_path / "trace.csv").write_text("arrival_s,job\n" + f"0,{RESNET}\n" * 3)
    words = ("simulate", "--trace-in", trace, "--gpus", 2, "--at-once", 1, "--policy", "max-min")
    files = ("--csv", tmp_path / "jobs.csv", "--plot", tmp_path / "jobs.svg")
    document = advisor.document(*words, "--round", 60, "--preemption", 0, *files)
    assert document["preemptions"]
    rows = list(csv.DictReader(files[1].read_text().splitlines()))
    assert [float(row["mean_slowdown"]) for row in rows] == pytest.approx([1, 1, 1])
    took_s = [float(row["completion_s"]) - float(row["wait_s"]) for row in rows]
    assert any(float(row["running_s"]) < s - 50 for row, s in zip(rows, took_s, strict=True))
    drawn = files[3].read_text()
    assert all(f"GPU {gpu} · " in drawn for gpu in (0, 1))


@pytest.mark.parametrize(("jobs", "form"), [(4, "svg"), (4, "png"), (60, "svg")])
def test_simulated_jobs_are_drawn_one_by_one_and_many_by_their_places(
    advisor, tmp_path, jobs, form
):
    pytest.importorskip("vl_convert")
    file, words = tmp_path / f"jobs.{form}", ("simulate", f"{SMALL}:{jobs}", "--gpus", 2)
    words += ("--sharing", "mig=3g.71gb,4g.71gb")
    said = advisor(*words, "--plot", file)
    assert (said.code, said.out) == (0, advisor(*words).out)
    assert file.read_bytes().startswith(b"<svg" if form == "svg" else b"\x89PNG")
    if form == "svg":
        row = "GPU 1 · place 2" if jobs > 40 else f"1,3 · {SMALL} x2"
        assert all(word in file.read_text() for word in (row, "estimated"))


@pytest.mark.parametrize(
    ("words", "at_once"),
    [
        ((), 4),
        (("--sharing", "mps/3"), 3),
        (("--at-once", 6), None),
        (("--sharing", "serial"), None),
    ],
)
def test_a_simulation_prints_how_many_jobs_at_once_it_allows_on_a_gpu(
    advisor, tmp_path, words, at_once
):
    (trace := tmp_path / "six.csv").write_text("arrival_s,job\n" + f"0,{SMALL}\n" * 6)
    question = ("simulate", "--trace-in", trace, *words)
    document = advisor.document(*question)
    assert document["at_once"] == at_once
    assert max(len(each["jobs"]) for each in document["usage"]) <= (at_once or 6)
    heading = advisor(*question).out.splitlines()[0]
    assert (f" {at_once} at once" in heading) == (at_once is not None)


def test_a_trace_may_have_the_seconds_of_each_job_alone_and_one_job_a_gpu_is_the_measure(
    advisor, tmp_path
):
    rows = "".join(f"{900 * at},{PAIR[at % 2]},{600 + at}\n" for at in range(5))
    (trace := tmp_path / "trace.csv").write_text(f"arrival_s,job,duration_s\n{rows}")
    words = ("simulate", "--trace-in", trace, "--sharing")
    shared, serial = (advisor.document(*words, sharing) for sharing in ("mps", "serial"))
    ran_s = [job["end_s"]["p50"] - job["start_s"] for job in serial["jobs"]]
    assert ran_s == pytest.approx([600, 601, 602, 603, 604], rel=0.01)
    assert serial["unshared"] is None
    for name in ("makespan_s", "mean_completion_s", "mean_wait_s", "energy_j"):
        assert shared["unshared"][name] == serial[name]


def test_a_simulation_allows_what_a_recommendation_does(advisor, tmp_path):
    assert len(advisor.document("simulate", f"{SMALL}:60", "--gpus", 4)["jobs"]) == 60
    alone = "".join(
        f'[[job]]\nprofile = "{SMALL}"\n{rule}\n' for rule in ("isolated = true", 'user = "b"')
    )
    (jobs := tmp_path / "apart.toml").write_text(alone)
    pairs = (
        ("--jobs", jobs),
        (f"{SMALL}:2", "--memory-margin", 0.96),
        (f"{RESNET}:2", "--protect", RESNET, "--max-slowdown", 0.01),
    )
    for words in pairs:
        over_time = advisor.document("simulate", *words)["usage"]
        assert max(len(each["jobs"]) for each in over_time) == 1, words
    mig = ("simulate", f"{SMALL}:2", "--sharing", "mig=3g.71gb,4g.71gb")
    assert (advisor(*mig).code, advisor(*mig, "--no-root").code) == (0, 3)


def test_a_simulation_has_the_jobs_that_end_after_their_deadlines(advisor, tmp_path):
    entry = f'[[job]]\nprofile = "{RESNET}"\ndeadline_s = '
    (jobs := tmp_path / "due.toml").write_text(f"{entry}510\n{entry}600\n")
    document = advisor.document("simulate", "--jobs", jobs, "--sharing", "serial")
    assert document["jobs"][1]["end_s"]["p50"] > 600
    assert document["late"] == [2]
    assert "late: job 2" in advisor("simulate", "--jobs", jobs, "--sharing", "serial").out


@pytest.mark.parametrize("command", ["recommend", "simulate"])
def test_on_several_gpus_a_data_parallel_job_is_one_process(advisor, tmp_path, command):
    entry = f'[[job]]\nprofile = "{RESNET}"\ndata_parallel = true\n'
    (jobs := tmp_path / "ddp.toml").write_text(entry * 2)
    answer = advisor(command, "--jobs", jobs, "--gpus", "2")
    assert (answer.code, RESNET in answer.err) == (0, True)


@pytest.mark.parametrize("gpus", [1, 2])
def test_a_plan_from_another_gpu_says_so_and_without_root_it_has_no_mig(advisor, gpus):
    words = ("export", RESNET, BERT, "--gpus", gpus, "--format", "slurm", "--no-root")
    answer = advisor(*words, "--gpu", "h100-sxm-80gb")
    assert (answer.code, "-mig 1" in answer.out) == (0, False)
    assert GPU in answer.err


@pytest.mark.parametrize(
    "words",
    [
        ("recommend", "JOB"),
        ("recommend", "JOB:2", "--gpus", 2),
        ("copies", "JOB"),
        ("predict", "JOB", BERT, "--sharing", "naive"),
        ("simulate", "JOB:2"),
    ],
)
def test_a_profile_of_another_gpu_is_translated_and_the_answer_says_so(advisor, tmp_path, words):
    (path := tmp_path / f"{RESNET}.json").write_text(record_line(PROFILES[RESNET]))
    job = path if words[0] in ("predict", "simulate") else RESNET
    asked = [str(word).replace("JOB", str(job)) for word in words]
    found = advisor.document(*asked, "--gpu", "l40s-48gb")
    assert (found["estimated_profiles"][RESNET], found["estimated_from"]) == (GPU, GPU)


def test_runs_on_another_gpu_are_compared_with_translated_profiles(advisor, tmp_path):
    run = synthetic.run([PROFILES[RESNET]] * 2, "naive", 2.0)
    append_record(tmp_path / "runs.jsonl", replace(run, gpu="l40s-48gb"))
    words = ("validate", "--runs", tmp_path / "runs.jsonl", "--out", tmp_path)
    found = json.loads(advisor(*words, "--gpu", "l40s-48gb", "--json").out)
    assert found["estimated"] == {RESNET: GPU}


@pytest.mark.parametrize("key", ["a30-24gb", "h200-141gb", "rtx-pro-6000-96gb"])
def test_the_layouts_of_gpus_with_few_and_many_slices_fit_in_80_columns(advisor, key):
    lines = advisor("layouts", "--gpu", key, "--all").out.splitlines()
    assert max(map(len, lines)) <= 80
    full = len(advisor.document("layouts", "--gpu", key)["maximal"])
    assert sum("@" in line and line[0].isdigit() for line in lines) == full


def test_a_gpu_is_named_as_people_do_or_by_the_environment_or_is_the_one_in_this_machine(
    advisor, monkeypatch
):
    word = "NVIDIA H200"
    words = ("predict", f"{BERT}:2", "--sharing", "time-slicing")
    found = advisor.document(*words, "--gpu", word)
    assert (found["gpu"], found["sharing"]) == (GPU, "naive")
    monkeypatch.setenv("ADVISOR_GPU", word)
    assert advisor.document(*words) == found
    monkeypatch.delenv("ADVISOR_GPU")
    assert advisor.document(*words)["gpu"] == DEFAULT_GPU
    monkeypatch.setattr("advisor.hardware.live_gpu.first_gpu", lambda: "a30-24gb")
    assert "a30-24gb" in advisor(*words).err


@pytest.fixture
def on_a100(own_profiles):
    """The file of a job that was profiled on another GPU than the default alone."""
    (there := own_profiles.parent / "a100-40gb").mkdir()
    file = there / "mine.json"
    file.write_text(minimal_text(replace(BARE, workload="mine", gpu=there.name)))
    return file


@pytest.mark.parametrize(
    "words",
    [
        "predict FILE",
        "predict mine:2@3",
        "predict FILE:2@3",
        "recommend --jobs J",
        "simulate --trace-in T",
    ],
)
def test_jobs_mean_the_gpu_on_which_they_were_profiled_however_they_are_named(
    advisor, on_a100, tmp_path, words
):
    (jobs := tmp_path / "jobs.toml").write_text('[[job]]\nprofile = "mine"\ncopies = 2\n')
    (trace := tmp_path / "trace.csv").write_text("arrival_s,job\n0,mine\n5,mine\n")
    for name, file in {"FILE": on_a100, "J": jobs, "T": trace}.items():
        words = words.replace(name, str(file))
    answer = advisor(*words.split(), "--json")
    assert json.loads(answer.out)["gpu"] == "a100-40gb"
    assert "a100-40gb" in answer.err


def test_mlflow_gets_what_is_printed(advisor, monkeypatch):
    store = mlflow_stand_in.install(monkeypatch)
    words = ("export", BERT, "--mlflow", "sqlite:///x.db")
    assert advisor(*words).code == 0
    printed = advisor.document("recommend", BERT)["plans"]
    assert [each["why"] for each in store.runs[0].files["plans.json"]["plans"]] == [
        each["why"] for each in printed
    ]


@pytest.mark.parametrize("form", ["svg", pytest.param("png", marks=pytest.mark.exhaustive)])
def test_the_ways_to_share_are_drawn_to_a_file_without_a_browser(advisor, tmp_path, form):
    pytest.importorskip("vl_convert")
    file = tmp_path / f"ways.{form}"
    said = advisor("export", RESNET, BERT, "--plot", file)
    assert (said.code, said.out) == (0, advisor("export", RESNET, BERT).out)
    picture = file.read_bytes()
    assert picture.startswith(b"<svg" if form == "svg" else b"\x89PNG")
    if form == "svg":
        words = ("one after another", "time-slicing", "MPS", "MIG", GPU)
        assert all(word in picture.decode() for word in words)


def test_a_picture_is_refused_before_the_search_if_it_cannot_be_drawn(advisor, tmp_path):
    for command in ("export", "simulate"):
        for name in ("ways.pdf", "no/ways.svg", "ways"):
            assert advisor(command, RESNET, "--plot", tmp_path / name).code == 2
    assert advisor("export", RESNET, "--plot", tmp_path / "w.svg", "--sharing", "mps").code == 2
    assert list(tmp_path.iterdir()) == []


def test_what_measures_or_runs_prints_one_json_document_too(advisor, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    numbers = ("--batch-size", 8, "--step-s", 0.1, "--memory-mib", 900, "--out", tmp_path)
    for words, schema in (
        (("profile", "--from-numbers", "--name", "mine", "--gpu", GPU, *numbers), "measured"),
        (("run", "--list"), "runs"),
    ):
        assert problems(schema, advisor.document(*words)) == []
    plan = tmp_path / "campaign.toml"
    assert advisor("init", "campaign", "--out", plan).code == 0
    line = [sys.executable, "-m", "advisor", "campaign", plan, "--dry-run", "--json"]
    done = subprocess.run([*line, "--out", tmp_path], check=True, capture_output=True)
    assert json.loads(done.stdout).keys() >= {"schema", "runs_to_do", "estimated_s"}


def job_file(folder, *entries):
    file = folder / "jobs.toml"
    file.write_text("\n".join(f"[[job]]\n{entry}" for entry in entries), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("gpus", "objective"), [((), "deadlines"), (("--gpus", 2), "deadlines"), ((), "energy")]
)
def test_a_deadline_that_no_plan_keeps_is_in_the_first_line(advisor, tmp_path, gpus, objective):
    jobs = job_file(
        tmp_path,
        f'profile = "{RESNET}"\ndeadline_s = 2',
        f'profile = "{BERT}"',
        f'profile = "{RESNET}"',
    )
    words = ("recommend", "--jobs", jobs, *gpus, "--objective", objective)
    first, _, _ = " ".join(advisor(*words).out.split()).partition(" Use ")
    alone_s = advisor.document("predict", RESNET, "--sharing", "serial")["makespan_s"]
    late = re.match(
        rf"No plan .*{RESNET} ends ([\d.]+) (s|min) after its deadline of 2.00 s", first
    )
    late_s = float(late[1]) * (60 if late[2] == "min" else 1)
    assert late_s >= 0.9 * (alone_s - 2)
    allowed = job_file(tmp_path, f'profile = "{RESNET}"\ndeadline_s = 90000', f'profile = "{BERT}"')
    kept = advisor("recommend", "--jobs", allowed, *gpus, "--objective", objective)
    assert "deadline" not in kept.out.splitlines()[0]


def test_an_answer_says_why_jobs_of_two_users_have_no_row_under_mps(advisor, tmp_path):
    jobs = job_file(
        tmp_path, f'profile = "{RESNET}"\nuser = "ada"', f'profile = "{BERT}"\nuser = "grace"'
    )
    for gpus, key in (((), GPU), (("--gpus", 2), "v100-32gb")):
        answer = advisor("recommend", "--jobs", jobs, *gpus, "--gpu", key).out
        assert "MPS serves one user at a time" in " ".join(answer.split())
    assert "one user" not in advisor("recommend", RESNET, BERT).out


@pytest.mark.parametrize(
    ("words", "option", "said"),
    [
        (("copies", RESNET), "--power-cap 400", "power cap of 400 W"),
        (("admit", SMALL, "--running", RESNET, "--max-slowdown", 3), "--power-cap 400", "400 W"),
        (("simulate", f"{RESNET}:2"), "--power-cap 400", "power cap of 400 W"),
        (("recommend", *PAIR, "--objective", "energy"), "--pessimistic", "by the upper ends"),
        (
            ("recommend", *PAIR, "--objective", "energy", "--gpus", 2),
            "--pessimistic",
            "by the upper ends",
        ),
        (("copies", RESNET), "--pessimistic", "by the upper ends"),
        (("trials", RESNET), "--pessimistic", "by the upper ends"),
    ],
)
def test_an_answer_has_the_conditions_that_it_was_given_for(advisor, words, option, said):
    plain, other = (" ".join(advisor(*words, *more).out.split()) for more in ([], option.split()))
    assert (said in other, said in plain) == (True, False)
    assert words[0] != "recommend" or "all done in" in plain
    if option == "--power-cap 400":
        assert advisor.document(*words, *option.split())["power_cap_w"] == 400
