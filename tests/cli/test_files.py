"""Files that a command line names: which are refused, and that no change of one is a traceback."""

import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.workload.reading import MODEL_FILE
from advisor.workload.writing import profile_text
from tests import synthetic
from tests.cli.conftest import BERT, GPU, PROFILES, RESNET


@pytest.mark.parametrize(
    "words",
    [
        ("predict",),
        ("predict", "--jobs"),
        ("simulate", "--trace-in"),
        ("simulate", "--plan"),
        ("recommend", BERT, "--calibration"),
        ("evaluate", "--predictions"),
        ("validate", "--runs"),
        ("compare", "naive"),
    ],
)
@pytest.mark.parametrize("kind", ["device", "FIFO"])
def test_no_command_reads_a_device_or_waits_for_a_pipe(advisor, tmp_path, words, kind):
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
    (folder / f"{BERT}.json").write_text(profile_text(PROFILES[BERT]))
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


def places(node, path=()):
    """Paths to everything in a document; of a long list, its first and last."""
    if isinstance(node, dict):
        inner = node.items()
    else:
        ends = sorted({0, len(node) - 1}) if isinstance(node, list) and node else ()
        inner = [(at, node[at]) for at in ends]
    for key, each in inner:
        yield (*path, key)
        yield from places(each, (*path, key))


def mutated(text, data):
    document = json.loads(text)
    *parents, last = data.draw(st.sampled_from(list(places(document))))
    node = document
    for key in parents:
        node = node[key]
    number = isinstance(node[last], int | float) and not isinstance(node[last], bool)
    scale = data.draw(st.sampled_from([None, 0.001, 10, 1e6])) if number else None
    node[last] = node[last] * scale if scale else data.draw(NUMBERS)
    return json.dumps(document)


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
            else (profile_text(synthetic.profile(kernels=3)))
        )
        path.write_text(mutated(text, data))
    said = advisor(*words)
    assert said.code in (0, 2, 3)
    assert "Traceback" not in said.err
    assert not said.code or said.err.startswith(("error: ", "warning: "))
