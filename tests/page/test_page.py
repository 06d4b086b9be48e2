"""The page: a question and its answer, refusals in words, links and views."""

from typing import get_args

import pytest

from advisor.launch.exports import EXPORTS
from advisor.plan import ObjectiveName
from advisor.workload.writing import write_whole
from tests import shelf
from tests.hardware.conftest import install  # noqa: F401 - a fixture
from tests.page.seen import (
    cap,
    charts,
    choose,
    choose_plan,
    fill_in,
    jobs,
    jobs_of_plan,
    look_at,
    of_each_job,
    outdated,
    ranking,
    rows_with,
)

RESNET, SMALL, BERT = (
    "resnet50-imagenet64-bs128", "resnet26-cifar10-bs128", "bert-base-finetune-bs16",
)  # fmt: skip


def test_the_first_paint_answers_for_the_bundled_jobs_with_figures_and_pictures(page):
    page.run()
    assert not page.exception
    assert page.success[0].value.startswith("### ")
    assert page.selectbox(key="plan").value.startswith("1  ")
    assert jobs_of_plan(page) == [RESNET, SMALL, BERT]
    assert len(page.metric) == 4
    assert len(charts(page)) == 3, "the plans; memory and SMs of the GPU"
    times = [*ranking(page)["total time"], *of_each_job(page)["a step"]]
    assert all("(" in text and "-" in text for text in times), "an interval each"


def test_a_change_of_the_table_of_the_objective_or_of_the_gpu_changes_the_answer(page):
    page.run()
    first = page.success[0].value
    fill_in(page, SMALL, copies=3)
    assert (page.success[0].value != first, len(jobs_of_plan(page))) == (True, 5)
    assert len(page.selectbox(key="objective").options) == len(get_args(ObjectiveName))
    page.selectbox(key="objective").set_value("throughput").run()
    assert "throughput" in page.success[0].value
    page.selectbox(key="gpu").set_value("a100-40gb").run()
    assert not page.exception
    assert jobs(page)[SMALL]["copies"] == 3, "what was typed stays"
    boxes = [*page.success, *page.info, *page.warning]
    assert any(f"Estimated from {shelf.GPU}" in each.value for each in boxes)
    assert all(each.endswith(", estimated") for each in of_each_job(page)["a step alone"])


def test_root_memory_and_power_caps_are_heeded(page):
    page.run()
    energy = ranking(page)["energy"][0]
    cap(page, 250)
    assert ranking(page)["energy"][0] != energy
    assert "power cap of 250 W" in page.warning[0].value
    cap(page, None)
    page.checkbox(key="root").uncheck().run()
    assert not any("mig=" in plan for plan in ranking(page)["plan"])
    page.number_input(key="memory").set_value(100).run()
    assert not page.exception
    assert "memory" in page.error[0].value


@pytest.mark.parametrize(
    ("cells", "named"),
    [
        ({"copies": 0}, "copies"), ({"copies": -2}, "copies"), ({"copies": 1.5}, "copies"),
        ({"copies": 47}, "48"), ({"epochs": 0}, "epochs"), ({"batch": 7777}, "7777"),
        ({"user": " "}, "user"), ({"deadline_min": 0}, "deadline_s"),
    ],
)  # fmt: skip
def test_wrong_cells_are_refused_and_the_last_answer_stays_marked(page, cells, named):
    page.run()
    before = page.success[0].value
    fill_in(page, SMALL, **cells)
    assert not page.exception
    assert named in page.error[0].value
    assert outdated(page)
    assert page.success[0].value == before


def test_jobs_that_fit_nowhere_or_are_none_are_refused_in_words(page):
    page.run()
    choose(page, "dlrm-29gb-bs128")
    assert "missing" in page.error[0].value
    choose(page)
    assert len(page.info) == 1
    cap(choose(page, SMALL), 701)
    assert "700 W" in page.error[0].value
    assert not page.exception


def test_a_damaged_profile_and_an_empty_or_missing_shelf_are_named(page, elsewhere, monkeypatch):
    assert "advisor profile" in page.run().info[0].value
    write_whole(elsewhere / shelf.GPU / "broken.json", '{"workload": 3}')
    assert "broken.json" in page.run().error[0].value
    monkeypatch.setenv("ADVISOR_PROFILES", str(elsewhere / "nowhere"))
    assert "nowhere" in page.run().error[0].value
    assert not page.exception


@pytest.mark.parametrize("plan", ["serial", "mps=", "mig=", ";"])
def test_every_kind_of_plan_has_its_views(page, plan):
    choose_plan(page.run(), plan)
    look_at(page, "Over time")
    rank = page.selectbox(key="plan").value.split()[0]
    (row,) = [row for _, row in ranking(page).iterrows() if row["rank"] == rank]
    ends = dict(rows_with(page, "over time").itertuples(index=False))
    assert (ends["total time"], ends["energy"]) == (
        row["total time"], row["energy"])  # fmt: skip
    look_at(page, "Slowdown of each job")
    look_at(page, "Compare with another plan")
    assert not page.exception
    assert len([each for each in page.table if "change" in each.value]) == 1 + 3
    assert ("mig=" in plan) == any("not confirmed" in each.value for each in page.warning)


def test_a_plan_can_be_copied_and_downloaded_in_every_format_or_it_is_said_why_not(page):
    look_at(choose_plan(page.run(), "mps="), "Apply it")
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" in page.code[0].value
    assert page.selectbox(key="format").options == list(EXPORTS)
    for form in EXPORTS:
        page.selectbox(key="format").set_value(form).run()
        assert not page.exception
        assert page.code or page.info
    assert page.get("download_button")


def test_a_link_restores_the_question_and_follows_what_is_changed(page):
    page.query_params.update({"objective": "throughput", "memory-margin": "0.2", "plan": "mps"})
    page.query_params["job"] = [f"{BERT}:2:3", "nobody-knows:1", SMALL]
    page.run()
    assert not page.exception
    assert page.selectbox(key="objective").value == "throughput"
    assert page.number_input(key="memory").value == 20
    assert page.selectbox(key="plan").value.endswith("  mps")
    assert (jobs(page)[BERT]["copies"], jobs(page)[BERT]["epochs"]) == (2, 3)
    assert any("nobody-knows" in each.value for each in page.info)
    fill_in(page, BERT, copies=1)
    assert page.query_params["job"] == [f"{BERT}:1:3", f"{SMALL}:1:1"]


def test_a_hostile_link_asks_what_the_page_asks_of_itself(page):
    for name in ("gpu", "objective", "job", "plan", "trials", "file", "root", "power-cap"):
        page.query_params[name] = ["<script>alert(1)</script>", "../../etc", "%00", "9" * 999]
    page.query_params["memory-margin"] = "1e-320"
    page.run()
    assert not [*page.exception, *page.error]
    assert len(jobs_of_plan(page)) == 3
