"""The plans on the page: drawn, over time, to be applied, and what each figure stands on."""

from dataclasses import replace

import pytest

from advisor.launch.exports import EXPORTS
from advisor.workload.writing import profile_text, write_whole
from tests import shelf
from tests.page.seen import (
    charts,
    choose,
    choose_plan,
    ends,
    fill_in,
    in_the_ring,
    jobs,
    jobs_of_plan,
    legend,
    look_at,
    of_each_job,
    ranking,
)


def test_the_first_paint_answers_for_the_bundled_jobs(page):
    page.run()
    assert not page.exception
    assert "3" in page.success[0].value
    assert page.selectbox(key="plan").value.startswith("1  ")
    assert jobs_of_plan(page) == [
        "resnet50-imagenet64-bs128", "resnet26-cifar10-bs128", "bert-base-finetune-bs16",
    ]  # fmt: skip
    assert jobs(page)["resnet26-cifar10-bs128"]["epochs"] == 150
    assert len(charts(page)) == 1 + 2, "the plans; memory and SMs of the GPU"


def test_the_answer_comes_first_then_its_figures_then_all_plans_as_a_picture(page):
    page.run()
    drawn = [each.type.removeprefix("arrow_") for each in page.main]
    assert page.success[0].value.startswith("### MPS")
    assert drawn.index("success") < drawn.index("vega_lite_chart") < drawn.index("selectbox")
    assert [each.label for each in page.metric] == [
        "Until all are done", "Gain over serial", "Memory", "Power",
    ]  # fmt: skip
    assert page.metric[0].delta.startswith("serial ")
    assert page.metric[1].delta == "predicted, from real runs of this kind"


def test_every_predicted_time_is_shown_with_its_interval(page):
    page.run()
    times = [*ranking(page)["until all are done"], *of_each_job(page)["a step"]]
    assert times
    assert all("(" in text and "-" in text for text in times)


def test_a_mig_plan_is_labelled_as_estimated(page):
    page.run()
    choose_plan(page, "mig=")
    assert not page.exception
    assert "not confirmed on hardware" in page.warning[0].value
    labels = dict(zip(ranking(page)["plan"], ranking(page)["stands on"], strict=True))
    of_mig = {label for plan, label in labels.items() if "mig=" in plan}
    assert of_mig == {"estimated"}
    assert labels["mps"] == "predicted"


def test_the_plan_that_is_looked_at_has_a_ring_on_the_first_screen(page):
    page.run()
    assert in_the_ring(page) == "1"
    chosen = choose_plan(page, "serial").selectbox(key="plan").value
    assert in_the_ring(page) == chosen.split()[0]


def test_how_mig_cuts_up_the_gpu_is_drawn(page):
    page.run()
    without = len(charts(page))
    choose_plan(page, "mig=")
    assert len(charts(page)) == without + 1


def test_a_step_alone_is_measured_and_a_shared_one_predicted(page):
    page.run()
    (alone, *_) = of_each_job(page)["a step alone"]
    (shared, *_) = of_each_job(page)["a step"]
    assert alone == "30.0 ms, measured"
    assert "(" in shared
    assert any(said.value.startswith("**Measured** is each job alone") for said in page.markdown)


def test_on_a_gpu_that_nobody_measured_nothing_is_said_to_be(page):
    page.run()
    page.selectbox(key="gpu").set_value("a100-40gb").run()
    assert not page.exception
    assert all(each.endswith(", estimated") for each in of_each_job(page)["a step alone"])
    assert legend(charts(page)[0]) == ["estimated from other GPUs"]
    page.selectbox(key="trials").set_value("resnet26-cifar10-bs128").run()
    assert legend(charts(page)[-1]) == ["estimated from other GPUs"]


