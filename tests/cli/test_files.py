"""Files that a command line names: what is refused, and what the others do without."""

import json
import os
from functools import partial
from importlib import import_module

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.measure.calibrate_command import _parser as calibrate_parser
from advisor.measure.solo.from_numbers import _parser as numbers_parser
from advisor.measure.solo.profile_options import profile_parser
from advisor.workload.files import MODEL_FILE
from advisor.workload.writing import profile_text
from tests import synthetic
from tests.cli.conftest import GPU, PROFILES

RESNET, BERT = "resnet50-imagenet64-bs128", "bert-base-finetune-bs16"


@pytest.fixture
def folder(tmp_path):
    """A folder of two profiles and one file that is none."""
    for name in (RESNET, BERT):
        path = tmp_path / "profiles" / GPU / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(profile_text(PROFILES[name]))
    (tmp_path / "profiles" / GPU / "broken.json").write_text('{"schema": 1')
    return tmp_path / "profiles"


@pytest.mark.parametrize(
    "words",
    [
        ("predict",),
        ("predict", "--jobs"),
        ("simulate", "--trace-in"),
        ("simulate", "--plan"),
        ("recommend", BERT, "--calibration"),
        ("evaluate", "--predictions"),
        ("validate", "--from"),
        ("explain", "naive"),
    ],
)
@pytest.mark.parametrize("kind", ["device", "FIFO"])
def test_no_command_reads_a_device_or_waits_for_a_pipe(advisor, tmp_path, words, kind):
    path = tmp_path / "it.json"
    path.symlink_to("/dev/zero") if kind == "device" else os.mkfifo(path)
    said = advisor(*words, path)
    assert (said.code, said.out) == (2, "")
    assert f"it.json: it is a {kind}. Name a regular file." in said.err


def test_profiles_are_listed_beside_a_file_that_is_none_which_is_named(advisor, folder):
    said = advisor("profiles", "--profiles", folder, "--json")
    assert [each["name"] for each in json.loads(said.out)["profiles"]] == [BERT, RESNET]
    assert said.code == 0
    assert said.err.startswith(f"warning: left out: {folder / GPU / 'broken.json'}: ")


def test_a_command_that_does_not_need_the_broken_profile_says_nothing_of_it(advisor, folder):
    said = advisor("predict", BERT, "--profiles", folder)
    assert (said.code, said.err) == (0, "")


def test_a_command_that_needs_the_broken_profile_is_refused(advisor, folder):
    said = advisor("predict", BERT, "broken", "--profiles", folder)
    assert (said.code, said.out) == (2, "")
    assert "broken.json" in said.err


def test_recommend_goes_on_without_a_broken_variant_and_names_it(advisor, folder):
    (folder / GPU / f"{BERT}-graph.json").write_text("{}")
    said = advisor("recommend", BERT, "--profiles", folder, "--json")
    assert json.loads(said.out)["plans"]
    assert f"warning: left out: {folder / GPU / BERT}-graph.json" in said.err


@pytest.mark.parametrize("needed", [True, False])
def test_a_fit_goes_on_without_a_broken_profile_that_no_run_names(
    advisor, tmp_path, monkeypatch, needed
):
    def fitted(*_):
        raise RuntimeError("far enough")

    monkeypatch.setattr("advisor.prediction.fit.fit_model.fit", fitted)
    own = tmp_path / "nobody" / "advisor" / "profiles" / GPU
    own.mkdir(parents=True)
    (own / f"{BERT if needed else 'broken'}.json").write_text("{}")
    if needed:
        said = advisor("fit", "--out", tmp_path)
        assert said.code == 2
        assert f"{BERT}.json" in said.err
    else:
        with pytest.raises(RuntimeError, match="far enough"):
            advisor("fit", "--out", tmp_path)


