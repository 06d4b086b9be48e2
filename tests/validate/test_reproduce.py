"""What the studies found on an A100-40GB, beside what is predicted for one."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.api import Advisor
from advisor.cli import main
from advisor.prediction.host_transfer import on_host
from advisor.validate.reproduce import hosts_of_studies, reproduced
from advisor.validate.reproduction_text import (
    bounds_words,
    reproduction_document,
    span_words,
)
from advisor.validate.study_claims import Claim, study_claims
from advisor.validate.study_questions import GPU, METRICS, StudyQuestions
from advisor.workload.job import Job
from advisor.workload.store import NO_CALIBRATION

CLAIM = Claim(
    ids=("X001",),
    kind="slowdown",
    says="two take as long as one",
    metric="slowdown",
    mixes=("2 M",),
    sharings=("mps",),
    low=1.0,
    high=1.2,
    unit="x",
    tolerance=0.1,
)


@pytest.fixture(scope="module")
def a100():
    return Advisor(GPU, calibration=NO_CALIBRATION)


def questions(advisor, slower=1.0):
    return StudyQuestions(advisor, study_claims(), slower)


@given(st.floats(0.91, 1.31), st.floats(0.91, 1.31))
def test_a_claim_agrees_where_all_lies_between_its_bounds_with_their_tolerance(one, other):
    assert CLAIM.agrees([one, other])
    assert not CLAIM.agrees([one, 1.33])
    assert not CLAIM.agrees([0.89, other])


def test_a_tolerance_of_a_share_is_added_and_not_multiplied():
    share = replace(CLAIM, low=0.6, high=0.6, unit="share", tolerance=0.15)
    assert share.agrees([0.46, 0.74])
    assert not share.agrees([0.44])


def test_the_best_partition_is_one_value_and_so_is_a_spread():
    assert replace(CLAIM, take="largest").agrees([0.1, 1.1])
    assert not replace(CLAIM, take="largest").agrees([1.1, 1.4])
    assert replace(CLAIM, take="smallest").agrees([1.1, 1.4])
    assert not replace(CLAIM, take="smallest").agrees([0.1, 1.1])
    spread = replace(CLAIM, take="half the spread", low=0.0, high=0.1, unit="points")
    assert spread.agrees([1.0, 1.3])
    assert not spread.agrees([1.0, 1.5])


def test_nothing_that_is_not_known_agrees():
    for take in ("each", "largest", "smallest", "half the spread"):
        assert not replace(CLAIM, take=take).agrees([1.0, float("nan")])


def test_each_claim_asks_for_what_can_be_asked():
    for claim in study_claims().claims:
        assert claim.metric.removesuffix("_gained") in {*METRICS, "placed"}


def test_a_question_is_answered_as_the_advisor_answers_the_same_words(a100):
    jobs, sharing = ["resnet50-imagenet64-bs128:2"], "mig=3g.20gb,3g.20gb"
    by_hand = a100.predict(jobs, sharing).prediction.jobs[0].slowdown
    asked = replace(CLAIM, sharings=("slices",))
    assert questions(a100).values(asked) == {"2 M slices": by_hand}


def test_slices_are_those_of_the_study_or_of_the_partition_behind_the_slash(a100):
    asked = questions(a100)
    assert asked._sharing("7 S", "slices") == "mig=" + ",".join(["1g.5gb"] * 7)
    assert asked._sharing("L+M+S", "slices") == "mig=3g.20gb,2g.10gb,1g.5gb"
    assert asked._sharing("2 M/4g+1g", "slices") == "mig=4g.20gb,1g.10gb"
    assert asked._sharing("2 M", "naive") == "naive"


def test_a_ratio_is_to_the_same_number_elsewhere(a100):
    asked = replace(CLAIM, against=("serial",), against_mix="1 same")
    (found,) = questions(a100).values(asked).values()
    shared = a100.predict(["resnet50-imagenet64-bs128:2"], "mps").prediction.jobs[0].slowdown
    assert found == pytest.approx(shared)  # one job alone is not slowed


def test_a_slower_host_is_asked_about_as_advice_for_such_a_host_is(a100):
    profile = on_host(a100.find_profile("resnet26-cifar10-bs128"), 1.5)
    by_hand = a100.predict([Job(profile), Job(profile)], "mps").prediction.jobs[0].slowdown
    (found,) = questions(a100, 1.5).values(replace(CLAIM, mixes=("2 S",))).values()
    assert found == by_hand


def test_a_job_is_as_active_alone_as_the_study_says_and_others_run_on_that_host(a100):
    asked = questions(a100)
    hosts = hosts_of_studies(asked, CLAIM)
    told = StudyQuestions(a100, asked.claims, host_slowdowns=hosts)
    alone = replace(CLAIM, metric="gract", sharings=("serial",))
    for word, share in (("S", 0.6), ("M", 0.8)):
        (found,) = told.values(replace(alone, mixes=(f"1 {word}",))).values()
        assert found == pytest.approx(share, abs=0.01)
    assert hosts["s"] == hosts["EM"] == hosts["S"] != hosts["M"]  # a loader is M's own
    assert "tune" not in hosts  # which ran elsewhere


def test_no_row_is_predicted_from_its_own_number(a100):
    claims = {name: claim for claim in study_claims().claims for name in claim.ids}
    asked = questions(a100)
    assert hosts_of_studies(asked, claims["P064"])["S"] == 1.0
    assert hosts_of_studies(asked, claims["P065"])["M"] == hosts_of_studies(asked, CLAIM)["S"]


def test_instances_that_do_not_fit_are_no_error(a100):
    claim = replace(CLAIM, metric="placed", sharings=("slices",), mixes=("2 M/4g+4g", "2 M/4g+3g"))
    assert tuple(questions(a100).values(claim).values()) == (0.0, 1.0)


def test_words_say_bounds_and_values_as_they_are():
    assert bounds_words(CLAIM) == "1.00 to 1.20x"
    assert bounds_words(replace(CLAIM, high=None)) == "at least 1.00x"
    assert bounds_words(replace(CLAIM, low=0.6, high=0.6, unit="share")) == "60 %"
    assert span_words(CLAIM, {"a": 1.0, "b": 1.5}) == "1.00 to 1.50x"
    assert span_words(replace(CLAIM, unit="h"), {"a": 1.05}) == "1.05 h"


@pytest.fixture(scope="module")
def few(a100):
    """A reproduction of some claims, of which one is contested."""
    claims = study_claims()
    some = tuple(each for each in claims.claims if each.contested or "T017" in each.ids)
    return reproduced(a100, replace(claims, claims=some))


def test_contested_rows_are_shown_and_not_counted(few):
    document = reproduction_document(few)
    assert {row["id"] for row in document["rows"]} > {"T017", "P051"}
    assert sum(score["rows"] for score in document["scores"]) == 1
    assert all(row["why_not"] for row in document["rows"] if row["contested"] and not row["agrees"])


def test_a_cause_is_said_of_rows_that_there_are():
    known = {name for claim in study_claims().claims for name in claim.ids}
    assert set(study_claims().causes) <= known
    assert all(study_claims().causes.values())


def test_the_command_prints_every_row_of_the_studies_once_and_why_it_is_missed(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "--json"])
    assert not ended.value.code
    document = json.loads(capsys.readouterr().out)
    for row in document["rows"]:
        assert row["why_not"] or (row["agrees"] and row["agrees_as_told"])
    ids = [row["id"] for part in ("rows", "unchecked") for row in document[part]]
    assert len(ids) == len(set(ids)) == 180
    assert document["gpu"] == "a100-40gb"


def test_the_command_prints_a_line_for_each_row_and_says_what_is_not_counted(capsys):
    with pytest.raises(SystemExit):
        main(["reproduce"])
    said = capsys.readouterr().out
    assert "T033" in said
    assert "Not counted: 5 rows" in said
