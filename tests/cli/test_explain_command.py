"""``advisor explain``: two ways of sharing, or two plan files, for the same jobs."""

import json

import pytest

RESNET, BERT = "resnet50-imagenet64-bs128", "bert-base-finetune-bs16"
BOTH = (RESNET, BERT)


@pytest.fixture
def exported(advisor, tmp_path):
    """Writes a plan file."""

    def export(name, sharing, *words):
        path = tmp_path / f"{name}.json"
        words = ["--sharing", sharing, *(words or BOTH), "--format", "json", "--out", path]
        assert advisor("export", *words).code == 0
        return path

    return export


def test_two_ways_of_sharing_are_compared_job_by_job(advisor):
    said = advisor("explain", "naive", "mps=43,57", *BOTH)
    assert (said.code, said.err) == (0, "")
    assert f"{RESNET}\n" in said.out
    assert "naive: GPU time is the limit" in said.out


def test_json_is_one_document(advisor):
    document = json.loads(advisor("explain", "serial", "mps", *BOTH, "--json").out)
    assert [plan["sharing"] for plan in document["plans"]] == ["serial", "mps"]
    assert [job["job"] for job in document["jobs"]] == list(BOTH)


def test_without_a_job_the_bundled_ones_are_compared(advisor):
    assert f"{RESNET}" in advisor("explain", "naive", "mps").out


def test_numbers_are_those_that_predict_gives(advisor):
    found = json.loads(advisor("explain", "naive", "mps", *BOTH, "--json").out)
    alone = json.loads(advisor("predict", *BOTH, "--sharing", "mps", "--json").out)
    assert found["cost"]["second"] == alone["makespan_interval_s"]
    assert found["jobs"][1]["step_s"]["second"] == alone["jobs"][1]["step_s"]


def test_plan_files_say_the_same_as_words(advisor, exported):
    named = advisor("explain", "naive", "mps=60,60", *BOTH)
    files = exported("a", "naive"), exported("b", "mps=60,60")
    assert advisor("explain", *files).out == named.out
    assert advisor("explain", files[0], "mps=60,60").out == named.out


def test_a_plan_beside_itself_is_compared_without_and_with_a_power_cap(advisor):
    document = json.loads(advisor("explain", "mps", "mps", *BOTH, "--power-cap", 400, "--json").out)
    assert [plan["power_cap_w"] for plan in document["plans"]] == [None, 400]
    assert document["power_w"]["change"] < 0 < document["cost"]["change"]


@pytest.mark.parametrize("words", [["explain", "FILE", "mps"], ["simulate", "--plan", "FILE"]])
def test_advice_in_the_place_of_a_plan_is_told_what_writes_one(advisor, tmp_path, words):
    (file := tmp_path / "advice.json").write_text(advisor("recommend", *BOTH, "--json").out)
    said = advisor(*(str(file) if word == "FILE" else word for word in words))
    assert said.code == 2
    assert "it is advice, of several plans. `advisor export --format json` writes one" in said.err


def test_a_plan_file_keeps_its_power_cap(advisor, exported):
    path = exported("capped", "mps", *BOTH, "--power-cap", 400)
    document = json.loads(advisor("explain", "mps", path, "--json").out)
    assert [plan["power_cap_w"] for plan in document["plans"]] == [None, 400]


def test_every_objective_can_be_asked_for(advisor):
    words = ["explain", "naive", "mps", *BOTH, "--objective", "energy", "--json"]
    assert json.loads(advisor(*words).out)["compared_by"] == "energy"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["naive"], 2, "Missing argument"),
        (["naive", "mpss", *BOTH], 2, "'mpss' is not a sharing"),
        (["naive", "mps=50", *BOTH], 2, "1 limit for 2 jobs"),
        (["naive", "mps", "resnet51"], 2, "resnet51"),
        (["naive", "mig=4g.71gb,4g.71gb", *BOTH], 3, "at most 1 of 4g.71gb"),
        (["naive", "none.json"], 2, "none.json: No such file"),
        (["naive", "mps", *BOTH, "--objective", "beauty"], 2, "'beauty' is not one of"),
        (["naive", "mps", *BOTH, "--power-cap", "9000"], 2, "Use 234 W to 700 W"),
    ],
)
def test_what_cannot_be_compared_is_refused(advisor, words, code, said):
    answer = advisor("explain", *words)
    assert said in answer.err
    assert (answer.code, answer.out) == (code, "")


def test_a_plan_file_takes_no_jobs_beside_it(advisor, exported):
    answer = advisor("explain", exported("a", "naive"), "mps", RESNET)
    assert (answer.code, answer.out) == (2, "")
    assert "jobs of its own" in answer.err


def test_plan_files_of_different_jobs_are_refused(advisor, exported):
    files = exported("a", "naive"), exported("b", "naive", BERT, RESNET)
    answer = advisor("explain", *files)
    assert (answer.code, answer.out) == (2, "")
    assert "different jobs" in answer.err
