"""Several GPUs on the page: which job runs where and when, and what that gains."""

from dataclasses import replace

import pytest
from streamlit.testing.v1 import AppTest

from advisor.page.answers import PageQuestion, fleet_plan
from advisor.plan.rules import Conditions
from advisor.report.fleet_drawing import jobs_of_plan
from advisor.report.page_jobs import WantedJob
from advisor.workload.job import Job
from tests import shelf
from tests.page.seen import charts, ends, rows_with
from tests.waiting import PATIENCE_S

JOBS = tuple(Job(each) for each in list(shelf.PROFILES.values())[:3])


def script():
    import streamlit as st

    from advisor.page.answers import PageQuestion, advice
    from advisor.page.fleet_view import fleet_view
    from advisor.plan.rules import Conditions
    from advisor.report.page_jobs import WantedJob

    jobs = st.session_state["jobs"]
    wanted = tuple(WantedJob(job.name, deadline_min=job.deadline_s) for job in jobs)
    objective = st.session_state["objective"]
    asked = PageQuestion(jobs[0].profile.gpu, wanted, objective, None, Conditions(), "p50")
    fleet_view(advice(asked, jobs), asked, jobs)


@pytest.fixture
def view(shelved):  # noqa: ARG001
    """The view alone, about three jobs."""
    found = AppTest.from_function(script, default_timeout=PATIENCE_S)
    found.session_state["jobs"], found.session_state["objective"] = JOBS, "makespan"
    return found


def on(view, gpus, **answers):
    """So many GPUs, and these answers to what else is asked."""
    for key, answer in answers.items():
        view.session_state[key.replace("_", " ")] = answer
    view.session_state["gpus"] = gpus
    return view.run()


def figures(view):
    return {each.label: each.value for each in view.metric}


def jobs_table(view):
    """The job of each row, without its number, and the row."""
    return {
        row["job"].partition(" · ")[2]: row for _, row in rows_with(view, "ends after").iterrows()
    }


def files(view):
    return [each.proto.label for each in view.get("download_button")]


def test_nothing_is_searched_until_it_is_said_how_many_gpus_there_are(view):
    view.run()
    assert not view.exception
    assert not view.metric
    assert not view.table


def test_the_best_plan_says_which_job_runs_where_and_when_and_what_that_gains(view):
    on(view, 2)
    assert not view.exception
    assert view.markdown[0].value.startswith("**Run the 3 jobs on 2 GPUs")
    assert list(figures(view)) == [
        "Until all are done", "Gain over one GPU", "Gain over one job per GPU",
    ]  # fmt: skip
    assert float(figures(view)["Gain over one GPU"].removesuffix("x")) >= 1
    rows = jobs_table(view)
    assert rows.keys() == {job.name for job in JOBS}
    assert {row["GPU"] for row in rows.values()} == {"0", "1"}
    assert len(charts(view)) == 1
    assert "./bert-base-finetune-bs16.sh" in view.code[0].value
    assert files(view) == ["Download", "Download as JSON"]


@pytest.mark.usefixtures("shelved")
@pytest.mark.parametrize("gpus", [1, 2])
def test_over_time_each_job_ends_when_the_plan_says(gpus):
    wanted = tuple(WantedJob(job.name) for job in JOBS)
    asked = PageQuestion(shelf.GPU, wanted, "makespan", None, Conditions(), "p50")
    found, simulated = fleet_plan(asked, gpus, JOBS)
    ends_s = {each.number: each.lived.end_s.p50 for each in jobs_of_plan(found, simulated)}
    expected = {number: end_s.p50 for number, end_s in enumerate(found.ends_s, start=1)}
    assert ends_s == pytest.approx(expected)


@pytest.mark.parametrize("policy", ["first-come", "shortest-first", "best-fit"])
def test_a_queue_says_the_same_and_what_it_costs(view, policy):
    on(view, 2, policy=policy, at_once=2, price=3.0)
    assert not view.exception
    assert f"on 2 {shelf.GPU}, {policy}" in view.markdown[0].value
    assert jobs_table(view).keys() == {job.name for job in JOBS}
    facts = ends(view)
    assert "EUR" in facts["GPU-hours"]
    assert files(view) == ["Download the trace, for ui.perfetto.dev", "Download as JSON"]


def test_on_one_gpu_nothing_is_gained_over_one_gpu(view):
    on(view, 1)
    assert not view.exception
    assert "Gain over one GPU" not in figures(view)
    assert {row["GPU"] for row in jobs_table(view).values()} == {"0"}


def test_a_deadline_that_is_missed_is_seen_at_its_job(view):
    late = replace(JOBS[2], deadline_s=0.001)
    view.session_state["jobs"] = (replace(JOBS[0], deadline_s=1e6), JOBS[1], late)
    on(view, 2)
    kept = {name: row["deadline"] for name, row in jobs_table(view).items()}
    assert kept == {JOBS[0].name: "holds", JOBS[1].name: "none", late.name: "late"}


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"policy": "best-fit", "fleet_sharing": "mig=9g.999gb"}, "9g.999gb"),
        ({"policy": "best-fit", "fleet_sharing": "mps[1,2];serial[3]"}, "phases are for"),
        ({"policy": "best-fit", "fleet_sharing": "magic"}, "magic"),
    ],
)
def test_what_cannot_be_asked_of_several_gpus_is_refused_in_words(view, answers, said):
    on(view, 2, **answers)
    assert not view.exception
    assert said in view.error[0].value
    assert not view.metric


def test_jobs_of_unknown_length_are_placed_without_times(view):
    known = JOBS[1].profile
    endless = replace(known, workload=replace(known.workload, examples_per_epoch=None))
    view.session_state["jobs"] = (JOBS[0], Job(endless))
    on(view, 2)
    assert not view.exception
    assert "the length of a job is not known" in view.markdown[0].value
    assert not view.metric
    assert "not measured" in list(rows_with(view, "all done")["all done"])


def test_the_page_asks_it_of_the_jobs_of_its_table_and_a_link_asks_it_again(page):
    for name, value in (("question", "Several GPUs?"), ("gpus", "2"), ("policy", "best-fit")):
        page.query_params[name] = value
    page.run()
    assert not page.exception
    assert any(each.value.endswith(f"on 2 {shelf.GPU}, best-fit.**") for each in page.markdown)
    assert page.query_params["question"] == "Several GPUs?"
    page.number_input(key="gpus").set_value(3).run()
    assert page.query_params["gpus"] == "3"


def test_what_a_link_cannot_ask_of_several_gpus_is_left_out(view):
    view.query_params["gpus"], view.query_params["policy"] = "1e9", "magic"
    view.run()
    assert not view.exception
    assert view.number_input(key="gpus").value is None
    assert view.selectbox(key="policy").value == "the best plan found"
