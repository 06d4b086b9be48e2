from dataclasses import replace

import pytest

from advisor.gpu.catalogue import gpu
from advisor.running.cores import allowed_cores
from advisor.validation.data_card import blocks
from advisor.validation.findings import findings, measured, of_other_sets
from advisor.validation.plots import plots
from advisor.validation.report import GPU, ROOT, card_text, filled, readme_text, report_text
from advisor.validation.selection import select
from advisor.validation.splits import splits_text
from advisor.validation.targets import Target
from advisor.workload.writing import append_run, profile_text, write_whole
from tests import synthetic
from tests.validation.campaign import PROFILES, campaign
from tests.validation.whole_jobs import whole

FOLDER = ROOT / "profiles"


@pytest.fixture(scope="module")
def found():
    return findings(FOLDER / GPU, gpu(GPU), len(allowed_cores()))


def test_every_number_in_the_readme_comes_from_the_committed_data(found):
    readme = (ROOT / "README.md").read_text()
    assert readme == readme_text(readme, found)


def test_the_report_comes_from_the_committed_data(found):
    assert (FOLDER / "REPORT.md").read_text() == report_text(found)


def test_the_data_card_comes_from_the_committed_data(found):
    card = (FOLDER / "DATA_CARD.md").read_text()
    assert card == card_text(card, found)


def test_the_plots_come_from_the_committed_data_and_are_small(found):
    drawn = plots(found.evaluation)
    assert {path.name for path in (FOLDER / "plots").iterdir()} == drawn.keys()
    for name, picture in drawn.items():
        assert (FOLDER / "plots" / name).read_text() == picture
        assert len(picture) < 200_000


def test_the_splits_are_those_of_the_committed_runs():
    profiles, runs = measured(FOLDER / GPU)
    text = splits_text(GPU, select(profiles, runs, gpu(GPU)))
    assert (FOLDER / GPU / "runs" / "splits.json").read_text() == text


def test_no_set_of_jobs_that_was_validated_is_among_the_fitted_runs(found):
    def jobs(run):
        return tuple(sorted(tenant.workload.name for tenant in run.tenants))

    taught = of_other_sets(found.runs)
    fitted = {jobs(run) for run in taught if len(run.tenants) > 1}
    validated = {jobs(each.run) for each in found.validation if len(each.jobs) > 1}
    assert len(taught) > 600
    assert validated.isdisjoint(fitted)


def test_a_marked_block_is_replaced_and_nothing_else():
    text = "before\n<!-- begin: a -->\nold \\1\n<!-- end: a -->\nafter"
    assert filled(text, "a", "new \\2") == (
        "before\n<!-- begin: a -->\nnew \\2\n<!-- end: a -->\nafter"
    )


def test_a_block_that_is_missing_or_there_twice_is_refused():
    for text in ("none", "<!-- begin: a --><!-- end: a -->" * 2):
        with pytest.raises(ValueError, match="blocks named a"):
            filled(text, "a", "new")


def test_a_report_says_what_was_measured_how_far_off_and_how_advice_fared(tmp_path):
    for name, profile in PROFILES.items():
        write_whole(tmp_path / f"{name}.json", profile_text(profile))
    for run in campaign():
        append_run(tmp_path / "runs/drawn.jsonl", run)
    pair = list(PROFILES.values())[:2]
    for sharing, slowdown in (("mps", 1.2), ("naive", 1.9)):
        advised = synthetic.run(pair, sharing, slowdown, f"advice-{sharing}")
        append_run(tmp_path / "runs/validation.jsonl", replace(advised, purpose="validation"))
    for name in ("pair-1-busy", "pair-1-idle"):
        control = replace(synthetic.run(pair, "mps", 1.3, name), purpose="control")
        append_run(tmp_path / "runs/control.jsonl", control)
    append_run(tmp_path / "runs/whole.jsonl", whole("whole", "mps", (1.0, 2.0), pair))
    found = findings(tmp_path, gpu(GPU))
    purposes = blocks(found)["purposes"]
    assert "| control | 0 | 2 | 0 | 0 |" in purposes
    assert "memory" not in purposes
    assert "1 more run whole jobs to their ends." in purposes
    text = report_text(found)
    assert "| host-bound | MPS | 2 | 0.0 % |" in text
    assert "7 workloads alone, which keep the GPU busy 20 to 100 % of a step" in text
    assert "44 shared runs (15 mps, 14 mps limits, 15 naive) of 2 jobs" in text
    assert "| MPS limits | 2, mixed | 14 |" in text
    assert "| naive, 3 to 8 jobs, MAPE | at most 5.0 % | - | not measured |" in text
    assert "| job sets to choose for | at least 40 | 1 | no |" in text
    assert "## Whole jobs, from the first step to the last" in text
    assert len(found.unseen_completions) == 1
    assert "| advice-naive | naive | resnet50-imagenet64-bs128 |" in text
    assert "Job sets run under several plans to choose from: 1." in text
    assert "| always MPS | 1 | 0.0 % | 0.0 % | 1 of 1 |" in text


def test_a_target_is_met_within_its_bounds_and_never_where_nothing_was_measured():
    said = [Target("x", 0.87, 0.93, reached).cells[-1] for reached in (0.9, 0.95, 0.8, None)]
    assert said == ["yes", "no", "no", "not measured"]
    assert Target("x", 0, 0.05, 0.0).cells == ("x", "at most 5.0 %", "0.0 %", "yes")
