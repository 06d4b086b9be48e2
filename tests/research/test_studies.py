"""The studies' rows: each is there once, asked as the advisor answers, and judged by its bounds."""

import json
from collections import Counter
from dataclasses import replace

import pytest

from advisor.api import Advisor
from advisor.prediction.host import on_host
from advisor.workload.store import NO_CALIBRATION
from research.small_batches import read_small_batches, sliced_jobs
from research.studies import (
    FILE,
    GPU,
    Claim,
    Questions,
    claims,
    counted,
    hosts_of_studies,
    rows,
    studies,
    studies_text,
)

CLAIM = Claim(
    ids=("X001",),
    kind="slowdown",
    says="two take as long as one",
    metric="slowdown",
    mixes=("2 M",),
    sharings=("slices",),
    low=1.0,
    high=1.2,
    unit="x",
    tolerance=0.1,
)


@pytest.fixture(scope="module")
def a100():
    return Advisor(GPU, calibration=NO_CALIBRATION)


def test_each_of_180_rows_is_a_claim_or_asks_nothing_and_causes_are_of_rows():
    entries = [*studies()["claims"], *studies()["unchecked"]]
    ids = Counter(name for each in entries for name in each["ids"])
    assert (len(ids), set(ids.values())) == (180, {1})
    assert {name for each in studies()["causes"] for name in each["ids"]} <= set(ids)


def test_a_claim_agrees_between_its_bounds_with_their_tolerance():
    assert CLAIM.agrees([0.91, 1.31])
    for values in ([1.33], [0.89], [1.0, float("nan")]):
        assert not CLAIM.agrees(values)
    assert replace(CLAIM, take="largest").agrees([0.1, 1.1])
    assert replace(CLAIM, take="smallest").agrees([1.1, 1.4])
    spread = replace(CLAIM, take="half the spread", low=0.0, high=0.1, unit="points")
    assert [spread.agrees([1.0, other]) for other in (1.3, 1.5)] == [True, False]


def test_questions_are_answered_as_the_advisor_answers_the_same_words(a100):
    questions = Questions(a100)
    by_hand = a100.predict(["resnet50-imagenet64-bs128:2"], "mig=3g.20gb,3g.20gb")
    assert questions.values(CLAIM) == {"2 M slices": by_hand.prediction.jobs[0].slowdown}
    placed = replace(CLAIM, metric="placed", mixes=("2 M/4g+4g", "2 M/4g+3g"))
    assert tuple(questions.values(placed).values()) == (0.0, 1.0)
    slow = on_host(a100.find_profile("resnet26-cifar10-bs128"), 1.5)
    by_hand = a100.predict([slow, slow], "mps").prediction.jobs[0].slowdown
    asked = replace(CLAIM, mixes=("2 S",), sharings=("mps",))
    assert tuple(Questions(a100, host=1.5).values(asked).values()) == (by_hand,)


def test_a_job_is_as_active_as_the_study_says_but_for_its_own_row(a100):
    hosts = hosts_of_studies(Questions(a100), CLAIM)
    for word, share in (("S", 0.6), ("M", 0.8)):
        alone = replace(CLAIM, metric="gract", mixes=(f"1 {word}",), sharings=("serial",))
        (active,) = Questions(a100, hosts).values(alone).values()
        assert active == pytest.approx(share, abs=0.01)
    own = next(claim for claim in claims() if "P064" in claim.ids)
    assert hosts_of_studies(Questions(a100), own)["S"] == 1.0


def test_rows_say_why_they_are_missed_and_contested_ones_do_not_count(a100):
    some = [claim for claim in claims() if claim.contested or {"T017", "P053"} & set(claim.ids)]
    judged = rows(a100, some)
    assert {row["id"] for row in counted(judged)} == {"T017", "P053"}
    assert all(row["why_not"] for row in judged if not row["agrees"])


def test_the_committed_counts_are_of_all_rows_and_stand_in_the_documents():
    kinds = json.loads(FILE.read_text())["kinds"]
    asked = Counter(c.kind for c in claims() for _ in c.ids if not c.contested)
    assert {kind: each["rows"] for kind, each in kinds.items()} == asked - Counter(placement=99)
    agree = sum(each["agrees_on_study_host"] for each in kinds.values())
    assert f"{agree} agree" in studies_text()


def test_the_best_partition_is_the_fastest_of_those_of_which_every_instance_ran(tmp_path):
    steps = ["model,batch_size,compute_slices,speed_rel_7g_median,ran"]
    steps += [
        f"bert,2,{size},{pace},{ran}"
        for size, pace, ran in ((4, 0.7, 1), (3, 0.6, 1), (2, 0.4, 1), (1, 0.9, 0))
    ]
    (tmp_path / "a100_mig_slice_steptime.csv").write_text("\n".join(steps) + "\n")
    solo = "model,batch_size,power_w,util_gpu_pct\nbert,2,160,70\n"
    (tmp_path / "a100_solo_counters.csv").write_text(solo)
    (job,) = sliced_jobs(tmp_path)
    assert (job.gain, job.utilisation) == (pytest.approx(0.6 + 0.4 + 0.4), 0.7)


def test_less_busy_our_gpt2_gains_on_slices_what_the_study_found():
    as_is, less = read_small_batches().predicted
    assert as_is.best["E017"] < 1.1 < 0.9 * 1.594 < less.best["E017"] < 1.1 * 1.594
    assert less.alone_w < as_is.alone_w
