"""What is asked on the page, and the answer: from the first paint to a wrong choice."""

from dataclasses import replace
from typing import get_args

import pytest

from advisor.hardware.catalogue import gpu, keep_gpu
from advisor.plan import ObjectiveName
from advisor.plan.precedence import CLOSE
from advisor.workload.minimal_profile import MinimalProfile, minimal_text
from advisor.workload.writing import calibration_text, profile_text, write_whole
from tests import shelf
from tests.hardware.conftest import install  # noqa: F401 - a fixture
from tests.hardware.nvml import FakeGpu, FakeLibrary
from tests.measure.calibrate.recorded import calibration
from tests.page.seen import (
    cap,
    captions,
    choose,
    choose_plan,
    fill_in,
    jobs,
    jobs_of_plan,
    look_at,
    outdated,
    ranking,
)


@pytest.mark.usefixtures("unremembered")
def test_a_calibrated_machine_is_said_to_be_one(page, tmp_path):
    own = tmp_path / "advisor" / "calibrations"
    own.mkdir(parents=True)
    (own / f"{shelf.GPU}.json").write_text(calibration_text(calibration()))
    page.run()
    assert not page.exception
    assert "Calibrated" in page.success[0].value


def test_a_changed_count_changes_the_answer(page):
    page.run()
    before = page.success[0].value
    fill_in(page, "resnet26-cifar10-bs128", copies=3)
    assert not page.exception
    assert page.success[0].value != before
    assert len(jobs_of_plan(page)) == 5


def test_another_objective_ranks_by_it(page):
    page.run()
    page.selectbox(key="objective").set_value("throughput").run()
    assert not page.exception
    assert "throughput" in page.success[0].value


def test_the_page_offers_every_objective_that_there_is(page):
    page.run()
    assert len(page.selectbox(key="objective").options) == len(get_args(ObjectiveName))


def test_under_a_power_cap_all_says_that_its_effect_was_not_measured_here(page):
    page.run()
    before = ranking(page)["energy"][0]
    cap(page, 250)
    assert not page.exception
    assert ranking(page)["energy"][0] != before
    assert "power cap of 250 W: not measured on this GPU" in page.success[0].value
    assert "power cap of 250 W: not measured on this GPU" in page.warning[0].value
    assert set(ranking(page)["stands on"]) == {"estimated"}
    cap(page, None)
    assert ranking(page)["energy"][0] == before


def test_plans_that_choose_a_power_cap_say_which_unless_one_is_given(page):
    page.run()
    page.selectbox(key="objective").set_value("energy").run()
    page.checkbox(key="power caps").check().run()
    assert not page.exception
    assert any(plan.endswith(" W") for plan in ranking(page)["plan"])
    choose_plan(page, " at most ")
    assert not page.exception
    assert "Under a power cap" in page.warning[0].value
    assert page.number_input(key="power cap").disabled
    page.checkbox(key="power caps").uncheck().run()
    cap(page, 400)
    assert page.checkbox(key="power caps").disabled
    assert "all plans run under the cap above" in captions(page)
    assert not page.error


def test_what_nothing_would_come_of_cannot_be_ticked_and_the_page_says_why(page):
    page.run()
    assert page.checkbox(key="power caps").disabled
    assert "a cap makes no job faster" in captions(page)
    page.selectbox(key="gpu").set_value("l40s-48gb").run()
    assert page.checkbox(key="root").disabled
    assert "l40s-48gb has no MIG" in captions(page)
    page.selectbox(key="objective").set_value("energy").run()
    assert not page.checkbox(key="root").disabled, "setting a power cap takes root"
    page.checkbox(key="root").uncheck().run()
    assert page.checkbox(key="power caps").disabled
    assert "setting one takes root" in captions(page)
    fill_in(page, "resnet26-cifar10-bs128", isolated=True)
    assert "a job that is to be alone runs while no other does" in captions(page)
    assert not page.exception


@pytest.mark.parametrize("watts", [-300, 0, 701, 1e300])
def test_a_power_cap_that_cannot_be_set_is_refused_in_words(page, watts):
    page.run()
    cap(page, watts)
    assert not page.exception
    assert "W to 700 W" in page.error[0].value
    assert outdated(page)


