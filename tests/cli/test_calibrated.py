"""Advice on a machine that was calibrated, and what is said of it."""

import json
from dataclasses import replace

import pytest

from advisor import predict
from advisor.errors import AdvisorError, InvalidInput
from advisor.workload.staleness import Present
from advisor.workload.writing import append_run, calibration_text, profile_text, write_whole
from tests import synthetic
from tests.cli.conftest import GPU, PROFILES
from tests.measure.calibrate.recorded import calibration

PAIR = ["resnet50-imagenet64-bs128", "bert-base-finetune-bs16"]


@pytest.fixture
def own(tmp_path):
    """The folder of data that belongs to the user of the command line."""
    return tmp_path / "nobody" / "advisor"


@pytest.fixture
def calibrated(own):
    path = own / "calibrations" / f"{GPU}.json"
    write_whole(path, calibration_text(calibration(1.5e-3)))
    for name, check_s in zip(PAIR, (None, 1e-3), strict=True):
        job = replace(PROFILES[name], host_check_s=check_s)
        write_whole(own / "profiles" / GPU / f"{name}.json", profile_text(job))
    return path


def told(advisor, *words):
    said = advisor(*words, "--json")
    assert said.code == 0, said.err
    return json.loads(said.out)


SERIAL = ("--sharing", "serial")
NOT_CHECKED = "Host not checked: ranges allow for slower and faster ones (`advisor calibrate`)."


@pytest.fixture
def at_hand(monkeypatch):
    """Makes a machine with a GPU of this one; returns what its host check is to answer or raise."""
    answer = [host_now(1.5e-3)]
    checks = []

    def check(gpu):
        checks.append(gpu)
        if isinstance(answer[0], Exception):
            raise answer[0]
        return answer[0]

    monkeypatch.setattr(
        "advisor.measure.process.this_machine.present_machine",
        lambda _gpu: Present(host_cpu=synthetic.PROVENANCE.host_cpu),
    )
    monkeypatch.setattr("advisor.measure.host_now.host_now", check)
    return answer, checks


def host_now(check_s):
    """A host checked just now, and nothing else of the machine."""
    return replace(calibration(check_s), contexts=None, switching=(), idle_power_w=None)


def said_by(advisor, *words):
    said = advisor(*words)
    assert said.code == 0, said.err
    return " ".join(said.out.split())


COMMANDS = pytest.mark.parametrize(
    "words",
    [
        ("predict", *PAIR),
        ("recommend", *PAIR),
        ("simulate", *PAIR),
        ("explain", "naive", "mps", *PAIR),
    ],
    ids=lambda words: words[0],
)


@COMMANDS
def test_without_a_gpu_nothing_is_checked_and_that_is_said(advisor, words, monkeypatch):
    monkeypatch.setattr("advisor.measure.host_now.host_now", None)  # calling it would fail
    assert NOT_CHECKED in said_by(advisor, *words)
    document = told(advisor, *words)
    assert (document["calibrated"], document["stale"]) == (None, [])
    assert document["host"].endswith(NOT_CHECKED)


@COMMANDS
def test_where_the_gpu_is_and_no_calibration_the_host_is_checked_first(advisor, words, at_hand):
    _, checks = at_hand
    document = told(advisor, *words)
    assert checks == [GPU]
    slowdown = pytest.approx(1.5**0.73)
    assert document["calibrated"] == {"file": None, "host_slowdown": slowdown}
    assert "Host checked just now: host work takes 1.34 times as long here" in document["host"]
    assert document["host"] in said_by(advisor, *words)


def test_a_host_checked_just_now_is_predicted_for_as_a_calibrated_one(advisor, at_hand, own):
    checked = told(advisor, "predict", PAIR[1], *SERIAL)
    write_whole(own / "here.json", calibration_text(at_hand[0][0]))
    named = told(advisor, "predict", PAIR[1], *SERIAL, "--calibration", own / "here.json")
    assert checked["jobs"] == named["jobs"]
    unchecked = told(advisor, "predict", PAIR[1], *SERIAL, "--calibration", "none")
    assert checked["jobs"][0]["step_s"]["p50"] > 1.2 * unchecked["jobs"][0]["step_s"]["p50"]


def test_no_check_is_made_where_none_is_wanted_or_this_host_was_calibrated(advisor, at_hand, own):
    told(advisor, "predict", *PAIR, "--calibration", "none")
    write_whole(own / "calibrations" / f"{GPU}.json", calibration_text(calibration()))
    told(advisor, "predict", *PAIR)
    assert at_hand[1] == []


def test_a_calibration_of_another_host_gives_way_to_a_check_of_this_one(advisor, at_hand, own):
    elsewhere = replace(synthetic.PROVENANCE, host_cpu="another")
    away = calibration_text(calibration(3e-3, provenance=elsewhere))
    write_whole(own / "calibrations" / f"{GPU}.json", away)
    assert told(advisor, "predict", *PAIR)["calibrated"]["file"] is None
    assert at_hand[1] == [GPU]


