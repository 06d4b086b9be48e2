"""The page, as somebody uses it: from the first paint to a wrong choice."""

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from advisor.planning.plan import Objective
from advisor.workload.writing import calibration_text, profile_text, write_whole
from tests import shelf
from tests.calibration.recorded import calibration

PAGE = Path(__file__).parents[1] / "app.py"


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shelf")
    shelf.fill(folder)
    return folder


@pytest.fixture
def page(filled, monkeypatch, tmp_path):
    monkeypatch.setenv("ADVISOR_PROFILES", str(filled / "profiles"))
    monkeypatch.setenv("ADVISOR_MODELS", str(filled / "models"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    st.cache_resource.clear()
    return AppTest.from_file(str(PAGE), default_timeout=60)


def choose(page, *names):
    return page.multiselect(key=f"jobs {shelf.GPU}").set_value(list(names)).run()


def cap(page, watts):
    return page.number_input(key="power cap").set_value(watts).run()


def charts(page):
    return [element for element in page.get("vega_lite_chart") + page.get("arrow_vega_lite_chart")]


def test_a_calibrated_machine_is_said_to_be_one(page, tmp_path):
    own = tmp_path / "advisor" / "calibrations"
    own.mkdir(parents=True)
    (own / f"{shelf.GPU}.json").write_text(calibration_text(calibration()))
    page.run()
    assert not page.exception
    assert any(said.value.startswith("Calibrated") for said in page.caption)


def test_the_first_paint_answers_for_the_bundled_jobs(page):
    page.run()
    assert not page.exception
    assert "3" in page.success[0].value
    assert page.selectbox(key="plan").value.startswith("1  ")
    assert list(page.dataframe[0].value["job"]) == [
        "resnet50-imagenet64-bs128", "resnet26-cifar10-bs128", "bert-base-finetune-bs16",
    ]  # fmt: skip
    assert page.number_input(key="epochs resnet26-cifar10-bs128").value == 150
    assert len(charts(page)) == 3


def test_every_predicted_time_is_shown_with_its_interval(page):
    page.run()
    times = [*page.table[0].value["until all are done"], *page.dataframe[0].value["a step"]]
    assert times
    assert all("(" in text and "-" in text for text in times)


def test_a_changed_count_changes_the_answer(page):
    page.run()
    before = page.success[0].value
    page.number_input(key="copies resnet26-cifar10-bs128").set_value(3).run()
    assert not page.exception
    assert page.success[0].value != before
    assert len(page.dataframe[0].value) == 5


def test_another_objective_ranks_by_it(page):
    page.run()
    page.radio(key="objective").set_value("throughput").run()
    assert not page.exception
    assert "throughput" in page.success[0].value


@pytest.mark.parametrize(
    ("objective", "said"),
    [("energy-epoch", "for an epoch of"), ("energy-example", "an example of")],
)
def test_energy_per_epoch_and_per_example_are_objectives_too(page, objective, said):
    page.run()
    page.radio(key="objective").set_value(objective).run()
    assert not page.exception
    assert not page.error
    assert said in page.success[0].value


def test_the_page_offers_every_objective_that_there_is(page):
    page.run()
    assert len(page.radio(key="objective").options) == len(get_args(Objective))


def test_under_a_power_cap_all_says_that_its_effect_was_not_measured_here(page):
    page.run()
    before = page.table[0].value["energy"][0]
    cap(page, 250)
    assert not page.exception
    assert page.table[0].value["energy"][0] != before
    assert "power cap of 250 W: not measured on this GPU" in page.success[0].value
    assert "power cap of 250 W: not measured on this GPU" in page.warning[0].value
    assert set(page.table[0].value["stands on"]) == {"an estimate"}
    cap(page, None)
    assert page.table[0].value["energy"][0] == before


@pytest.mark.parametrize("watts", [-300, 0, 701, 1e300])
def test_a_power_cap_that_cannot_be_set_is_refused_in_words(page, watts):
    page.run()
    cap(page, watts)
    assert not page.exception
    assert "at most 700 W" in page.error[0].value
    assert not page.success


def test_a_power_cap_over_jobs_whose_power_nobody_measured_is_refused_in_words(
    page, monkeypatch, tmp_path
):
    dark = replace(shelf.PROFILES["resnet26-cifar10-bs128"], power_w=None, energy_j=None)
    folder = tmp_path / "profiles"
    write_whole(folder / shelf.GPU / f"{dark.name}.json", profile_text(dark))
    monkeypatch.setenv("ADVISOR_PROFILES", str(folder))
    page.run()
    assert page.success, "without a cap its power is not needed"
    cap(page, 300)
    assert not page.exception
    assert "needs the power of every job" in page.error[0].value


def test_a_mig_plan_is_labelled_as_estimated(page):
    page.run()
    (mig, *_) = [name for name in page.selectbox(key="plan").options if "mig=" in name]
    page.selectbox(key="plan").set_value(mig).run()
    assert not page.exception
    assert "not confirmed on hardware" in page.warning[0].value
    labels = dict(zip(page.table[0].value["plan"], page.table[0].value["stands on"], strict=True))
    assert {label for plan, label in labels.items() if "mig=" in plan} == {"an estimate"}


def test_commands_of_the_plan_in_view_can_be_copied(page):
    page.run()
    (mps, *_) = [name for name in page.selectbox(key="plan").options if "mps=" in name]
    page.selectbox(key="plan").set_value(mps).run()
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" in page.code[0].value


def test_jobs_that_do_not_fit_together_are_listed_as_left_out(page):
    page.run()
    choose(page, "dlrm-29gb-bs32", "resnet50-imagenet64-bs128")
    page.number_input(key="copies dlrm-29gb-bs32").set_value(2).run()
    assert not page.exception
    assert "one after another" in page.success[0].value
    assert any("does not fit" in each.value for each in page.markdown)


def test_a_job_that_fits_nowhere_is_explained_without_a_traceback(page):
    page.run()
    choose(page, "dlrm-29gb-bs128")
    assert not page.exception
    assert "does not fit" in page.error[0].value
    assert "missing" in page.error[0].value
    assert not page.success


def test_no_job_chosen_asks_for_one(page):
    page.run()
    choose(page)
    assert not page.exception
    assert [each.value for each in page.info] == ["Choose at least one job."]
    assert not page.success


def test_more_jobs_than_a_gpu_serves_are_refused_in_words(page):
    page.run()
    page.number_input(key="copies resnet26-cifar10-bs128").set_value(47).run()
    assert not page.exception
    assert "48 at most" in page.error[0].value


def test_a_damaged_profile_is_named(page, tmp_path, monkeypatch):
    folder = tmp_path / "profiles" / shelf.GPU
    folder.mkdir(parents=True)
    (folder / "broken.json").write_text('{"workload": 3}')
    monkeypatch.setenv("ADVISOR_PROFILES", str(tmp_path / "profiles"))
    page.run()
    assert not page.exception
    assert "broken.json" in page.error[0].value


def test_an_empty_shelf_says_how_to_fill_it(page, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("ADVISOR_PROFILES", str(tmp_path / "empty"))
    page.run()
    assert not page.exception
    assert "advisor profile" in page.info[0].value


def test_a_folder_that_is_not_there_is_named(page, monkeypatch):
    monkeypatch.setenv("ADVISOR_PROFILES", "nowhere/at/all")
    page.run()
    assert not page.exception
    assert "no such folder" in page.error[0].value
