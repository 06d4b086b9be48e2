"""Every command takes a job of which only numbers are known."""

import json
import re
from dataclasses import replace

import pytest

from advisor import Advisor
from advisor.hardware.catalogue import gpu
from advisor.measure.solo import from_numbers
from advisor.prediction.estimated_profile import found_profile
from advisor.report.answer_text import metric_cards
from advisor.workload.minimal_profile import MinimalProfile, minimal_text
from advisor.workload.writing import profile_text
from tests.cli.conftest import GPU

RESNET = "resnet50-imagenet64-bs128"
KNOWN = MinimalProfile(
    schema=1, workload="my-job", gpu=GPU, batch_size=64, step_s=0.12, memory_mib=5300,
    power_w=290, gpu_utilization=0.83, memory_utilization=0.41, examples_per_epoch=64_000,
)  # fmt: skip
UNKNOWN = MinimalProfile(
    schema=1, workload="my-job", gpu=GPU, batch_size=64, step_s=0.12, memory_mib=5300,
    power_w=None, gpu_utilization=None, memory_utilization=None, examples_per_epoch=64_000,
)  # fmt: skip
COMMANDS = {
    "recommend": ["recommend", "JOB", "JOB", RESNET],
    "commands": ["recommend", "JOB", RESNET, "--commands", 1],
    "admit": ["recommend", "JOB", "--running", RESNET, "--hurt", 3],
    "copies": ["recommend", "JOB", "--gpus", 2],
    "predict serial": ["predict", "JOB", RESNET, "--sharing", "serial"],
    "predict naive": ["predict", "JOB", RESNET, "--sharing", "naive"],
    "predict MPS": ["predict", "JOB", RESNET, "--sharing", "mps"],
    "predict limits": ["predict", "JOB", RESNET, "--sharing", "mps=43,57"],
    "predict MIG": ["predict", "JOB", RESNET, "--sharing", "mig=3g.71gb,4g.71gb"],
    "predict on one instance": ["predict", "JOB", RESNET, "--sharing", "mig=4g.71gb[1,2]/mps"],
    "predict phases": ["predict", "JOB", RESNET, "--sharing", "naive[1];mps[2]"],
    "simulate": ["simulate", "JOB", RESNET, "--sharing", "mps"],
    "simulate limits": ["simulate", "JOB", RESNET, "--sharing", "mps=43,57"],
    "explain": ["explain", "naive", "mps=43,57", "JOB", RESNET],
    "export": ["export", "JOB", RESNET, "--sharing", "mps", "--format", "slurm"],
}


@pytest.fixture(params=[KNOWN, UNKNOWN], ids=["utilisation known", "utilisation not known"])
def job(request, tmp_path):
    path = tmp_path / "my-job.json"
    path.write_text(minimal_text(request.param))
    return path


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_every_command_answers_for_it(words, job, advisor):
    said = advisor(*(job if word == "JOB" else word for word in words))
    assert (said.code, said.err) == (0, "")


def test_validate_says_that_nothing_here_can_start_it(job, advisor):
    for words in ((), ("--dry-run",)):
        said = advisor("validate", job, RESNET, *words)
        assert (said.code, said.out) == (2, "")
        assert "my-job: its profile is bare numbers, which do not say how to start it" in said.err


@pytest.fixture
def own(tmp_path):
    """It lies in the user's own folder of profiles."""
    folder = tmp_path / "nobody" / "advisor" / "profiles" / GPU
    folder.mkdir(parents=True)
    (folder / "my-job.json").write_text(minimal_text(KNOWN))


@pytest.mark.parametrize("gpus", [1, 2])
def test_an_export_says_that_run_cannot_start_it_and_promises_nothing(job, advisor, tmp_path, gpus):
    words = ("--gpus", gpus, "--format", "json", "--out", tmp_path / "plan.json")
    said = advisor("export", f"{job}", f"{job}", *words)
    assert said.code == 0
    why = "`advisor run` will refuse this plan: my-job: its profile is bare numbers"
    assert said.err.count(why) == 1
    assert "written" in said.err
    assert "shows what it would do" not in said.err
    printed = advisor("export", job, RESNET, "--format", "json")
    assert why in printed.err


@pytest.mark.usefixtures("own")
def test_it_is_listed_and_named_like_any_other(advisor):
    listed = json.loads(advisor("profiles", "--json").out)["profiles"]
    (mine,) = (each for each in listed if each["name"] == "my-job")
    assert mine["memory"] == {"allocated_mib": None, "reserved_mib": None, "device_mib": 5300}
    assert mine["provenance"] is None
    assert "my-job" in advisor("profiles").out
    said = advisor("predict", "my-job", RESNET, "--sharing", "mps", "--json")
    assert json.loads(said.out)["wide_because"].startswith("ranges are wide, for my-job has")


