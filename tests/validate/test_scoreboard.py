from dataclasses import replace

import pytest
from rich.console import Console

from advisor.prediction.interval import Interval
from advisor.validate.evaluate import Evaluation
from advisor.validate.predicted_and_measured import JobComparison, RunComparison
from advisor.validate.score_tables import HEADINGS, evaluation_table, markdown, score_cells
from advisor.validate.scoreboard import scoreboard, scores_of
from tests import synthetic

ALONE = synthetic.profile(host_s=0.010, gpu_s=0.010)


def job(predicted_s, measured_s=0.020, memory_mib=1000.0, capacity_s=0.010):
    return JobComparison(
        job=ALONE.name,
        family="resnet",
        busy_share=1.0,
        alone_s=0.010,
        measured_s=measured_s,
        predicted_s=Interval(0.9 * predicted_s, predicted_s, 1.1 * predicted_s),
        memory_mib=memory_mib,
        measured_memory_mib=1250.0,
        baselines_s={"alone": 0.010, "fair-share": None, "capacity": capacity_s, "replay": None},
    )


def evaluation(*jobs):
    run = synthetic.run([ALONE] * len(jobs), "naive", 2.0)
    return Evaluation(
        gpu="h200-141gb",
        families=("resnet",),
        runs=(RunComparison(run, jobs),),
        repeats=(),
        unusable=(),
        drift=None,
        profiles={ALONE.name: ALONE},
    )


def test_errors_are_shares_of_what_was_measured():
    row = scoreboard(evaluation(job(0.022), job(0.014)))[0]
    assert row.mape == pytest.approx((0.1 + 0.3) / 2)
    assert row.median == pytest.approx(0.2)
    assert row.p90 == pytest.approx(0.28)


def test_coverage_counts_measured_steps_inside_their_intervals():
    assert scoreboard(evaluation(job(0.022), job(0.014)))[0].coverage90 == 0.5


def test_throughput_is_the_sum_of_solo_over_shared_steps():
    row = scoreboard(evaluation(job(0.025), job(0.020)))[0]
    assert row.throughput_mape == pytest.approx(abs((0.4 + 0.5) / (0.5 + 0.5) - 1))


def test_memory_is_scored_by_process_and_in_total():
    row = scoreboard(evaluation(job(0.02, memory_mib=1000.0), job(0.02, memory_mib=1500.0)))[0]
    assert row.memory_mape == pytest.approx(0.2)
    assert row.memory_total_mape == pytest.approx(0.0)


def test_memory_that_the_driver_would_not_say_is_not_scored():
    unknown = replace(job(0.02), measured_memory_mib=None)
    row = scoreboard(evaluation(unknown, unknown))[0]
    assert (row.memory_mape, row.memory_total_mape) == (None, None)


def test_a_baseline_is_scored_where_it_is_defined_and_says_on_how_many():
    row = scoreboard(evaluation(job(0.02), job(0.02, capacity_s=None)))[0]
    assert row.baselines == {
        "alone": pytest.approx(0.5), "fair-share": None,
        "capacity": pytest.approx(0.5), "replay": None,
    }  # fmt: skip
    assert row.baselines_n == {"alone": 2, "fair-share": 0, "capacity": 1, "replay": 0}


def test_a_cell_without_a_number_is_a_dash_and_never_zero():
    scores = scores_of(evaluation(job(0.02), job(0.02)))
    (row, *_) = score_cells(scores, scores.rows)
    shown = dict(zip(HEADINGS, row, strict=True))
    assert (shown["noise floor"], shown["fair share"], shown["MAPE"]) == ("-", "-", "0.0 %")


def test_a_terminal_of_80_columns_shows_every_number_whole(capsys):
    Console(width=80).print(evaluation_table(evaluation(job(0.022), job(0.014))))
    shown = capsys.readouterr().out
    assert "naive 2 20.0 - 20.0 28.0 50.0 20.0 - " in " ".join(shown.split())
    assert "…" not in shown


def test_markdown_has_a_line_for_headings_a_rule_and_each_row():
    assert markdown(["a", "b"], [["1", "2"]]).splitlines() == [
        "| a | b |",
        "|---|---|",
        "| 1 | 2 |",
    ]
