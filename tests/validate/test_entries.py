import json

import pytest

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import gpu
from advisor.validate.entries import entries_text, score_entries
from advisor.validate.evaluate import evaluate
from advisor.validate.score_tables import evaluation_document
from advisor.validate.scoreboard import scoreboard
from advisor.validate.selection import select
from research.splits import splits_text
from tests.validate.campaign import NAMES, PROFILES, advised_campaign, campaign

H200 = gpu("h200-141gb")
RUNS = [*campaign(), *advised_campaign()]


@pytest.fixture(scope="module")
def ours():
    return evaluate(PROFILES, RUNS, H200)


def entries(ours):
    return [json.loads(line) for line in entries_text(ours).splitlines()]


def scored(folder, lines):
    path = folder / "theirs.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return score_entries(path, PROFILES, RUNS, H200)


def test_our_predictions_score_the_same_from_a_file(ours, tmp_path):
    again = scored(tmp_path, entries(ours))
    told = ("mode", "degree", "jobs", "n", "mape", "median", "p90", "rmse", "coverage90")
    raw = [row for row in scoreboard(ours) if row.view == "raw"]
    for before, after in zip(raw, scoreboard(again), strict=True):
        assert [getattr(before, name) for name in told] == [getattr(after, name) for name in told]
    there, here = (evaluation_document(each)["regret"] for each in (ours, again))
    assert (there["mean"], there["worst"], there["n"]) == (here["mean"], here["worst"], 1)


def test_predictions_without_intervals_have_no_coverage(ours, tmp_path):
    bare = [
        {"run": each["run"], "step_s": [{"p50": step["p50"]} for step in each["step_s"]]}
        for each in entries(ours)
    ]
    row = scoreboard(scored(tmp_path, bare))[0]
    assert (row.coverage90, row.coverage90_low) == (None, None)
    assert row.mape == scoreboard(ours)[0].mape


def test_whoever_leaves_out_the_panels_has_no_regret(ours, tmp_path):
    panels = {run.run.id for run in ours.advice}
    some = scored(tmp_path, [each for each in entries(ours) if each["run"] not in panels])
    assert evaluation_document(some)["regret"]["n"] == 0


def broken(ours, change):
    lines = entries(ours)
    change(lines)
    return lines


def _swap_bounds(lines):
    lines[0]["step_s"][0]["p05"] = 1e9


def _one_without(lines):
    lines[0]["step_s"] = [{"p50": 0.01}, {"p50": 0.01}]


def _half_an_interval(lines):
    del lines[0]["step_s"][0]["p95"]


def _below_zero(lines):
    lines[0]["step_s"][0] = {"p05": -1, "p50": 0.01, "p95": 0.02}


def _misspelt(lines):
    lines[0]["steps"] = lines[0].pop("step_s")


def _too_few(lines):
    lines[0]["step_s"].pop()


def _panel_half(lines):
    lines.pop()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: lines.pop(0), "scored runs are missing: naive-0-mixed"),
        (lambda lines: lines.append(lines[0]), "naive-0-mixed occurs twice"),
        (lambda lines: lines.append({"run": "x", "step_s": []}), "not asked for: x"),
        (_panel_half, "runs of panels are missing"),
        (_swap_bounds, "theirs.jsonl:1"),
        (_one_without, "others none"),
        (_half_an_interval, "both bounds"),
        (_below_zero, "more than 0 s"),
        (_misspelt, "theirs.jsonl:1"),
        (_too_few, "has 2 tenants, but 1 step"),
    ],
)
def test_a_file_that_cannot_be_scored_fairly_is_refused_with_the_place(
    ours, tmp_path, change, said
):
    with pytest.raises(InvalidInput, match=said):
        scored(tmp_path, broken(ours, change))


def test_the_splits_name_for_each_family_every_run_that_holds_it():
    document = json.loads(splits_text("h200-141gb", select(PROFILES, RUNS, H200)))
    assert document["scored"] == [run.id for run in campaign()]
    assert document["panels"] == [run.id for run in advised_campaign()]
    (resnet,) = [each for each in document["folds"] if each["family"] == "resnet"]
    held = [run.id for run in RUNS if any(each.workload.family == "resnet" for each in run.tenants)]
    assert resnet["predict"] == held
    assert NAMES[0].startswith("resnet")
