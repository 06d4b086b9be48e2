"""What may be added to jobs that run already, on the page."""

from dataclasses import replace

import pytest
from streamlit.testing.v1 import AppTest

from advisor.hardware.mps import MpsProcess
from advisor.workload.job import Job
from tests import shelf
from tests.hardware.conftest import install  # noqa: F401 - a fixture
from tests.hardware.nvml import MIB, FakeGpu, FakeLibrary
from tests.page.seen import rows_with
from tests.waiting import PATIENCE_S

JOBS = tuple(Job(each) for each in list(shelf.PROFILES.values())[:3])
RESNET, SMALL, BERT = (f"{number} · {job.name}" for number, job in enumerate(JOBS, 1))


def script():
    import streamlit as st

    from advisor.page.additions_view import additions_view
    from advisor.page.answers import PageQuestion
    from advisor.plan.rules import Conditions
    from advisor.report.page_jobs import WantedJob

    jobs = st.session_state["jobs"]
    wanted = tuple(WantedJob(job.name, deadline_min=job.deadline_s) for job in jobs)
    asked = PageQuestion(jobs[0].profile.gpu, wanted, "makespan", None, Conditions(), "p50")
    additions_view(asked, jobs)


@pytest.fixture
def view(shelved):  # noqa: ARG001
    """The view alone, about three jobs of which those that run may be slowed a lot."""
    found = AppTest.from_function(script, default_timeout=PATIENCE_S)
    found.session_state["jobs"] = JOBS
    found.session_state["hurt"] = 400.0
    return found


def runs(view, *names, how="naive"):
    """These run already, and share the GPU so."""
    view.session_state["running ()"] = list(names)
    view.session_state["running sharing"] = how
    return view.run()


def advised(view):
    """What is advised to add, and its table."""
    return view.markdown[0].value, rows_with(view, "work added")


def test_nothing_is_answered_until_it_is_said_what_runs(view):
    view.run()
    assert not view.exception
    assert view.multiselect[0].options == [RESNET, SMALL, BERT]
    assert view.multiselect[0].value == []
    assert len(view.main) == 3, "the three questions"


def test_what_may_join_what_runs_is_answered_with_how_much_each_is_slowed(view):
    runs(view, RESNET)
    assert not view.exception
    said, table = advised(view)
    assert "to resnet50-imagenet64-bs128, under naive" in said
    assert len(table) == 3, "either of the two others, and both"
    assert set(table["deadlines"]) == {"none"}
    view.selectbox(key="added").set_value("bert-base-finetune-bs16").run()
    assert not view.exception
    already, joins = (row for _, row in rows_with(view, "slower by").iterrows())
    assert (already["job"], already["it"]) == ("resnet50-imagenet64-bs128", "runs already")
    assert already["slower by"].endswith("%, than before")
    assert (joins["job"], joins["it"]) == ("bert-base-finetune-bs16", "joins")
    assert joins["slower by"].endswith("%, than alone")


def test_it_is_said_whether_deadlines_hold(view):
    view.session_state["jobs"] = (*JOBS[:2], replace(JOBS[2], deadline_s=1.0))
    runs(view, RESNET)
    said, table = advised(view)
    assert "all deadlines hold" in said
    late = table["add"].str.contains("bert")
    assert all(each == "late: bert-base-finetune-bs16" for each in table["deadlines"][late])


def test_what_would_hurt_too_much_is_refused_in_words(view):
    view.session_state["hurt"] = 0.0
    runs(view, SMALL)
    assert not view.exception
    assert "none of the jobs may be added" in view.error[0].value
    assert "slows resnet26-cifar10-bs128 by" in view.error[0].value
    assert "Allow more with “May get slower by, %”" in view.error[0].value


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("serial", "run naive, mps or on mig"),
        ("mps=50,50", "2 limits for 1 job"),
        ("magic", "magic"),
    ],
)
def test_a_sharing_that_cannot_be_is_refused_in_words(view, how, said):
    runs(view, RESNET, how=how)
    assert not view.exception
    assert said in view.error[0].value


def test_who_runs_on_mig_is_joined_on_what_is_free_and_that_is_said_to_be_estimated(view):
    runs(view, RESNET, how="mig=3g.71gb@0")
    assert not view.exception
    assert "mig=3g.71gb@0[1]" in advised(view)[0]
    assert any("not confirmed on hardware" in each.value for each in view.caption)


def test_where_all_jobs_run_another_is_asked_for(view):
    runs(view, RESNET, SMALL, BERT)
    assert not view.exception
    assert "All of the jobs run already" in view.info[0].value


@pytest.fixture
def at_hand(install):  # noqa: F811
    """Puts processes on an H200 of this machine."""
    return lambda **how: install(FakeLibrary(FakeGpu(**how)))


BERT_BYTES = int(JOBS[2].profile.memory.device_mib * MIB)


def test_a_process_that_holds_as_much_as_one_job_alone_is_taken_to_be_it(view, at_hand):
    at_hand(processes={11: BERT_BYTES})
    view.run()
    assert not view.exception
    assert view.selectbox[0].value == "as the driver says of GPU 0"
    assert view.multiselect[0].value == [BERT]
    assert "to bert-base-finetune-bs16, under naive" in advised(view)[0]


def test_under_an_mps_server_jobs_are_added_under_mps(view, at_hand, monkeypatch):
    at_hand(processes={7: 30 * MIB}, mps_clients={11: BERT_BYTES})
    served = (MpsProcess(7, "server", "ada", None),)
    monkeypatch.setattr("advisor.hardware.live_gpu.mps_processes", lambda: served)
    view.run()
    assert not view.exception
    assert "to bert-base-finetune-bs16, under mps" in advised(view)[0]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"processes": {11: 4_000 * MIB, 12: None}}, "pid 11 with 4,000 MiB; pid 12"),
        ({"mig": (1, 1)}, "is cut into MIG instances"),
    ],
)
def test_what_the_driver_alone_does_not_tell_is_asked_for(view, at_hand, how, said):
    at_hand(**how)
    view.run()
    assert not view.exception
    assert not view.error
    assert view.multiselect[0].value == []
    assert said in view.info[0].value


def test_an_idle_gpu_is_said_to_be_free(view, at_hand):
    at_hand()
    view.run()
    assert not view.exception
    assert "Nothing runs there now" in view.caption[0].value


def test_a_gpu_of_another_model_is_not_offered_as_what_is_asked_about(view, at_hand):
    at_hand(product="NVIDIA A100-SXM4-40GB")
    view.run()
    assert view.selectbox[0].options == ["naive", "mps"]


def test_the_page_asks_it_of_the_jobs_of_its_table(page):
    page.session_state["question"] = "What may be added?"
    page.session_state["hurt"] = 400.0
    page.run()
    page.multiselect[0].set_value([RESNET]).run()
    assert not page.exception
    assert any(each.value.startswith("**Add ") for each in page.markdown)


def test_a_link_holds_what_runs_already_how_and_how_much_it_may_be_slowed(page):
    page.query_params.update({
        "question": "What may be added?", "running": "1,99", "running-sharing": "mps=50",
        "hurt": "4",
    })  # fmt: skip
    page.run()
    assert not page.exception
    assert page.multiselect[0].value == [RESNET]
    assert page.selectbox(key="running sharing").value == "mps=50"
    assert page.number_input(key="hurt").value == 400.0
    assert page.query_params["running"] == "1"
    assert page.query_params["running-sharing"] == "mps=50"
