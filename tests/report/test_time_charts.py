"""Jobs over time are drawn with the numbers of their simulation, on every GPU."""

from dataclasses import replace
from functools import cache
from io import BytesIO
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.api import Advisor
from advisor.hardware.gpus import catalogue
from advisor.prediction.prediction import Interval
from advisor.report.charts import lanes_chart
from advisor.report.time_charts import simulation_picture, timeline_chart
from advisor.simulation.simulate import Fleet
from advisor.workload.job import Arrival

NAMES = ("resnet50-imagenet64-bs128", "resnet26-cifar10-bs128", "bert-base-finetune-bs16")
MINUTE_S = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
CARDS = sorted(catalogue())
advisor_of = cache(Advisor)


def simulated(
    key, names, sharing="naive", *, arrivals_s=(), due_s=(), gpus=1, policy="first-come", epochs=1
):
    """The jobs over time, each from its arrival on and with its deadline, if it has one."""
    jobs = [job for name in names for job in advisor_of(key).jobs([name])]
    dues_s = (*due_s, *[None] * (len(jobs) - len(due_s)))
    starts_s = (*arrivals_s, *[0.0] * (len(jobs) - len(arrivals_s)))
    arrivals = [
        Arrival(replace(job, deadline_s=due, epochs=epochs), start)
        for job, due, start in zip(jobs, dues_s, starts_s, strict=True)
    ]
    return advisor_of(key).simulate(arrivals, sharing, Fleet(key, gpus, policy))


def timeline(key, *rest, **more):
    simulation = simulated(key, *rest, **more).simulation
    return timeline_chart(simulation, advisor_of(key).card), simulation


def rows(chart, kind=None):
    drawn = chart.to_dict(validate=False)
    data = [layer.get("data") or drawn["data"] for layer in drawn["layer"]]
    every = [row for each in data for row in each["values"]]
    return [row for row in every if row.get("kind") == kind]


def curves(chart):
    """The corners of each curve, from the top down."""
    layers = chart.to_dict(validate=False)["layer"]
    drawn = [layer["data"]["values"] for layer in layers if layer["mark"]["type"] == "area"]
    return sorted(drawn, key=lambda corners: corners[0]["bottom"])


def axis(chart):
    """The unit of time, in seconds, and the end of the axis."""
    x = chart.to_dict(validate=False)["layer"][0]["encoding"]["x"]
    return MINUTE_S[x["title"].removeprefix("time, ")], x["scale"]["domain"][1]


def integral(corners):
    return sum(one["value"] * (other["start"] - one["start"]) for one, other in pairwise(corners))


@given(
    st.sampled_from(CARDS),
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=4),
    st.sampled_from(("serial", "naive", "mps")),
    st.lists(st.sampled_from((0.0, 10.0, 4000.0)), max_size=4),
)
def test_the_area_of_the_power_is_the_energy(key, names, sharing, arrivals_s):
    chart, simulation = timeline(key, names, sharing, arrivals_s=arrivals_s[: len(names)])
    size_s, _ = axis(chart)
    busy, memory, *power = curves(chart)
    assert bool(power) == (simulation.energy_j is not None)
    for corners in power:
        assert integral(corners) * size_s == pytest.approx(simulation.energy_j.p50)
    assert integral(busy) * size_s == pytest.approx(
        simulation.mean_gract * simulation.makespan_s.p50
    )
    assert max(corner["value"] for corner in memory) == simulation.peak_memory_mib
    for corners in (busy, memory, *power):
        assert corners[-1]["start"] * size_s == pytest.approx(simulation.makespan_s.p50)
        assert all(corner["top"] <= corner["bottom"] for corner in corners)


@given(st.sampled_from(CARDS), st.lists(st.sampled_from(NAMES), min_size=1, max_size=5))
def test_the_axis_ends_with_the_last_job(key, names):
    chart, simulation = timeline(key, names)
    size_s, most = axis(chart)
    assert most * size_s == pytest.approx(max(run.end_s.p95 for run in simulation.jobs))
    ends = [row["end"] for row in rows(chart, "job")]
    assert max(ends) * size_s == pytest.approx(simulation.makespan_s.p50)


def test_copies_share_a_row():
    chart, _ = timeline("h200-141gb", [NAMES[1]] * 4 + [NAMES[0]], "mps")
    assert len({row["top"] for row in rows(chart, "job")}) == 2