@pytest.mark.parametrize("failure", [AdvisorError("no core is free"), OSError("no space left")])
def test_a_check_that_fails_stops_nothing_and_is_said(advisor, at_hand, failure):
    at_hand[0][0] = failure
    document = told(advisor, "predict", *PAIR)
    assert document["calibrated"] is None
    assert document["host"].startswith(f"Host not checked ({failure})")
    plain = told(advisor, "predict", *PAIR, "--calibration", "none")
    assert plain["jobs"] == document["jobs"]


@pytest.mark.parametrize("command", ["predict", "recommend"])
def test_the_users_own_calibration_is_used_and_said(advisor, calibrated, command):
    document = told(advisor, command, *PAIR)
    slowdown = pytest.approx(1.5**0.73)
    assert document["calibrated"] == {"file": str(calibrated), "host_slowdown": slowdown}
    said = " ".join(advisor(command, *PAIR).out.split())
    assert f"Calibrated ({GPU}.json): host work takes 1.34 times as long here" in said


def test_a_slower_host_makes_a_host_bound_job_slower(advisor, calibrated):
    here = told(advisor, "predict", PAIR[1], "--sharing", "serial")
    there = told(advisor, "predict", PAIR[1], "--sharing", "serial", "--calibration", "none")
    assert there["calibrated"] is None
    assert here["jobs"][0]["step_s"]["p50"] > 1.2 * there["jobs"][0]["step_s"]["p50"]
    named = told(advisor, "predict", PAIR[1], "--sharing", "serial", "--calibration", calibrated)
    assert named == here


@pytest.mark.usefixtures("calibrated")
def test_profiles_that_do_not_know_their_host_are_not_moved_and_that_is_said(advisor):
    document = told(advisor, "predict", PAIR[0])
    assert document["calibrated"]["host_slowdown"] is None
    said = " ".join(advisor("predict", PAIR[0]).out.split())
    assert "do not say how fast their hosts were" in said


def test_a_malformed_calibration_or_one_of_another_gpu_ends_with_2(advisor, calibrated, tmp_path):
    calibrated.write_text("{}")
    assert advisor("predict", *PAIR).code == 2
    other = tmp_path / "other.json"
    other.write_text(calibration_text(replace(calibration(), gpu="a100-80gb")))
    said = advisor("predict", *PAIR, "--calibration", other)
    assert said.code == 2
    assert "measured on a100-80gb" in said.err


def test_profiles_made_with_another_driver_are_said_to_be_stale(advisor, calibrated):
    newer = replace(calibration(), provenance=replace(synthetic.PROVENANCE, driver="590.1"))
    calibrated.write_text(calibration_text(newer))
    said = advisor("predict", *PAIR, "--json")
    assert said.code == 0
    assert said.err.startswith("warning: 2 of 2 jobs")
    assert said.err.count("\n") == 1
    (stale,) = json.loads(said.out)["stale"]
    assert (stale["what"], stale["jobs"], stale["present"]) == ("driver", PAIR, "590")


@pytest.mark.parametrize("command", ["predict", "recommend"])
def test_the_driver_at_hand_comes_before_that_of_the_calibration(
    advisor, calibrated, command, monkeypatch
):
    newer = replace(calibration(), provenance=replace(synthetic.PROVENANCE, driver="590.1"))
    calibrated.write_text(calibration_text(newer))
    monkeypatch.setattr(
        "advisor.measure.process.this_machine.present_machine",
        lambda _gpu: Present(driver="600.2"),
    )
    said = advisor(command, *PAIR)
    assert said.code == 0
    assert "driver 580, and here it is 600" in said.err


def test_a_profile_of_another_gpu_is_refused_by_the_library_too(measured):
    with pytest.raises(InvalidInput, match="profiles of a100-80gb say nothing of h200-141gb"):
        predict([replace(PROFILES[PAIR[0]], gpu="a100-80gb")], "serial", models=measured / "models")


@pytest.mark.usefixtures("few_lessons")
def test_runs_of_ones_own_teach_the_next_fit_which_says_so(advisor, own):
    pair = [PROFILES[name] for name in PAIR]
    older = replace(synthetic.PROVENANCE, driver="570.1")
    for number in range(3):
        run = replace(synthetic.run(pair, "mps", 1.6, f"mps-{number}"), provenance=older)
        append_run(own / "profiles" / GPU / "runs" / "validation.jsonl", run)
    said = advisor("fit")
    assert "fitted to 48 runs" in said.out
    assert (
        "Used on h200-141gb: 45 of 45 runs that came with the profiles, 3 of 3 of your own."
        in said.out
    )
    assert "most were measured with driver 580 and torch 2.11, 3 with driver 570" in said.out


def test_a_run_of_another_gpu_among_ones_own_stops_the_fit(advisor, own):
    run = replace(synthetic.run([PROFILES[name] for name in PAIR]), gpu="a100-80gb")
    append_run(own / "profiles" / GPU / "runs" / "mine.jsonl", run)
    said = advisor("fit")
    assert said.code == 2
    assert "a100-80gb cannot be used to fit h200-141gb" in said.err


def test_a_profile_of_another_gpu_among_ones_own_stops_the_fit(advisor, own):
    stranger = replace(PROFILES[PAIR[0]], gpu="a100-80gb")
    write_whole(own / "profiles" / GPU / f"{stranger.name}.json", profile_text(stranger))
    assert advisor("fit").code == 2
    assert "measured on a100-80gb" in advisor("predict", *PAIR).err
