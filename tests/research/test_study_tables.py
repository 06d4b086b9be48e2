"""Tables of the studies' numbers and our predictions: complete, judged, labelled, up to date."""

import csv

import pytest

from advisor.api import Advisor
from advisor.workload.store import NO_CALIBRATION
from research.studies import GPU, Question, Questions, claims, rows
from research.study_tables import (
    FOLDER,
    OUR_HOST,
    TABLES,
    beside_chart,
    drawn,
    interval,
    jobs_of_slices,
    misses_text,
    second_study,
    study_rows,
    table_text,
    third_study,
)


@pytest.fixture(scope="module")
def a100():
    return Advisor(GPU, calibration=NO_CALIBRATION)


def stored(name):
    return list(csv.DictReader((FOLDER / f"{name}.csv").read_text().splitlines()))


@pytest.mark.parametrize("name", TABLES)
def test_the_committed_table_has_the_predictions_of_now(a100, name):
    now = list(csv.DictReader(table_text(TABLES[name](a100)).splitlines()))
    for row, new in zip(stored(name), now, strict=True):
        for field, value in new.items():
            if field in ("p05", "p50", "p95") and value:
                assert float(row[field]) == pytest.approx(float(value), rel=2e-3, abs=2e-3)
            else:
                assert row[field] == value


@pytest.mark.parametrize("name", TABLES)
def test_no_row_is_of_an_a100_and_each_interval_holds_its_median(name):
    for row in stored(name):
        assert row["converted_from"]
        assert "a100" not in row["converted_from"]
        if row["p05"]:
            assert float(row["p05"]) <= float(row["p50"]) <= float(row["p95"])
        assert bool(row["agrees"]) == bool(row["study_low"] or row["study_high"])


def test_the_numbers_that_the_text_of_each_study_has_are_in_its_table():
    ids = {name: {each for row in stored(name) for each in row["ids"].split()} for name in TABLES}
    copies = {f"P05{at}" for at in range(2, 9)} | {f"D00{at}" for at in range(1, 5)}
    assert ids["first_study"] >= copies
    assert ids["second_study"] >= {"E006", "E007", "E012", "E013", "E017", "E018", "E019", "E020"}
    assert ids["second_study_partitions"] == {"E022", "E023", "E024"}
    of_table = {"T017", "T018", "T019", "T022", "T024", "T025", "T028", "T030", "T031", "T033"}
    assert ids["third_study"] >= of_table | {"T020", "T026", "T032", "T034", "T035"}


def test_a_claim_agrees_if_its_rows_do(a100):
    some = [each for each in claims() if {"E006", "E008", "E020", "T020", "T025"} & {*each.ids}]
    of_claim = {row["id"]: row["agrees"] for row in rows(a100, some)}
    for claim in some:
        (row,) = study_rows(a100, [claim], (OUR_HOST,))
        assert row.agrees is of_claim[claim.ids[0]]


def test_an_interval_is_around_the_value_that_the_claims_are_judged_by(a100):
    questions = Questions(a100)
    for metric, mix, sharing in (
        ("slowdown", "3 S", "mps"),
        ("throughput", "3 S", "slices"),
        ("throughput", "D+L", "naive"),
        ("makespan", "M+S", "slices"),
        ("examples_per_s", "2 image/4g+3g", "slices"),
        ("examples_per_j", "3 image/4g+2g+1g", "slices"),
        ("memory_gb", "D+L", "mps"),
        ("epoch_h", "1 L", "serial"),
    ):
        question = Question(metric, mix, sharing)
        around = interval(questions, question)
        assert around.p50 == pytest.approx(questions.value(question), rel=1e-6)
        assert around.p05 < around.p50 < around.p95
    assert interval(questions, Question("smact", "1 L", "serial")) is None


def test_a_larger_slice_holds_no_smaller_batch_and_gpt2_keeps_its_own(a100):
    names = jobs_of_slices(a100, "tf_efficientnetv2_s-imagenet", largest=True)
    batches = [int(names[each].rpartition("bs")[2]) for each in ("1g.5gb", "2g.10gb", "3g.20gb")]
    assert batches == sorted(batches)
    assert batches[0] < batches[-1]
    own = "gpt2-medium-finetune-bs4-tf32"
    assert set(jobs_of_slices(a100, own, largest=False).values()) == {own}


def test_charts_and_misses_say_that_predictions_are_converted(a100):
    some = second_study(a100)
    misses = [row for row in some if row.agrees is False]
    assert misses_text(some).count("\n") == len(misses) + 1
    assert "converted" in misses_text(some)
    chart = beside_chart(drawn(third_study(a100)), "way", "host", "memory").to_dict()
    assert "converted" in str(chart["layer"][0]["encoding"]["x"]["title"])