@pytest.mark.usefixtures("own", "few_lessons")
def test_fitting_learns_from_the_others_and_passes_it_by(advisor, tmp_path):
    said = advisor("fit", "--out", tmp_path / "models")
    assert (said.code, "fitted to 45 runs of 3 profiles" in said.out) == (0, True)


def test_what_is_not_known_of_it_is_not_called_unmeasured_or_estimated_by_kernels(
    advisor, tmp_path
):
    path = tmp_path / "my-job.json"
    path.write_text(minimal_text(replace(KNOWN, examples_per_epoch=None)))
    said = advisor("predict", path, path, "--sharing", "mps").out
    assert "until all are done  not known: the length of an epoch is not" in said
    there = advisor("predict", path, RESNET, "--gpu", "a30-24gb").out
    assert "my-job, resnet50-imagenet64-bs128, not all kernel by kernel" in " ".join(there.split())


@pytest.mark.parametrize("text", ["5300MB", "5.3 GiB", "83%", ""])
def test_a_number_with_a_unit_is_refused_with_how_to_write_it(capsys, text):
    words = ("--name", "mine", "--gpu", GPU, "--batch-size", "4", "--step-s", "0.1")
    with pytest.raises(SystemExit, match="2"):
        from_numbers.run([*words, "--memory-mib", text])
    said = " ".join(capsys.readouterr().err.split())
    assert "is no number: write it alone, in the unit that the option names" in said


