"""Charts of plans and of their jobs: what is drawn, in which colours."""

import json
from dataclasses import replace

from advisor.report.chart_parts import job_colours
from advisor.report.charts import memory_chart, sm_chart
from advisor.report.gpu_drawing import drawing
from advisor.report.plan_charts import slowdown_chart
from tests.report.test_gpu_drawing import H200, mix


def drawn(chart):
    """The rows that a chart draws, and its document."""
    document = chart.to_dict()
    layers = [layer.get("data", document.get("data", {})) for layer in document["layer"]]
    return [row for data in layers for row in data.get("values", [])], json.dumps(document)


def test_a_job_has_one_colour_whatever_is_drawn_of_it():
    one, other = mix("mps", 1024, 2048).jobs
    jobs = replace(mix("mps", 1024, 2048), jobs=(one, replace(other, job="another")))
    _, document = drawn(slowdown_chart(jobs))
    colours = job_colours(each.job for each in jobs.jobs)
    assert len(set(colours.values())) == 2
    assert json.dumps(list(colours)) in document
    assert json.dumps(list(colours.values())) in document


def test_more_jobs_than_colours_share_them_in_turn_and_copies_have_one():
    colours = job_colours([f"job-{n}" for n in range(10)] * 2)
    assert len(colours) == 10
    assert len(set(colours.values())) == 8
    assert colours["job-0"] == colours["job-8"]


def test_what_is_drawn_is_said_to_those_who_do_not_see_it():
    jobs = mix("mps", 1024, 2048)
    rows, _ = drawn(slowdown_chart(jobs))
    said = slowdown_chart(jobs).to_dict()["description"]
    assert all(f"{row['row']} {row['hint']}" in said for row in rows)
    plan = drawing(mix("mps", 1024, 1024), H200)
    assert all(bar.hint in sm_chart(plan).to_dict()["description"] for bar in plan.sms)


def test_copies_that_fare_alike_are_one_row():
    rows, _ = drawn(slowdown_chart(mix("mps", *[1024] * 40)))
    assert {row["row"] for row in rows} == {"1-40 · resnet50-imagenet64-bs128 x40"}


def test_the_axis_of_memory_ends_where_memory_does_or_where_that_of_another_plan_does():
    plan = drawing(mix("mps", 1024, 1024), H200)
    assert f"[0, {plan.used_gib}]" in drawn(memory_chart(plan))[1]
    assert "[0, 70]" in drawn(memory_chart(plan, 70))[1]