@pytest.mark.parametrize(
    ("words", "work"),
    [
        (("fit", "--out"), "advisor.prediction.fit.fit_model.fit"),
        (("evaluate", "--export"), "advisor.validate.evaluate.evaluate"),
        (("simulate", BERT, "--trace"), "advisor.api.Advisor.simulate"),
        (("validate", BERT, "--out"), "advisor.validate.advised.run_plans"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused_before_the_work(
    advisor, tmp_path, monkeypatch, words, work
):
    def too_late(*_, **__):
        raise AssertionError("it began to work")

    monkeypatch.setattr(work, too_late)
    (tmp_path / "file").touch()
    said = advisor(*words, tmp_path / "file" / "below")
    assert (said.code, said.out) == (2, "")
    assert "Choose another path." in said.err


@pytest.mark.parametrize(
    ("run", "words", "work"),
    [
        ("measure.solo.profile_command", ("mlp-toy-bs32", "--device", "cpu"), "_setting"),
        ("measure.calibrate_command", ("--device", "cpu"), "calibrated"),
        ("measure.campaign.campaign_command", ("plan.toml", "--devices", "cpu"), "write_list"),
    ],
)
def test_measuring_refuses_a_path_before_it_begins(tmp_path, monkeypatch, run, words, work):
    module = import_module(f"advisor.{run}")
    monkeypatch.setattr(module, work, None, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.toml").write_text('gpu = "cpu"\nseed = 1\nsmall = ["mlp-toy-bs32"]\n')
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match=r"part of it is not a folder\. Choose another path"):
        module.run([*words, "--out", str(tmp_path / "file" / "below")])


NUMBERS = st.one_of(
    st.booleans(),
    st.none(),
    st.integers(-1, 3),
    st.sampled_from([2**31, 2**64, 1e-9, 5e-324, 1e300, -1.5, 1e9, "1", "", [], {}]),
    st.floats(),
)


def _places(node, path=()):
    """Paths to everything in a document; of a long list, its first and last."""
    if isinstance(node, dict):
        inner = node.items()
    else:
        ends = sorted({0, len(node) - 1}) if isinstance(node, list) and node else ()
        inner = [(at, node[at]) for at in ends]
    for key, each in inner:
        yield (*path, key)
        yield from _places(each, (*path, key))


def _mutated(text, data):
    document = json.loads(text)
    for _ in range(data.draw(st.integers(1, 2))):
        *parents, last = data.draw(st.sampled_from(list(_places(document))))
        node = document
        for key in parents:
            node = node[key]
        number = isinstance(node[last], int | float) and not isinstance(node[last], bool)
        scale = data.draw(st.sampled_from([None, 0.001, 10, 1e6])) if number else None
        node[last] = node[last] * scale if scale else data.draw(NUMBERS)
    return json.dumps(document)


mutated = partial(
    settings, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def _is_answer_or_refusal(said):
    assert said.code in (0, 2, 3)
    assert "Traceback" not in said.err
    if said.code:
        assert said.err.startswith(("error: ", "warning: "))


@mutated()
@given(data=st.data(), words=st.sampled_from([("predict",), ("recommend",), ("simulate",)]))
def test_any_change_of_a_profile_is_answered_or_refused(advisor, tmp_path, data, words):
    text = profile_text(synthetic.profile(kernels=3))
    (tmp_path / "p.json").write_text(_mutated(text, data))
    _is_answer_or_refusal(advisor(*words, tmp_path / "p.json", BERT))


@mutated()
@given(data=st.data(), words=st.sampled_from([("predict",), ("recommend",), ("simulate",)]))
def test_any_change_of_a_model_is_answered_or_refused(advisor, measured, tmp_path, data, words):
    text = (measured / "models" / MODEL_FILE).read_text()
    (tmp_path / MODEL_FILE).write_text(_mutated(text, data))
    _is_answer_or_refusal(advisor(*words, RESNET, BERT, "--models", tmp_path))


_CELLS = st.one_of(
    st.sampled_from(["0", "1", "5e-324", "1e-9", "1e300", "-1", "nan", "1e18", "", "3.1e8", "\0"]),
    st.floats(0, 1e3).map(str),
)


@mutated()
@given(
    rows=st.lists(st.tuples(_CELLS, st.sampled_from([RESNET, BERT]), _CELLS), max_size=5),
    policy=st.sampled_from(["first-come", "best-fit"]),
)
def test_any_trace_is_simulated_or_refused(advisor, tmp_path, rows, policy):
    lines = ["arrival_s,job,epochs", *map(",".join, rows)]
    (tmp_path / "trace.csv").write_text("\n".join(lines))
    words = ("--trace-in", tmp_path / "trace.csv", "--policy", policy)
    _is_answer_or_refusal(advisor("simulate", *words, "--trace", tmp_path / "out.json"))


@mutated()
@given(
    entries=st.lists(
        st.dictionaries(
            st.sampled_from(["copies", "epochs", "validation_s", "deadline_s", "isolated", "user"]),
            NUMBERS.filter(lambda value: value is not None and value != {}),
            max_size=3,
        ),
        max_size=2,
    ),
    words=st.sampled_from([("predict",), ("recommend",), ("simulate",)]),
)
def test_any_job_file_is_answered_or_refused(advisor, tmp_path, entries, words):
    lines = [
        line
        for entry in entries
        for line in (
            "[[job]]",
            f'profile = "{BERT}"',
            *(f"{k} = {_toml(v)}" for k, v in entry.items()),
        )
    ]
    (tmp_path / "jobs.toml").write_text("\n".join(lines))
    _is_answer_or_refusal(advisor(*words, "--jobs", tmp_path / "jobs.toml"))


def _toml(value):
    return json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")


@pytest.mark.parametrize(
    "words",
    [
        ("export", "resnet50-imagenet64-bs128", "--out"),
        ("init", "jobs", "--out"),
        ("simulate", "resnet50-imagenet64-bs128", "--trace"),
        ("validate", "resnet50-imagenet64-bs128", "--out"),
        ("fit", "--out"),
        ("evaluate", "--export"),
    ],
)
def test_where_a_folder_is_misspelt_none_is_made(words, advisor, tmp_path):
    said = advisor(*words, tmp_path / "nonexist" / "x")
    assert (said.code, said.out) == (2, "")
    assert f"there is no folder {tmp_path / 'nonexist'}. Check the path" in said.err
    assert not (tmp_path / "nonexist").exists()


@pytest.mark.parametrize("read", [profile_parser, calibrate_parser, numbers_parser])
def test_measuring_makes_no_misspelt_folder_either(read, tmp_path):
    with pytest.raises(InvalidInput, match="there is no folder"):
        read().parse_args(["--out", str(tmp_path / "nonexist" / "x")])