@pytest.mark.parametrize("plan", ["serial", "mps=", "mig=", ";"])
def test_over_time_the_jobs_end_when_the_plan_says(page, plan):
    page.run()
    choose_plan(page, plan)
    look_at(page, "Over time")
    assert not page.exception
    assert len(charts(page)) == 1 + 1 + 4, "the plans; jobs over time, and four curves"
    rank = page.selectbox(key="plan").value.split()[0]
    (row,) = [row for _, row in ranking(page).iterrows() if row["rank"] == rank]
    assert ends(page)["until all are done"] == row["until all are done"]
    assert ends(page)["energy"] == row["energy"]


def test_a_job_of_unknown_length_is_ranked_and_what_comes_of_it_over_time_is_asked_for(
    page, elsewhere
):
    known = shelf.PROFILES["resnet26-cifar10-bs128"]
    endless = replace(known, workload=replace(known.workload, examples_per_epoch=None))
    write_whole(elsewhere / shelf.GPU / f"{endless.name}.json", profile_text(endless))
    page.run()
    assert not page.exception
    assert not page.error
    look_at(page, "Over time")
    assert not page.exception
    assert any("the length of an epoch of" in said.value for said in page.info)


def test_commands_of_the_plan_in_view_can_be_copied(page):
    page.run()
    choose_plan(page, "mps=")
    look_at(page, "Apply it")
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" in page.code[0].value


def test_plans_can_be_downloaded_as_csv_as_json_and_one_as_any_tool_reads_it(page):
    look_at(page.run(), "Apply it")
    labels = [each.proto.label for each in page.get("download_button")]
    assert labels == ["Download", "Download as CSV", "Download as JSON"]
    choose_plan(page, "mig=")
    assert page.selectbox(key="format").options == list(EXPORTS)
    for form in EXPORTS:
        page.selectbox(key="format").set_value(form).run()
        assert not page.exception
        assert bool(page.code) == any("Untested on MIG" in said.value for said in page.warning)
        assert page.code or page.info, "the file, or why there is none"


def test_a_format_that_cannot_say_a_plan_says_so(page):
    page.run()
    choose_plan(page, "mps=")
    look_at(page, "Apply it")
    page.selectbox(key="format").set_value("radt").run()
    assert not page.exception
    assert not page.code
    assert any("radT" in said.value for said in page.info)


def test_jobs_that_do_not_fit_together_are_listed_as_left_out(page):
    page.run()
    choose(page, "dlrm-29gb-bs32", "resnet50-imagenet64-bs128")
    fill_in(page, "dlrm-29gb-bs32", copies=2)
    assert not page.exception
    plans = [name.split()[1] for name in page.selectbox(key="plan").options]
    assert "serial" in plans
    assert not {"naive", "mps"} & set(plans)
    assert any("does not fit" in each.value for each in page.markdown)


def test_a_click_on_a_point_of_the_chart_chooses_the_plan(page):
    page.run()
    assert page.selectbox(key="plan").value.startswith("1  ")
    page.session_state["chart"] = {"selection": {"chosen": [{"number": 2}]}}
    page.run()
    assert not page.exception
    assert page.selectbox(key="plan").value.startswith("3  ")


def test_a_click_on_a_row_chooses_the_plan_and_another_plan_can_be_chosen_after_it(page):
    page.run()
    page.session_state["ranking"] = {"selection": {"rows": [1], "columns": [], "cells": []}}
    page.run()
    assert not page.exception
    assert page.selectbox(key="plan").value.startswith("2  ")
    choose_plan(page, "serial")
    assert "serial" in page.selectbox(key="plan").value


def test_a_figure_without_a_unit_is_explained_where_it_stands(page):
    page.run()
    page.selectbox(key="objective").set_value("throughput").run()
    said = [each.value for each in page.caption]
    assert any(each.startswith(f"{page.metric[0].label}: ") for each in said)


def test_rows_are_high_enough_to_wrap_where_a_plan_has_a_long_name(page):
    page.run()
    assert max(map(len, ranking(page)["plan"])) > 36
    assert page.main.dataframe[-1].proto.row_height == 65
    choose(page, "resnet26-cifar10-bs128")
    assert max(map(len, ranking(page)["plan"])) <= 36
    assert page.main.dataframe[-1].proto.row_height == 0, "the usual height"
