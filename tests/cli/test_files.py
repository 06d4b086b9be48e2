"""Files that a command line names: read if plain, else answered; no change is a traceback."""

import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.files.reading import MODEL_FILE
from advisor.files.records import kind_of_file
from advisor.files.writing import record_line, record_text
from tests import synthetic
from tests.cli.conftest import BERT, GPU, PROFILES, RESNET
from tests.measure.calibrate.recorded import calibration
from tests.test_damaged_input import damaged


@pytest.mark.parametrize(
    "words",
    [
        ("predict",),
        ("predict", "--jobs"),
        ("simulate", "--trace-in"),
        ("recommend", BERT, "--calibration"),
        ("evaluate", "--predictions"),
        ("validate", "--runs"),
        ("compare", "naive"),
    ],
)
def test_no_command_reads_a_device_or_waits_for_a_pipe(advisor, tmp_path, words):
    kind = "device" if len(words) == 1 else "FIFO"
    path = tmp_path / "it.json"
    path.symlink_to("/dev/zero") if kind == "device" else os.mkfifo(path)
    said = advisor(*words, path)
    assert (said.code, said.out) == (2, "")
    assert f"it.json: it is a {kind}" in said.err


@pytest.mark.parametrize(
    "words",
    [
        ("export", BERT, "--sharing", "naive", "--out"),
        ("fit", "--out"),
        ("init", "jobs", "--out"),
        ("simulate", BERT, "--timeline"),
        ("simulate", BERT, "--csv"),
        ("validate", BERT, "--out"),
        ("recommend", RESNET, BERT, "--csv"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused_and_no_folder_is_made(advisor, tmp_path, words):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "below", tmp_path / "missing" / "x"):
        said = advisor(*words, path)
        assert (said.code, said.out) == (2, "")
        assert str(path.parent) in said.err
    assert not (tmp_path / "missing").exists()


def test_a_broken_profile_is_left_out_unless_it_is_asked_for(advisor, tmp_path):
    folder = tmp_path / "profiles" / GPU
    folder.mkdir(parents=True)
    (folder / f"{BERT}.json").write_text(record_line(PROFILES[BERT]))
    (folder / "broken.json").write_text('{"schema": 1')
    words = ("--profiles", folder.parent)
    said = advisor("profiles", *words, "--json")
    assert [each["name"] for each in json.loads(said.out)["profiles"]] == [BERT]
    assert (said.code, "broken.json" in said.err) == (0, True)
    assert (advisor("predict", BERT, *words).code, advisor("predict", BERT, *words).err) == (0, "")
    said = advisor("predict", BERT, "broken", *words)
    assert (said.code, "broken.json" in said.err) == (2, True)


NUMBERS = st.one_of(
    st.booleans(),
    st.none(),
    st.integers(-1, 3),
    st.floats(),
    st.sampled_from([2**31, 2**64, 1e-9, 5e-324, 1e300, -1.5, 1e9, "1", "", [], {}]),
)


CELLS = st.one_of(
    st.sampled_from(["0", "1", "5e-324", "1e-9", "1e300", "-1", "nan", "1e18", "", "3.1e8", "\0"]),
    st.floats(0, 1e3).map(str),
)
ROWS = st.lists(st.tuples(CELLS, st.sampled_from([RESNET, BERT]), CELLS).map(",".join), max_size=5)
FIELDS = st.dictionaries(
    st.sampled_from(["copies", "epochs", "validation_s", "deadline_s", "isolated", "user"]),
    NUMBERS.filter(lambda value: value is not None and value != {}),
    max_size=3,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.data(),
    kind=st.sampled_from(["profile", "model", "trace", "jobs"]),
    command=st.sampled_from(["predict", "recommend", "simulate"]),
)
def test_any_change_of_a_file_is_answered_or_refused(
    advisor, tmp_path, measured, kind, data, command
):
    path = tmp_path / {"model": MODEL_FILE, "trace": "t.csv", "jobs": "j.toml"}.get(kind, "p.json")
    words = {
        "profile": (command, path, BERT),
        "model": (command, RESNET, BERT, "--models", tmp_path),
        "trace": ("simulate", "--trace-in", path),
        "jobs": (command, "--jobs", path),
    }[kind]
    if kind == "trace":
        path.write_text("\n".join(["arrival_s,job,epochs", *data.draw(ROWS)]))
    elif kind == "jobs":
        entries = data.draw(st.lists(FIELDS, max_size=2))
        text = ""
        for each in entries:
            fields = "".join(f"{key} = {json.dumps(value)}\n" for key, value in each.items())
            text += f'[[job]]\nprofile = "{BERT}"\n{fields}'
        path.write_text(text.replace("NaN", "nan").replace("Infinity", "inf"))
    else:
        text = (
            (measured / "models" / MODEL_FILE).read_text()
            if kind == "model"
            else (record_line(synthetic.profile(kernels=3)))
        )
        path.write_bytes(damaged(json.loads(text), data))
    said = advisor(*words)
    assert said.code in (0, 2, 3)
    assert "Traceback" not in said.err
    assert not said.code or said.err.startswith(("error: ", "warning: "))


FILES = [
    ("jobs.toml", f'[[job]]\nprofile = "{BERT}"\ndeadline_s = "2h"\ncommand = "./t 1"', 0, BERT),
    ("jobs.toml", f"[[job]]\nprofile = {BERT}", 2, "quotes"),
    ("jobs.toml", f'[[job]]\nprofile = "{BERT}:2"', 2, f"{BERT}, with copies"),
    ("jobs.toml", f"arrival_s,job\n0,{BERT}\n", 2, "--trace-in jobs.toml"),
    ("trace.csv", f"Arrival_s;Job;Epochs\n0;{BERT};1,5\n1 min;{RESNET};\n", 0, RESNET),
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
        "advisor recommend solo.json": record_line(synthetic.profile()),
        "--rank": advisor("recommend", *jobs, "--json").out,
        "advisor profiles": advisor("predict", *jobs, "--json").out,
        "--calibration": record_text(calibration()),
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
