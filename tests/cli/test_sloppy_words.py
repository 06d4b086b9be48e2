"""Words and files as people write them: accepted if their meaning is plain, else what to write."""

import json

import pytest

from advisor.workload.records import kind_of_file
from advisor.workload.writing import calibration_text, profile_text
from tests import synthetic
from tests.cli.conftest import BERT, GPU, RESNET, SMALL
from tests.measure.calibrate.recorded import calibration

PAIR = f"{BERT} {RESNET}"
SHARED = f"predict {PAIR} --gpu {GPU} --sharing"
# A command line, its exit code, and the name or value that the answer contains.
WORDS = [
    # Ways to share.
    (f"{SHARED}=mig", 2, "mig=3g.71gb,3g.71gb"),
    (f"{SHARED}=mig=3g,3g", 0, "mig=3g.71gb@0,3g.71gb@4"),
    (f"{SHARED}=mig=1g,1g", 2, "1g.18gb or 1g.35gb"),
    (f"{SHARED}=mps_=_50,_50", 0, "mps=50,50"),
    (f"{SHARED}=MPS:50%,50%", 0, "mps=50,50"),
    (f"{SHARED}=mps=50/50", 2, "mps=50,50"),
    (f"{SHARED}=mps=[50,50]", 2, "mps=50,50"),
    (f"{SHARED}=mps=0.5,0.5", 2, "50"),
    (f"{SHARED}=MIG_3g.71gb,_4g", 0, "mig=3g.71gb@4,4g.71gb@0"),
    (f"{SHARED}=exclusive", 2, "serial"),
    (f"{SHARED}=mps-limits", 2, "mps=50,50"),
    (f"{SHARED}=mig=2x3g.71gb", 2, "mig=3g.71gb,3g.71gb"),
    (f"{SHARED}=mig=3g.40gb,3g.40gb", 2, "3g.71gb"),
    (f"predict {PAIR} --gpu a30-24gb --sharing=mig", 2, "mig=2g.12gb,2g.12gb"),
    (f"predict {PAIR} --gpu l4-24gb --sharing=mig", 2, "serial, naive"),
    (f"predict {BERT}:3 --gpu {GPU} --sharing=mps=43", 2, "mps=43,43,43"),
    (f"predict {BERT}:2 --gpu {GPU} --sharing=mig=1g.18gb", 2, "mig=1g.18gb,1g.18gb"),
    (f"layouts --gpu {GPU} --with 3g,_4g", 0, "3g.71gb"),
    (f"batch {BERT} --slices 1g", 2, "1g.18gb"),
    # GPUs.
    (f"predict {BERT} --gpu 3090", 0, "rtx-3090-24gb"),
    (f"predict {BERT} --gpu L40s", 0, "l40s-48gb"),
    (f"predict {BERT} --gpu mi300x", 2, GPU),
    (f"predict {BERT} --gpu 0", 2, "advisor gpus"),
    (f"predict {BERT} --gpu 2xh200", 2, "--gpu h200-141gb --gpus 2"),
    (f"predict {BERT} --gpu h100", 2, "h100-sxm-80gb or h100-pcie-80gb"),
    # Jobs.
    (f"predict {BERT} x2", 2, "JOB:2"),
    (f"predict {BERT} x 2", 2, "JOB:2"),
    (f"predict {BERT}x2", 2, f"{BERT}:2"),
    (f"predict 3*{BERT}", 2, f"{BERT}:3"),
    (f"predict {BERT}::2", 2, "NAME:COPIES"),
    (f"predict {BERT},{RESNET}", 0, RESNET),
    (f"predict {BERT},_{RESNET},", 0, RESNET),
    (f"predict {BERT}+{RESNET}", 2, PAIR),
    ("predict @1e9", 2, "NAME@EPOCHS"),
    (f"recommend {BERT}@1e1 --json", 0, "10.0"),
    (f"predict {BERT}@half", 2, f"{BERT}@3"),
    (f"predict {BERT}@2:3", 2, f"{BERT}:2@3"),
    ("predict python train.py", 2, "advisor profile -- python train.py"),
    ("predict train.sh", 2, "advisor profile -- bash train.sh"),
    ("predict jobs.yaml", 2, "--jobs jobs.toml"),
    (f"predict {PAIR} naive", 2, "--sharing naive"),
    (f"predict --jobs {BERT}", 2, "without --jobs"),
    (f"admit {SMALL} --running {RESNET},_{BERT} --max-slowdown 400%", 0, SMALL),
    (f"recommend {PAIR} --protect all", 2, RESNET),
    # Numbers and choices.
    (f"simulate {BERT} --price 2_EUR", 0, "EUR"),
    (f"simulate {BERT} --price 2,50 --json", 0, ": 2.5"),
    (f"simulate {BERT} --price $2", 2, "EUR"),
    (f"simulate {BERT} --price 1,000", 2, "--price"),
    (f"predict {BERT} --power-cap 400W", 0, "400 W"),
    (f"predict {BERT} --power-cap 80%", 2, "watts"),
    (f"trials {BERT} --memory-margin 10%", 0, BERT),
    (f"trials {BERT} --memory-margin 10GB", 2, "10%"),
    (f"recommend {PAIR} --objective MakeSpan", 0, RESNET),
    (f"validate {BERT} --top all", 2, "--top"),
    (f"trials {RESNET} --start-up 10s", 0, "10 s"),
    ("doctor --fast", 2, "advisor doctor -h"),
    (f"trials {RESNET} --start-up soon", 2, "15min"),
    ("run plan.json --time-limit soon", 2, "2h"),
]


@pytest.mark.parametrize(("words", "code", "named"), WORDS, ids=[each[0] for each in WORDS])
def test_sloppy_words_are_understood_or_answered_with_what_to_write(advisor, words, code, named):
    ended = advisor(*(word.replace("_", " ") for word in words.split(" ")))
    assert ended.code == code, ended.err
    assert named in (ended.err if code else ended.out)
    assert "\n" not in ended.err.strip() or not code


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