def test_a_power_cap_over_jobs_whose_power_nobody_measured_is_refused_in_words(page, elsewhere):
    dark = replace(shelf.PROFILES["resnet26-cifar10-bs128"], power_w=None, energy_j=None)
    write_whole(elsewhere / shelf.GPU / f"{dark.name}.json", profile_text(dark))
    page.run()
    assert page.warning[0].value.startswith("### Make the host's part faster first: ")
    look_at(page, "Over time")
    assert any(said.value == "power, W: not measured" for said in page.caption)
    cap(page, 300)
    assert not page.exception
    assert "needs the power of every job" in page.error[0].value


def test_without_root_no_plan_needs_mig(page):
    page.run()
    page.checkbox(key="root").uncheck().run()
    assert not page.exception
    assert not any("mig=" in plan for plan in ranking(page)["plan"])
    assert any("takes root" in said.value for said in page.markdown)


@pytest.mark.parametrize("free", [-1, 100, 1e9])
def test_memory_that_cannot_be_kept_free_is_refused_in_words(page, free):
    page.run()
    page.number_input(key="memory").set_value(free).run()
    assert not page.exception
    assert "a memory margin is a share" in page.error[0].value


def test_ranked_by_upper_ends_the_first_plan_gains_most_at_worst(page):
    page.run()
    page.checkbox(key="pessimistic").check().run()
    assert not page.exception
    sure = ranking(page)[ranking(page)["stands on"] == "predicted"]
    at_worst = [float(text.partition("(")[2].partition("-")[0]) for text in sure["gain over serial"]
                if "(" in text]  # fmt: skip
    assert len(at_worst) > 1
    assert max(at_worst) <= at_worst[0] * (1 + CLOSE) + 0.01  # shown with two decimals


def test_deadlines_are_asked_for_whatever_is_best(page):
    page.run()
    name = "resnet26-cifar10-bs128"
    page.selectbox(key="objective").set_value("deadlines").run()
    assert "No job has a deadline" in page.sidebar.info[0].value
    fill_in(page, name, deadline_min=1000)
    assert not page.exception
    assert not page.error
    assert not page.sidebar.info
    assert "every deadline is kept" in page.success[0].value
    fill_in(page, name, deadline_min=-1)
    assert "deadline_s must be above 0" in page.error[0].value


def test_a_job_that_fits_nowhere_is_explained_without_a_traceback(page):
    page.run()
    choose(page, "dlrm-29gb-bs128")
    assert not page.exception
    assert "does not fit" in page.error[0].value
    assert "missing" in page.error[0].value
    assert outdated(page)


def test_no_job_chosen_asks_for_one(page):
    page.run()
    choose(page)
    assert not page.exception
    assert [each.value for each in page.info] == ["Choose at least one job."]
    assert outdated(page)


def test_more_jobs_than_a_gpu_serves_are_refused_in_words(page):
    page.run()
    fill_in(page, "resnet26-cifar10-bs128", copies=47)
    assert not page.exception
    assert "Use 1 to 48" in page.error[0].value


def test_a_job_of_which_only_numbers_are_known_is_answered(page, elsewhere):
    known = MinimalProfile(
        schema=1, workload="my-job", gpu=shelf.GPU, batch_size=64, step_s=0.12, memory_mib=5300,
        power_w=None, gpu_utilization=0.83, memory_utilization=None,
    )  # fmt: skip
    write_whole(elsewhere / shelf.GPU / "my-job.json", minimal_text(known))
    page.run()
    fill_in(page, "my-job", copies=2)
    assert not page.exception
    assert not page.error
    assert "naive" in ranking(page)["plan"].to_list()


def test_a_damaged_profile_is_named(page, elsewhere):
    (elsewhere / shelf.GPU).mkdir()
    (elsewhere / shelf.GPU / "broken.json").write_text('{"workload": 3}')
    page.run()
    assert not page.exception
    assert "broken.json" in page.error[0].value


def test_an_empty_shelf_says_how_to_fill_it(page, elsewhere):
    page.run()
    assert not page.exception
    assert "advisor profile" in page.info[0].value
    assert not any(elsewhere.iterdir())


