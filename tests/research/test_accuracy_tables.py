"""Tables of accuracy, rules of peers, classes left out, coverage by group, constants by hand."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.hardware.gpus import gpu
from advisor.learn.observations import ReplayCache
from advisor.learn.scores import JobComparison
from advisor.prediction.prediction import Interval
from research import classes, coverage, peers
from research.classes import classes_left_out, classes_section
from research.constants import CHOSEN, chosen_constants, constants_section
from research.coverage import coverage_groups, coverage_of, coverage_section, worst_sentence
from research.evaluate import evaluate
from research.files import ROOT
from research.headline import headline, rules_table
from research.programs import PrintedErrors
from research.readme import accuracy_in_short
from research.scoreboard import scores_of
from research.scripts import ScriptErrors
from tests.fitted import folds_fitted_once
from tests.research.campaign import PROFILES, advised_campaign, campaign

__all__ = ["folds_fitted_once"]

H200 = gpu("h200-141gb")
SCRIPTS = [
    ScriptErrors(
        name=name,
        steps=9,
        mape=mape,
        median=0.1,
        inside=0.9,
        fair_share=0.5,
        noise=None,
        noise_mape=None,
    )
    for name, mape in (("all", 0.2), ("naive", 0.1), ("MPS", 0.3))
]


@pytest.fixture(scope="module")
def evaluation():
    runs = [replace(run, id=f"{n}-{run.id}") for run in campaign() for n in (1, 2)]
    return evaluate(PROFILES, [*runs, *advised_campaign()], H200)


def cells(table):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]


def test_scripts_stand_first_then_hosts_then_all_then_rules_for_the_same_steps(evaluation):
    scores = replace(scores_of(peers.with_kace(evaluation)), home="1")
    steps, _, rules = headline(scores, SCRIPTS).split("\n\n")
    rows = cells(steps)
    modes = ["time-slicing", "MPS", "all"]
    assert [row[1:4] for row in rows[:3]] == [
        [mode, "9", error]
        for mode, error in zip(modes, ("10.0 %", "30.0 %", "20.0 %"), strict=True)
    ]
    of_all = [row[2] for row in rows[3:] if row[1] == "all"]
    assert of_all == ["60", "4", "60", "124"]
    assert len(rows) == 3 + 4 * len(of_all)
    assert {row[1] for row in cells(rules)} == {"124", "82"}  # all; MISO's without time slices


def test_public_scripts_stand_first_in_the_readme_then_scripts_then_the_zoo(evaluation):
    programs = [
        PrintedErrors(
            kind=kind,
            mode=mode,
            steps=steps,
            mape=steps / 100,
            median=0.1,
            slowdown_mape=0.1,
            alone=0.14,
            alone_twice=None,
            together=None,
            inside=0.8,
            width=1.3,
        )
        for kind, steps in (("programs", 5), ("zoo", 7))
        for mode in ("MPS", "all")
    ]
    text = accuracy_in_short(programs, SCRIPTS, scores_of(evaluation))
    rows = cells(text.split("\n\n")[0])
    assert rows[0][1:] == ["5", "-", "5.0 %", "-", "80.0 %"]
    assert [row[1] for row in rows] == ["5", "9", "7", "124"]
    assert text.count("14.0 %") == 2


def test_pooled_errors_are_means_over_all_jobs(evaluation):
    (ours, *_) = cells(rules_table(scores_of(evaluation)))
    errors = [
        abs(job.error)
        for run in (*evaluation.runs, *evaluation.advice)
        for job in run.jobs
        if run.run.sharing == "naive"
    ]
    assert ours[1] == "this model"
    assert ours[3] == f"{100 * np.mean(errors):.1f} %"


def test_a_cell_of_the_tables_of_accuracy_has_one_number():
    text = (ROOT / "docs" / "accuracy.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) > 100
    assert [row for row in rows if re.search(r"\d %? ?/ [\d-]", row)] == []


def test_the_regression_on_counters_never_sees_the_family_that_it_predicts(evaluation):
    slow = [replace(run, id=f"{n}-{run.id}") for run in campaign("resnet") for n in (1, 2)]
    moved = evaluate(PROFILES, [*slow, *advised_campaign()], H200)
    before, after = (
        {
            (run.run.id, place): job.baselines_s["kace"]
            for run in peers.with_kace(each).runs
            for place, job in enumerate(run.jobs)
            if job.family == "resnet"
        }
        for each in (evaluation, moved)
    )
    assert before == pytest.approx(after)
    assert min(before.values()) > 0


def test_a_class_left_out_is_scored_on_the_same_jobs_as_its_families(evaluation, monkeypatch):
    monkeypatch.setattr(classes, "CLASSES", {"two": ("gpt2", "cait"), "one": ("resnet",)})
    rows = classes_left_out(evaluation, ReplayCache())
    assert {row.name for row in rows} == {"all three", "two"}
    row = next(row for row in rows if (row.name, row.mode) == ("two", "mps"))
    errors = [
        abs(job.error)
        for run in evaluation.runs
        for job in run.jobs
        if run.run.sharing == "mps" and job.family in ("gpt2", "cait")
    ]
    assert row.n == len(errors)
    assert row.family_mape == pytest.approx(np.mean(errors))
    assert row.mape != row.family_mape
    assert "| two | MPS |" in classes_section(rows)


def test_the_least_covered_large_group_stands_first(evaluation, monkeypatch):
    monkeypatch.setattr(coverage, "_FEWEST", 20)
    groups = coverage_groups(evaluation)
    assert min(group.n for group in groups) >= 20
    shares = [group.inside for group in groups]
    assert shares == sorted(shares)
    assert {"all", "1", "2", "2 jobs", "2 to 4 jobs"} == {group.where for group in groups}
    assert f"of {groups[0].n} steps" in worst_sentence(groups)[0]
    assert len(cells(coverage_section(groups).split("\n\n")[-1])) == len(groups)
    assert coverage_groups(replace(evaluation, intervals=False)) == ()


def judged_job(family, inside):
    return JobComparison(
        job=f"{family}-1",
        family=family,
        alone_s=0.01,
        measured_s=0.02 if inside else 0.03,
        predicted_s=Interval(0.019, 0.02, 0.021),
        baselines_s={},
    )


def judged_jobs(**inside_of):
    return [judged_job(family, each) for family, values in inside_of.items() for each in values]


def test_families_with_equal_errors_leave_coverage_less_certain_than_other_jobs():
    spread = coverage_of(judged_jobs(**{f"f{n}": [True] * 9 + [False] for n in range(8)}))
    assert spread == pytest.approx((0.9, 0.9, 0.9))
    lumped = judged_jobs(bad=[False] * 8, **{f"f{n}": [True] * 9 for n in range(8)})
    _, low, high = coverage_of(lumped)
    assert low < 0.8
    assert high == 1.0


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=5), min_size=2, max_size=6))
def test_the_range_is_within_0_and_1_and_the_same_each_time(values):
    families = judged_jobs(**{f"f{n}": each for n, each in enumerate(values)})
    share, low, high = coverage_of(families)
    assert 0 <= low <= high <= 1
    assert coverage_of(families) == (share, low, high)


def test_every_constant_that_was_chosen_on_scored_runs_is_named_with_its_value(evaluation):
    constants = chosen_constants()
    section = constants_section(constants, scores_of(evaluation))
    assert len(cells(section.split("\n\n")[2])) == len(CHOSEN)
    assert all((ROOT / each.file).is_file() for each in constants)