def test_a_wait_is_drawn_before_its_job():
    chart, simulation = timeline("h200-141gb", NAMES, "serial")
    size_s, _ = axis(chart)
    waits = [row["end"] * size_s for row in rows(chart, "free")]
    assert waits == pytest.approx([run.start_s for run in simulation.jobs if run.wait_s])


def test_a_job_that_misses_its_deadline_is_late_in_words():
    _, simulation = timeline("h200-141gb", NAMES, "serial")
    ends_s = [run.end_s.p50 for run in simulation.jobs]
    due_s = (ends_s[0] * 1.5, ends_s[1] * 0.5)
    chart, _ = timeline("h200-141gb", NAMES, "serial", due_s=due_s)
    size_s, _ = axis(chart)
    assert sorted(row["start"] * size_s for row in rows(chart, "instant")) == pytest.approx(
        sorted(due_s)
    )
    late = [row["text"] for row in rows(chart, "words") if row["text"].startswith("due")]
    assert [words.endswith("late") for words in late] == [False, True]


def test_a_deadline_far_behind_the_last_job_does_not_shrink_the_drawing():
    chart, simulation = timeline("h200-141gb", NAMES, due_s=(1e7,))
    size_s, most = axis(chart)
    assert most * size_s == pytest.approx(max(run.end_s.p95 for run in simulation.jobs))
    assert not rows(chart, "instant")


def test_what_was_not_measured_is_left_out():
    simulation = simulated("h200-141gb", NAMES).simulation
    usage = [replace(use, power_w=None, gract=None) for use in simulation.usage]
    chart = timeline_chart(replace(simulation, usage=usage), advisor_of("h200-141gb").card)
    (memory,) = curves(chart)
    assert max(corner["value"] for corner in memory) == simulation.peak_memory_mib


def test_little_memory_is_drawn_without_the_line_of_its_capacity():
    limits = [len(rows(timeline(key, NAMES)[0], "limit")) for key in ("h200-141gb", "t4-16gb")]
    assert limits == [2, 3]


def test_a_power_cap_stands_for_the_limit():
    simulation, card = simulated("h200-141gb", NAMES).simulation, advisor_of("h200-141gb").card
    words = [
        {row["text"] for row in rows(timeline_chart(simulation, card, NAMES, cap), "words")}
        for cap in (None, 650.0)
    ]
    assert "limit 700 W" in words[0] - words[1]
    assert "cap 650 W" in words[1] - words[0]


def test_a_job_has_the_colour_that_it_has_among_all_jobs_of_the_request():
    simulation, card = simulated("h200-141gb", NAMES[2:]).simulation, advisor_of("h200-141gb").card
    layers = timeline_chart(simulation, card, NAMES).to_dict(validate=False)["layer"]
    (scale,) = [
        each["encoding"]["color"]["scale"] for each in layers if "color" in each["encoding"]
    ]
    assert scale["domain"] == [*NAMES]


def test_rows_of_several_gpus_name_them():
    simulation = simulated("h200-141gb", NAMES, "serial", gpus=2).simulation
    runs = list(enumerate(simulation.jobs, start=1))
    chart = lanes_chart(runs, NAMES)
    assert {row["hint"].partition(" · ")[0] for row in rows(chart, "job")} == {"GPU 0", "GPU 1"}


def test_a_job_that_is_stopped_has_a_bar_for_each_time_that_it_runs():
    over_time = simulated("h200-141gb", NAMES, "serial", policy="max-min", epochs=50)
    assert over_time.simulation.preemptions
    chart = timeline_chart(over_time.simulation, advisor_of("h200-141gb").card)
    bars = rows(chart, "job")
    assert len(bars) > len({row["top"] for row in bars}) == len(NAMES)


@pytest.mark.parametrize("jobs", [3, 60])
def test_a_simulation_is_a_picture_with_rows_for_jobs_or_for_places(jobs):
    over_time = simulated("h200-141gb", [NAMES[jobs % 2]] * jobs, "mps", gpus=2)
    assert simulation_picture(over_time, ".png").startswith(b"\x89PNG")
    assert b"<svg" in BytesIO(simulation_picture(over_time, ".svg")).read(200)


def test_an_end_without_error_has_no_interval():
    simulation = simulated("h200-141gb", NAMES[:1]).simulation
    (run,) = simulation.jobs
    sure = replace(run, end_s=Interval(*[run.end_s.p50] * 3))
    assert not rows(lanes_chart([(1, sure)], NAMES), "over")
    assert rows(lanes_chart([(1, run)], NAMES), "over")