def test_what_would_give_the_length_of_an_epoch_is_named(advisor, tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(minimal_text(replace(KNOWN, examples_per_epoch=None)))
    said = " ".join(advisor("recommend", path, path).out.split())
    assert "Ranked by throughput: makespan needs every job's length: examples_per_epoch." in said


def test_why_mig_has_narrower_ranges_than_mps_is_said(advisor, tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(minimal_text(replace(KNOWN, gpu="a100-40gb")))
    words = ("predict", path, path, "--gpu", "a100-40gb", "--json", "--sharing")
    mig, mps = (json.loads(advisor(*words, way).out) for way in ("mig=3g.20gb,3g.20gb", "mps"))
    mig_step, mps_step = (each["jobs"][0]["step_s"] for each in (mig, mps))
    assert mig_step["p95"] / mig_step["p05"] < mps_step["p95"] / mps_step["p05"]
    assert mig["wide_because"].startswith("ranges are narrower than under MPS, for nobody else is")
    assert mps["wide_because"].startswith("ranges are wide, for my-job has no kernel trace")


def test_what_a_profile_lacks_takes_no_room_from_the_best_plan_with_mig(advisor, tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(minimal_text(replace(KNOWN, gpu="a100-40gb")))
    words = ("recommend", path, path, "--gpu", "a100-40gb")
    screen, full = (" ".join(advisor(*words, *more).out.split()) for more in ((), ("--details",)))
    assert "my-job has no kernel trace, no counters of SMs, no MPS probe" in screen
    assert "mig=" in screen
    assert "my-job has no kernel trace (how many SMs it leaves to others)" in full


def test_bare_numbers_are_translated_with_a_range(advisor, tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(minimal_text(KNOWN))
    words = ("--gpu", "l40s-48gb", "--sharing", "serial", "--json")
    step_s = json.loads(advisor("predict", path, *words).out)["jobs"][0]["step_s"]
    assert step_s["p05"] < 0.9 * step_s["p50"] < 0.8 * step_s["p95"]


def test_a_mix_that_cannot_fit_is_said_not_to_before_anything_else(advisor, tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(minimal_text(replace(KNOWN, memory_mib=90_000)))
    lines = advisor("predict", path, path, "--sharing", "mps").out.splitlines()
    assert lines[0].startswith("DOES NOT FIT in memory: 17")
    assert "as if there were enough" in " ".join(map(str.strip, lines[:3]))
    assert "DOES NOT FIT" not in advisor("predict", path, path, "--sharing", "serial").out


def test_a_job_that_holds_more_than_the_gpu_has_fits_nowhere(advisor, tmp_path):
    path = tmp_path / "my-job.json"
    path.write_text(minimal_text(replace(KNOWN, memory_mib=200_000)))
    said = advisor("recommend", path)
    assert (said.code, said.out) == (3, "")
    assert "my-job" in said.err


def test_a_job_without_its_utilisation_has_the_wider_range(advisor, tmp_path):
    path = tmp_path / "my-job.json"
    widths = []
    for minimal in (KNOWN, UNKNOWN):
        path.write_text(minimal_text(minimal))
        said = advisor("predict", path, RESNET, "--sharing", "mps", "--json").out
        step_s = json.loads(said)["jobs"][0]["step_s"]
        widths.append(step_s["p95"] / step_s["p05"])
    assert widths[0] < widths[1]


def test_where_sharing_may_lose_the_first_line_promises_no_gain_and_says_what_to_measure(
    advisor, tmp_path
):
    firsts = []
    for minimal in (UNKNOWN, KNOWN):
        path = tmp_path / "my-job.json"
        path.write_text(minimal_text(minimal))
        said = " ".join(advisor("recommend", f"{path}:2", "--objective", "throughput").out.split())
        firsts.append(said.partition("How sure")[0])
    assert re.search(r": 0\.\d+x to \d\.\d+x the throughput of one after another", firsts[0])
    assert "cannot be told without the utilisation of my-job" in firsts[0]
    assert "with --gpu-utilization" in firsts[0]
    assert "cannot be told" not in firsts[1]


@pytest.mark.usefixtures("advisor")
def test_where_sharing_may_lose_the_card_shows_the_range_of_the_gain():
    advised = Advisor(GPU).recommend([UNKNOWN.whole()] * 2, objective="throughput")
    (shown,) = (value for title, value, _ in metric_cards(advised) if title == "Gain over serial")
    assert re.fullmatch(r"0\.\d+x to \d\.\d+x", shown)


@pytest.mark.usefixtures("advisor")
def test_from_python_it_is_a_profile_like_any_other():
    answer = Advisor(GPU).predict([KNOWN.whole(), RESNET], "mps").prediction
    assert [job.job for job in answer.jobs] == ["my-job", RESNET]
    assert answer.jobs[0].memory_mib == KNOWN.memory_mib


@pytest.mark.parametrize("words", [["batch", "mine"], ["trials", "mine", "--steps", 100]])
def test_what_was_measured_on_one_gpu_only_is_asked_about_there(words, advisor, tmp_path):
    path = tmp_path / "nobody" / "advisor" / "profiles" / "a100-40gb" / "mine.json"
    path.parent.mkdir(parents=True)
    path.write_text(minimal_text(replace(KNOWN, workload="mine", gpu="a100-40gb")))
    said = advisor(*words)
    assert said.code == 0
    assert "no --gpu given: this is about a100-40gb, on which the jobs were profiled" in said.err


def test_a_mere_estimate_for_another_gpu_is_not_said_to_be_near_its_own_name(advisor, tmp_path):
    found = replace(KNOWN, workload="mine", gpu="l4-24gb", power_w=60)
    (tmp_path / "mine.json").write_text(minimal_text(found))
    estimate = found_profile(str(tmp_path / "mine.json"), gpu("a40-48gb"))
    folder = tmp_path / "nobody" / "advisor" / "profiles" / "a40-48gb"
    folder.mkdir(parents=True)
    (folder / "mine.json").write_text(profile_text(estimate))
    said = advisor("batch", "mine", "--gpu", "a100-40gb")
    assert said.code == 2
    assert "mine: nobody measured it, and from an estimate for another GPU nothing" in said.err
    assert "Near" not in said.err


@pytest.mark.parametrize("key", [GPU, "l40s-48gb"])
def test_more_power_than_the_card_draws_is_refused_with_what_it_should_be(key, advisor, tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(minimal_text(replace(KNOWN, power_w=1900)))
    said = advisor("recommend", path, "--gpu", key)
    assert (said.code, said.out) == (2, "")
    assert "my-job: power_w is 1900, and an h200-141gb draws at most 700 W" in said.err
    path.write_text(minimal_text(replace(KNOWN, power_w=750)))
    assert advisor("recommend", path, "--gpu", key).code == 0, "sensors and boards differ a little"


def test_a_file_that_says_a100_is_told_both_keys_that_may_be_meant(advisor, tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(minimal_text(replace(KNOWN, gpu="A100")))
    for words in ((), ("--gpu", "a100-40gb")):
        said = advisor("recommend", path, *words)
        assert (said.code, said.out) == (2, "")
        assert "its gpu, A100, is no key" in said.err
        assert "may be a100-40gb or a100-80gb" in said.err
    path.write_text(minimal_text(replace(KNOWN, gpu="H200")))
    assert "Write h200-141gb there" in advisor("recommend", path).err


def test_a_job_tried_out_on_the_cpu_is_told_so_by_its_name_too(advisor, tmp_path):
    folder = tmp_path / "nobody" / "advisor" / "profiles" / "cpu"
    folder.mkdir(parents=True)
    (folder / "train.json").write_text(minimal_text(replace(KNOWN, workload="train", gpu="cpu")))
    for job in ("train:3", "train", "train.py", folder / "train.json"):
        said = advisor("recommend", job, "--gpu", "a100-40gb")
        assert (said.code, said.out) == (2, "")
        assert "train.json: measured on a CPU, which says nothing of a GPU" in said.err
