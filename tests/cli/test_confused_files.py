"""Files as people write and confuse them: read if plain, else answered with what to write."""

import json

import pytest

from advisor.workload.records import kind_of_file
from advisor.workload.writing import calibration_text, profile_text
from tests import synthetic
from tests.cli.conftest import BERT, GPU, RESNET
from tests.measure.calibrate.recorded import calibration

FILES = [
    ("jobs.toml", f'[[job]]\nprofile = "{BERT}"\ndeadline_s = "2h"\ncommand = "./t 1"', 0, BERT),
    ("jobs.toml", f"[[job]]\nprofile = {BERT}", 2, "quotes"),
    ("jobs.toml", f'[[job]]\nprofile = "{BERT}"\ndeadline_s = "soon"', 2, "2h"),
    ("jobs.toml", f'[[job]]\nname = "{BERT}"', 2, "profile"),
    ("jobs.toml", f'[[job]]\nprofile = "{BERT}:2"', 2, f"{BERT}, with copies"),
    ("jobs.toml", f'[[job]]\nprofile = "{BERT}"\ncopies = "2"', 2, "whole number"),
    ("jobs.toml", f'[[job]]\nprofile = "{BERT}"\nisolated = "yes"', 2, "true or false"),
    ("jobs.toml", f'job = ["{BERT}"]', 2, "table"),
    ("jobs.toml", f"arrival_s,job\n0,{BERT}\n", 2, "--trace-in jobs.toml"),
    ("trace.csv", f"Arrival_s;Job;Epochs\n0;{BERT};1,5\n1 min;{RESNET};\n", 0, RESNET),
    ("trace.csv", "JobID|JobName|Submit\n1|a|2026-01-01T00:00:00\n", 2, "arrival_s,job"),
    ("trace.csv", f"0,{BERT}\n", 2, "arrival_s,job"),
    ("trace.csv", f"time,job\n0,{BERT}\n", 2, "arrival_s"),
    ("trace.csv", f"arrival_s,job\n2026-01-01 00:00,{BERT}\n", 2, "first job"),
    ("trace.csv", f'[[job]]\nprofile = "{BERT}"\n', 2, "--jobs trace.csv"),
]


@pytest.mark.parametrize(("name", "text", "code", "named"), FILES)
def test_sloppy_files_are_understood_or_answered_with_what_to_write(
    advisor, tmp_path, monkeypatch, name, text, code, named
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(text)
    words = ("recommend", "--jobs") if name == "jobs.toml" else ("simulate", "--trace-in")
    ended = advisor(*words, name, "--json")
    assert ended.code == code, ended.err
    assert named in (ended.err if code else ended.out)


@pytest.fixture
def files(advisor, tmp_path, monkeypatch):
    """A file of each kind, by the word with which it is used."""
    monkeypatch.chdir(tmp_path)
    jobs = (BERT, RESNET, "--gpu", GPU)
    advisor("export", *jobs, "--format", "json", "--sharing", "mps", "--out", "plan.json")
    texts = {
        "advisor run plan.json": None,
        "--jobs jobs.toml": f'[[job]]\nprofile = "{BERT}"\n',
        "advisor recommend solo.json": profile_text(synthetic.profile()),
        "--rank": advisor("recommend", *jobs, "--json").out,
        "advisor profiles": advisor("predict", *jobs, "--json").out,
        "--calibration": calibration_text(calibration()),
        "--trace-in table.csv": "a,b,c\n1,2,3\n",
    }
    names = (
        "plan.json",
        "jobs.toml",
        "solo.json",
        "advice.json",
        "forecast.json",
        "host.json",
        "table.csv",
    )
    for name, text in zip(names, texts.values(), strict=True):
        if text is not None:
            (tmp_path / name).write_text(text)
    return dict(zip(names, texts, strict=True))


PLACES = {
    ("recommend",): "solo.json",
    ("recommend", "--jobs"): "jobs.toml",
    ("simulate", "--trace-in"): "table.csv",
    ("simulate", "--plan"): "plan.json",
    ("recommend", BERT, "--calibration"): "host.json",
    ("run",): "plan.json",
    ("validate", "--runs"): None,
}


def test_a_file_in_the_place_of_another_is_answered_with_its_own_place(advisor, files, tmp_path):
    for place, right in PLACES.items():
        for name, use in files.items():
            if name in (right, "advice.json" if place == ("run",) else None):
                continue
            ended = advisor(*place, name)
            assert (ended.code, ended.out) == (2, ""), (place, name, ended)
            own = "--rank" if name == "advice.json" else use
            assert own in ended.err, (place, name, ended.err)
    assert json.loads((tmp_path / "plan.json").read_text())


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff\x00", b"hello", b"[" * 10_000])
def test_what_is_no_file_of_ours_has_no_kind(content):
    assert kind_of_file(content) is None


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
