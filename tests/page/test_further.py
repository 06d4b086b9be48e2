"""The second page: trials, what may be added, several GPUs, batches, this machine."""

import pytest

from advisor.api import Advisor
from advisor.plan import START_S
from advisor.plan.trials import TrialTerms
from advisor.report import charts
from advisor.report.headline import headline
from tests import shelf
from tests.hardware.nvml import MIB, FakeGpu, FakeLibrary
from tests.page.seen import charts as charts_of
from tests.page.seen import line, rows_with, words, wrong

RESNET, SMALL, BERT = list(shelf.PROFILES)[:3]


def ask(page, question, **link):
    page.query_params.update({"ask": question} | link)
    page.run()
    assert not [*page.exception, *page.error]
    return page


def test_trials_that_run_at_once_are_more_an_hour(more_page):
    table = rows_with(ask(more_page, "Trials of a search", job=SMALL), "at once")
    assert list(table["at once"])[:2] == [1, 2]
    assert table["trials an hour"].max() > 1.1 * table["trials an hour"][0]
    assert (table["from"] <= table["trials an hour"]).all()
    assert (table["trials an hour"] <= table["to"]).all()
    advisor = Advisor(shelf.GPU)
    search = advisor.trials(advisor.chosen_jobs()[1], TrialTerms(start_s=START_S))
    advised = table[table["at once"] == search.at_once]["trials an hour"].item()
    assert advised == search.trials_per_hour.p50, "the headline's"
    drawn = charts.trials_chart(search.hosts[0].trials).to_dict(validate=False)["layer"]
    middles = [row["middle"] for layer in drawn for row in layer["data"]["values"]]
    assert {*table["trials an hour"]} == {*middles}


def test_on_two_gpus_each_job_has_a_gpu_and_an_end_as_in_the_plan_of_the_library(more_page):
    table = rows_with(ask(more_page, "Several GPUs"), "ends, min")
    advisor = Advisor(shelf.GPU)
    plan = advisor.recommend(advisor.chosen_jobs(), gpus=2)
    assert line(more_page) == f"## {headline(plan, plan.best)}"
    assert {name.partition(" · ")[2] for name in table["job"]} == {RESNET, SMALL, BERT}
    assert set(table["GPU"]) == {0, 1}
    assert (table["from"] <= table["ends, min"]).all()


@pytest.mark.parametrize(("how", "estimated"), [("naive", False), ("mig=3g.71gb@0", True)])
def test_what_may_join_is_a_table(more_page, how, estimated):
    ask(more_page, "Add a job", running=f"1 · {RESNET}", by=how, max_slowdown="400")
    table = rows_with(more_page, "work added")
    assert (table["slowed by, %"] <= 400).all()
    assert not any("resnet50" in added for added in table["add"])
    assert estimated == ("not confirmed on hardware" in " ".join(words(more_page.caption)))


def test_what_slows_a_job_too_much_may_not_join_and_the_reason_is_there(more_page):
    ask(more_page, "Add a job", by="naive", max_slowdown="0")
    assert line(more_page) == "## No other job may join."
    assert any(f"slows {RESNET}" in text for text in words(more_page.markdown))


def test_where_all_jobs_run_one_more_copy_of_each_may_join(more_page):
    running = [f"{number} · {name}" for number, name in enumerate([RESNET, SMALL, BERT], start=1)]
    more_page.query_params["running"] = running
    ask(more_page, "Add a job", by="mps", max_slowdown="400")
    assert {"resnet50", "resnet26", "bert"} & set(rows_with(more_page, "work added")["add"])


@pytest.mark.parametrize("question", ["Add a job", "This machine"])
def test_a_process_that_holds_as_much_as_one_job_alone_is_taken_to_be_it(
    more_page, install, question
):
    held = int(shelf.PROFILES[BERT].memory.device_mib * MIB)
    install(FakeLibrary(FakeGpu(processes={11: held})))
    ask(more_page, question)
    if question == "Add a job":
        assert [
            name.partition(" · ")[2] for name in more_page.button_group(key="running").value
        ] == [BERT]
    else:
        table = rows_with(more_page, "process")
        assert (list(table["process"]), list(table["as much as"])) == (["11"], [BERT])


def test_a_machine_without_a_gpu_is_no_error(more_page):
    assert "no GPU" in line(ask(more_page, "This machine"))


def test_a_larger_slice_holds_no_smaller_batch(more_page):
    table = rows_with(ask(more_page, "Largest batch", job=BERT), "largest batch")
    assert list(table["slice"])[-1] == "whole GPU"
    sizes = list(table["largest batch"])
    assert 0 < sizes[-1] == max(sizes)
    assert sizes == sorted(sizes)
    assert len(charts_of(more_page)) == 1  # the speeds of the jobs there
    more_page.selectbox(key="gpu").set_value("rtx-4090-24gb")
    table = rows_with(ask(more_page, "Largest batch"), "largest batch")
    assert list(table["slice"]) == ["whole GPU"]
    assert more_page.info


def test_a_link_with_another_question_gets_a_sentence_and_the_first_answer(more_page):
    more_page.query_params["ask"] = "<script>"
    more_page.run()
    assert "ask: '<script>'" in wrong(more_page)
    assert line(more_page)
