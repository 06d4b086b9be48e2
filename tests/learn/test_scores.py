"""Runs compared with predictions: errors by mode, coverage, regret, and files of predictions."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.learn.scores import compare_predictions, compared_run, scores_of
from advisor.prediction.prediction import Interval
from tests import synthetic

PAIR = [
    synthetic.profile("resnet50-imagenet64-bs128"),
    synthetic.profile("bert-base-finetune-bs16"),
]
PROFILES = {each.name: each for each in PAIR}


def compared(sharing, slowdown, predicted, width=0.1, jobs=PAIR, run_id="r"):
    """A run that is `slowdown` times slower than alone, and predicted to be `predicted` times."""
    steps = [predicted * each.step_s for each in jobs]
    intervals = [Interval((1 - width) * step, step, (1 + width) * step) for step in steps]
    return compared_run(synthetic.run(jobs, sharing, slowdown, run_id), jobs, intervals)


def test_errors_and_coverage_are_of_each_mode_apart_and_jobs_alone_come_first():
    scores = scores_of(
        [
            compared("mps", 2.0, 2.1),
            compared("mps", 2.0, 1.6),
            compared("naive", 1.0, 1.0, 0.0, PAIR[:1]),
        ],
        "h200-141gb",
        left_out=3,
    )
    alone, mps = scores.modes
    assert (alone.mode, alone.n, alone.mape, alone.coverage90) == ("serial", 1, 0.0, None)
    assert (mps.mode, mps.runs, mps.n, mps.coverage90) == ("mps", 2, 4, 0.5)
    assert (mps.mape, mps.median) == (pytest.approx(0.125), pytest.approx(0.125))
    assert (scores.runs, scores.left_out, scores.choices) == (3, 3, None)


def test_regret_is_what_the_predicted_best_gave_away_of_the_best_measured():
    runs = [compared("mps", 1.6, 1.3), compared("naive", 1.2, 1.4), compared("mps", 1.6, 1.3)]
    choices = scores_of(runs, "h200-141gb").choices
    assert (choices.sets, choices.mean, choices.worst) == (1, *[pytest.approx(0.25)] * 2)
    assert choices.always_mps == pytest.approx(0.25)
    runs = [compared("mps=50,50", 1.6, 1.3), compared("naive", 1.2, 1.1)]
    choices = scores_of(runs, "h200-141gb").choices
    assert (choices.mean, choices.always_mps) == (0.0, None)


@given(st.lists(st.tuples(st.sampled_from(["naive", "mps"]), st.floats(1, 4), st.floats(1, 4))))
def test_regret_is_a_share_and_none_where_nothing_could_be_chosen(ways):
    choices = scores_of([compared(*way) for way in ways], "h200-141gb").choices
    assert (choices is None) == (len({sharing for sharing, *_ in ways}) < 2)
    assert choices is None or 0 <= choices.mean <= choices.worst < 1


LINE = {
    "run": "r",
    "step_s": [{"p05": 0.01, "p50": 0.02, "p95": 0.03}, {"p05": 0.01, "p50": 0.02, "p95": 0.03}],
}


def read(folder, *lines):
    path = folder / "theirs.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return compare_predictions(path, PROFILES, [synthetic.run(PAIR, "mps", 2.0, "r")])


def test_predictions_of_others_are_compared_with_the_run_that_they_name(tmp_path):
    (run,) = read(tmp_path, LINE)
    assert [job.error for job in run.jobs] == pytest.approx([0.0, 0.0])
    (run,) = read(tmp_path, LINE | {"step_s": [{"p50": 0.04}, {"p50": 0.04}]})
    assert [job.error for job in run.jobs] == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ([LINE, LINE], "theirs.jsonl:2"),
        ([LINE | {"run": "x"}], "run x not found"),
        ([LINE | {"step_s": [{"p50": 0.02, "p95": 0.03}] * 2}], "theirs.jsonl:1"),
        ([LINE | {"step_s": [{"p05": 1e9, "p50": 0.02, "p95": 0.03}] * 2}], "theirs.jsonl:1"),
        ([LINE | {"step_s": [{"p05": -1, "p50": 0.02, "p95": 0.03}] * 2}], "0 s"),
        ([LINE | {"step_s": [LINE["step_s"][0], {"p50": 0.02}]}], "others none"),
        ([{"run": "r", "steps": LINE["step_s"]}], "theirs.jsonl:1"),
        ([LINE | {"step_s": LINE["step_s"][:1]}], "2 tenants"),
    ],
)
def test_a_file_of_predictions_is_refused_with_the_place(tmp_path, lines, named):
    with pytest.raises(InvalidInput, match=named):
        read(tmp_path, *lines)