def test_a_folder_that_is_not_there_is_named(page, elsewhere, monkeypatch):
    monkeypatch.setenv("ADVISOR_PROFILES", str(elsewhere / "nowhere"))
    page.run()
    assert not page.exception
    assert "no such folder" in page.error[0].value


def test_a_gpu_on_which_nobody_measured_is_answered_for_by_estimates_and_the_page_says_so(page):
    page.run()
    page.selectbox(key="gpu").set_value("a100-40gb").run()
    assert not page.exception
    said = [*page.success, *page.info, *page.warning]
    assert any(f"Estimated from {shelf.GPU}" in each.value for each in said)


@pytest.mark.usefixtures("unremembered")
def test_a_gpu_that_only_its_driver_described_is_answered_for(page, tmp_path):
    listed = gpu("h100-sxm-80gb")
    described = replace(
        listed, key="h800-80gb", products=("NVIDIA H800",), sms=120, rates=None,
        sources={"driver": "driver 580 of the GPU at hand"},
    )  # fmt: skip
    keep_gpu(described)
    for each in list(shelf.PROFILES.values())[:2]:
        write_whole(tmp_path / "advisor" / "profiles" / described.key / f"{each.name}.json",
                    profile_text(replace(each, gpu=described.key)))  # fmt: skip
    page.run()
    page.selectbox(key="gpu").set_value(described.key).run()
    choose(page, *list(shelf.PROFILES)[:2])
    choose_plan(page, "naive")
    assert not page.exception
    shown = [each.value for each in page.warning]
    assert any("stimated from h200-141gb, never measured on an h800-80gb" in said for said in shown)


def test_a_link_restores_what_was_asked(page):
    page.query_params["objective"] = "throughput"
    page.query_params["job"] = [
        "bert-base-finetune-bs16:2:3",
        "nobody-knows:1",
        "resnet26-cifar10-bs128",
    ]
    page.run()
    assert not page.exception
    assert page.selectbox(key="objective").value == "throughput"
    assert jobs(page)["bert-base-finetune-bs16"]["copies"] == 2
    assert jobs(page)["bert-base-finetune-bs16"]["epochs"] == 3
    assert len(jobs_of_plan(page)) == 3
    unknown = "The link also asks about `nobody-knows`, of which there is no profile here."
    assert unknown in [each.value for each in page.info]
    fill_in(page, "bert-base-finetune-bs16", copies=1)
    assert not page.exception
    assert unknown not in [each.value for each in page.info]
    assert page.query_params["job"] == ["bert-base-finetune-bs16:1:3", "resnet26-cifar10-bs128:1:1"]
    assert "throughput" in page.query_params["objective"]


def test_a_link_restores_conditions_and_what_is_looked_at(page):
    page.query_params.update({
        "objective": "energy", "power-cap": "auto", "memory-margin": "0.2", "pessimistic": "yes",
        "plan": "mps", "trials": "resnet26-cifar10-bs128",
    })  # fmt: skip
    page.run()
    assert not page.exception
    assert page.checkbox(key="power caps").value
    assert page.number_input(key="power cap").disabled
    assert page.number_input(key="memory").value == 20
    assert page.checkbox(key="pessimistic").value
    assert page.selectbox(key="plan").value.endswith("  mps")
    assert page.selectbox(key="trials").value == "resnet26-cifar10-bs128"
    assert page.query_params["plan"] == "mps"
    page.checkbox(key="power caps").uncheck().run()
    page.checkbox(key="root").uncheck().run()
    cap(page, 400)
    page.selectbox(key="plan").set_value(page.selectbox(key="plan").options[0]).run()
    assert not page.exception
    assert page.query_params["power-cap"] == "400"
    assert page.query_params["root"] == "no"
    assert "plan" not in page.query_params


def test_a_hostile_link_gives_no_traceback_and_asks_what_the_page_asks_of_itself(page):
    for name in ("gpu", "objective", "job", "plan", "trials", "file", "root", "power-cap"):
        page.query_params[name] = [
            "<script>alert(1)</script>",
            "../../etc/passwd",
            "%00",
            "9" * 999,
        ]
    page.query_params["memory-margin"] = "1e-320"
    page.run()
    assert not page.exception
    assert not page.error
    assert len(jobs_of_plan(page)) == 3


def test_a_link_whose_cap_the_gpu_cannot_be_set_to_says_so_at_the_field(page):
    page.query_params["power-cap"] = "5000"
    page.run()
    assert not page.exception
    assert "W to 700 W" in page.error[0].value


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"copies": 0}, "with 0 copies there is no job"),
        ({"copies": -2}, "there cannot be -2 copies"),
        ({"copies": 1.5}, "copies is a whole number"),
        ({"epochs": 0}, "epochs must be above 0"),
        ({"epochs": 1e12}, "epochs"),
        ({"batch": 7777}, "7777"),
        ({"batch": 0}, "bs0"),
        ({"user": " "}, "a user has a name"),
        ({"deadline_min": 0}, "deadline_s must be above 0"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence_by_the_table(page, cells, said):
    page.run()
    fill_in(page, "resnet26-cifar10-bs128", **cells)
    assert not page.exception
    assert said in page.error[0].value


def test_jobs_of_two_users_do_not_share_an_mps_server(page):
    page.run()
    fill_in(page, "resnet26-cifar10-bs128", user="ada")
    fill_in(page, "bert-base-finetune-bs16", user="grace")
    assert not page.exception
    assert not page.error
    assert "mps" not in ranking(page)["plan"].to_list()


def test_a_job_that_is_to_be_alone_shares_no_memory(page):
    page.run()
    fill_in(page, "resnet26-cifar10-bs128", isolated=True)
    assert not page.exception
    assert not {"mps", "naive"} & set(ranking(page)["plan"])


def test_one_workload_twice_with_other_cells_is_two_jobs_and_a_link_asks_both(page):
    page.query_params["job"] = ["bert-base-finetune-bs16:1:3:user=a%20b",
                                "bert-base-finetune-bs16:2:1:due=900:isolated"]  # fmt: skip
    page.run()
    assert not page.exception
    assert len(jobs_of_plan(page)) == 3
    first, second = page.session_state["job table"].now
    assert (first["user"], second["deadline_min"], second["isolated"]) == ("a b", 900, True)
    assert page.query_params["job"][1].endswith(":2:1:due=900:isolated")


def test_the_gpu_of_this_machine_is_chosen_and_named_and_what_stands_behind_it_is_said(
    page,
    install,  # noqa: F811
):
    install(FakeLibrary(FakeGpu("NVIDIA A100-SXM4-40GB")))
    page.run()
    assert not page.exception
    assert page.selectbox(key="gpu").value == "a100-40gb"
    first, second, *_ = page.selectbox(key="gpu").options
    assert (first, second) == ("a100-40gb: in this machine", f"{shelf.GPU}: measured")
    said = f"Nothing was measured on it: all answers are estimated from {shelf.GPU}."
    assert page.sidebar.caption[0].value.endswith(said)


def test_what_was_typed_stays_on_another_gpu(page):
    page.run()
    fill_in(page, "resnet26-cifar10-bs128", copies=3)
    page.selectbox(key="gpu").set_value("a100-40gb").run()
    assert not page.exception
    assert jobs(page)["resnet26-cifar10-bs128"]["copies"] == 3
    assert len(jobs_of_plan(page)) == 5


def test_a_batch_size_that_was_measured_is_taken(page):
    page.run()
    choose(page, "dlrm-29gb-bs128", batch=32)
    assert not page.exception
    assert not page.error
    assert jobs_of_plan(page) == ["dlrm-29gb-bs32"]


def test_the_last_answer_stays_marked_until_what_is_asked_can_be_answered_again(page):
    page.run()
    before = page.success[0].value
    fill_in(page, "resnet26-cifar10-bs128", copies=0)
    assert not page.exception
    assert outdated(page)
    assert page.success[0].value == before
    assert len(page.error) == 1
    fill_in(page, "resnet26-cifar10-bs128", copies=1)
    assert not page.error
    assert not outdated(page)
