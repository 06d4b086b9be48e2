"""Answers as text: what must be there at any width. Their wording is free."""

import io
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from advisor.errors import counted
from advisor.hardware.gpus import catalogue, gpu
from advisor.hardware.machine import BrokenGpu, GpuProcess, LiveGpu
from advisor.plan.copies import CopiesTable, worthwhile_copies
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.reasons import compare
from advisor.prediction.prediction import Interval
from advisor.report import format as units
from advisor.report.comparison import comparison_report, limits_in_words
from advisor.report.copies import copies_report
from advisor.report.forecast import best_of_each_way, forecast_report, layout_needs, memory_held
from advisor.report.format import ReportConsole, places, shortened
from advisor.report.headline import instruction, order_of_starts
from advisor.report.lists import gpus_table, live_lines, profiles_table
from advisor.report.plans import plans_report
from advisor.report.recommendation import answer, gpu_notes
from advisor.sharing import Mps, Naive, Serial, parse_sharing
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.fleet_twins import planned
from tests.plan.stand_in import H200, StandIn, ranked

SMALL = Job(synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002), epochs=150)
LARGE = Job(synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.2))
BIG = Job(synthetic.profile("dlrm-29gb-bs128", memory_mib=100_000))
RANKS = re.compile(r"^(\d+) +\S", re.MULTILINE)


def printed(report, columns=80):
    console = Console(file=io.StringIO(), width=columns)
    console.print(report)
    return console.file.getvalue()


def width(text):
    return max(map(len, text.splitlines()))


_WORDS = st.text("abc.:-", min_size=1, max_size=9)
_COMMANDS = st.lists(st.text("abx=-'", min_size=1, max_size=8), min_size=2, max_size=6)


@given(
    st.lists(st.one_of(_WORDS, _COMMANDS), min_size=1),
    st.integers(20, 60),
)
def test_lines_are_as_long_as_the_width_allows_and_break_in_no_command(words, columns):
    commands = [f"`{' '.join(each)}`" for each in words if isinstance(each, list)]
    pieces = [f"`{' '.join(each)}`" if isinstance(each, list) else each for each in words]
    console = ReportConsole(file=io.StringIO(), width=columns)
    console.print(Text(" ".join(pieces)), crop=False)
    lines = console.file.getvalue().splitlines()
    assert all(any(each in line for line in lines) for each in commands)
    assert " ".join(lines).split() == " ".join(pieces).split()
    if commands:
        assert all(len(line) <= columns or line in commands for line in lines)


def advised(*jobs, wide=0.1, objective="makespan"):
    return ranked(jobs, H200, StandIn(wide=wide), objective)


@pytest.mark.parametrize("kinds", [2, 4])
def test_an_answer_fits_its_columns_and_14_lines_and_has_each_way_at_its_best(kinds):
    jobs = [Job(synthetic.profile(f"resnet26-cifar10-bs{bs + 1}")) for bs in range(kinds)]
    found = advised(*jobs)
    for columns in (40, 80, 100):
        text = printed(plans_report(found, command="advisor export jobs"), columns)
        assert width(text) <= columns
        assert "advisor export jobs" in text
    lines = text.splitlines()
    assert len(lines) <= 14
    rows = [line for line in lines if re.match(r"[> ] \w.* {2}[\d.]+x", line)]
    assert len(rows) == len(best_of_each_way(found)) >= 5
    assert sum(row.startswith(">") for row in rows) == 1


def test_each_way_is_shown_by_its_best_plan_and_details_show_all_plans():
    found = advised(SMALL, LARGE)
    best = best_of_each_way(found)
    assert set(best.values()) >= {found.best, found.serial}
    for plan in found.plans:
        same = best[units.way_of(plan.sharing, 2)]
        assert same.rank <= plan.rank
    details = printed(plans_report(found, details=True), 120)
    assert all(re.search(rf"^{plan.rank}  ", details, re.M) for plan in found.plans)
    answer = printed(plans_report(found), 120).splitlines()
    assert [line for line in answer[:-1] if line not in details] == []


def test_every_predicted_number_has_its_interval_mig_a_mark_and_what_was_left_out_its_reason():
    found = advised(SMALL, LARGE)
    text = printed(plans_report(found, details=True), 200)
    rows = [line for line in text.splitlines() if re.match(r" +A +\d", line)]
    assert len(rows) == len(found.plans)
    assert all(re.search(r"A +[\d.]+ \w+ \([\d.,]+-[\d.,]+\)", row) for row in rows)
    shown = sum(str(plan.sharing).startswith("mig") for plan in found.plans)
    assert text.count("not confirmed on hardware;") == shown > 0
    left_out = printed(plans_report(advised(BIG, BIG), details=True), 200)
    assert "200,000 MiB of 143,771 MiB" in left_out


@pytest.mark.parametrize(
    ("found", "named"),
    [
        (lambda: advised(LARGE, LARGE, wide=0.01), "1.25x"),
        (lambda: advised(replace(SMALL, deadline_s=1.0), LARGE), SMALL.name),
        (lambda: advised(replace(LARGE, protect=0.01), LARGE), "protected"),
        (lambda: advised(SMALL, LARGE, objective="throughput"), "work an hour"),
        (lambda: advised(SMALL, LARGE, objective="energy"), "Wh"),
        (lambda: advised(replace(SMALL, deadline_s=1e8), objective="deadlines"), "deadline"),
    ],
    ids=["gain", "late", "protected", "throughput", "energy", "deadlines"],
)
def test_an_answer_names_what_matters(found, named):
    assert named in answer(found())


def test_a_forecast_says_how_many_jobs_and_why_its_range_is_wide():
    found = forecast(Mixes([SMALL, SMALL, LARGE], StandIn()), Mps())
    text = printed(forecast_report(found))
    assert text.startswith("3 jobs under mps on h200-141gb")
    assert f"{SMALL.name} x2\n" in text
    assert "SMs busy not measured" in text
    unsure = replace(found.prediction, wide_because="ranges are wide because x has no kernel trace")
    assert "x has no kernel trace" in printed(forecast_report(replace(found, prediction=unsure)))


def test_a_comparison_names_both_plans_and_marks_what_the_error_may_explain():
    jobs = [LARGE, LARGE]
    for wide, unsure in ((0.01, False), (0.5, True)):
        mixes = Mixes(jobs, StandIn(wide=wide))
        naive, mps, serial = (forecast(mixes, each) for each in (Naive(), Mps(), Serial()))
        text = printed(comparison_report(compare(jobs, H200, (naive, mps), serial=serial)))
        assert width(text) <= 80
        assert all(name in text for name in ("naive", "mps", LARGE.name))
        assert (") tie" in text) == unsure


def test_copies_that_differ_only_in_their_ends_share_a_table():
    mixes = Mixes([LARGE, SMALL, LARGE, LARGE], StandIn())
    found = compare(mixes.jobs, H200, [forecast(mixes, each) for each in (Serial(), Mps())])
    text = printed(comparison_report(found))
    assert text.count("ends after") == 2
    assert f"{LARGE.name} x3\n" in text
    assert re.search(r"serial .* \d[\d.]* to \d[\d.]* ", text)


def test_a_comparison_explains_wide_ranges_once_by_the_reason_that_has_all_others():
    mixes = Mixes([LARGE, SMALL], StandIn())
    reasons = {Naive(): "ranges are wide because x has no trace", Mps(): None}
    reasons[Mps((50.0, 50.0))] = f"{reasons[Naive()]}, no probe; y has no probe"
    plans = []
    for sharing, because in reasons.items():
        plan = forecast(mixes, sharing)
        plans.append(replace(plan, prediction=replace(plan.prediction, wide_because=because)))
    found = compare(mixes.jobs, H200, plans)
    *limits, because = limits_in_words(found)
    assert len(limits) == 3
    assert not any("wide" in limit for limit in limits)
    assert "x has no trace, no probe" in because
    assert "y has no probe" in because


def test_copies_fit_on_a_screen_and_details_show_each_number_of_them():
    found = worthwhile_copies(CopiesTable(SMALL, H200, StandIn()))
    rows = tuple(replace(found.rows[0], copies=number) for number in range(1, 31))
    found = replace(found, rows=rows, worthwhile=20)
    few, whole = printed(copies_report(found)), printed(copies_report(found, details=True))
    assert len(few.splitlines()) <= 25
    assert {"1", "19", "20", "21"} <= set(RANKS.findall(few)) < set(RANKS.findall(whole))
    assert {str(number) for number in range(1, 31)} <= set(RANKS.findall(whole))


KINDS = [
    Job(synthetic.profile(f"dlrm-8gb-bs{size}", host_s=0.01, gpu_s=0.002, memory_mib=60_000))
    for size in (1, 2)
]


def test_details_of_a_fleet_show_every_job_on_a_gpu():
    text = printed(plans_report(planned(KINDS * 20, gpus=2), details=True), 400)
    brackets = re.findall(r"\[([\d,-]+)\]", text)
    ranges = [each.split("-") for bracket in brackets for each in bracket.split(",")]
    numbers = sorted(n for ends in ranges for n in range(int(ends[0]), int(ends[-1]) + 1))
    assert numbers == list(range(1, 41))


@pytest.mark.parametrize(("jobs", "gpus"), [(2, 4), (9, 4), (40, 20)])
def test_the_answer_for_a_fleet_fits_in_15_lines_with_each_way_and_the_jobs_of_each_gpu(jobs, gpus):
    found = planned((KINDS * 20)[:jobs], gpus=gpus)
    lines = printed(plans_report(found, command="Start it: " + "x" * 80), 100).splitlines()
    assert len(lines) <= 15
    assert max(map(len, lines)) <= 100
    ranges = [line.split()[1] for line in lines if line.startswith("GPU ")]
    assert len(found.best.gpus) == sum(
        int(ends.split("-")[-1]) - int(ends.split("-")[0]) + 1
        for each in ranges
        for ends in each.split(",")
    )
    assert sum(line.startswith(("> ", "  ")) for line in lines[2:]) - 1 == len(found.plans)


def test_a_fleet_says_late_jobs_unused_gpus_and_a_risk_of_memory_above_one_per_cent():
    late = replace(KINDS[0], deadline_s=1e-3)
    text = printed(plans_report(planned([late, KINDS[1]], gpus=5)), 400)
    assert "Late: dlrm-8gb-bs1." in text
    assert "Unused: 3" in text
    found = planned(KINDS, gpus=2)
    assert list(gpu_notes(found)) == []
    for risk, is_noted in ((0.005, False), (0.03, True)):
        best = replace(found.best, oom_probability=risk)
        notes = "".join(gpu_notes(replace(found, plans=(best, *found.plans[1:]))))
        assert ("3 %" in notes) == ("memory" in notes) == is_noted


def test_an_answer_with_mig_has_what_it_takes_before_hopper_also_a_reset():
    found = advised(SMALL, LARGE)
    apart = [plan for plan in found.plans if plan.sharing.instances]
    for key, resets in {"a100-40gb": True, "a30-24gb": True, "h100-sxm-80gb": False}.items():
        (line,) = layout_needs([(gpu(key), each.sharing) for each in apart], found.serial.sharing)
        assert "root" in line
        assert ("reset" in line) == resets
    assert not [*layout_needs([(H200, found.serial.sharing)], found.serial.sharing)]


def test_mig_slices_without_a_job_are_counted():
    jobs = [
        Job(synthetic.profile(f"cnn-cifar10-bs{size}", host_s=0.01, gpu_s=0.001), isolated=True)
        for size in (1, 2, 3)
    ]
    found = planned(jobs, StandIn(H200), H200, gpus=2, objective="throughput")
    on = found.best.gpus[0]
    used = sum(int(instance.profile[0]) for instance in on.sharing.instances)
    assert used < 7
    assert f"Unused on GPU 0: {counted(7 - used, 'MIG slice')}." in list(gpu_notes(found))
    assert "needs root" in printed(plans_report(found))


LIVE = LiveGpu(
    index=0,
    uuid="GPU-1",
    product="NVIDIA H200",
    catalogue_key="h200-141gb",
    memory_total_mib=143771,
    memory_used_mib=1200,
    driver="580.1",
    mig_enabled=False,
    mig_pending=True,
    compute_mode="default",
    mps=(),
    counters="gpm",
    processes=(GpuProcess(42, None), GpuProcess(43, 1000)),
    power_w=75,
    power_limit_w=None,
    sm_clock_mhz=345,
    memory_clock_mhz=3201,
    gpu_utilization=None,
)


def test_gpus_are_listed_and_what_a_driver_does_not_know_is_unknown():
    text = printed(gpus_table(catalogue().values(), ["h200-141gb"]))
    assert width(text) <= 80
    assert all(key in text for key in catalogue())
    lines = "\n".join(live_lines([BrokenGpu(1, "fell off the bus"), LIVE]))
    for said in ("GPU 1", "fell off the bus", "NVIDIA H200", "42 (unknown)", "75 W of unknown"):
        assert said in lines
    name = "vit_small_patch16_224-imagenet64-bs128-amp-loader4"
    estimated = replace(synthetic.profile(name), estimated_from="h100-sxm-80gb")
    assert name in printed(profiles_table({name: estimated}))
    assert "h100-sxm-80gb" in printed(profiles_table({name: estimated}), 200)


def instructed(words):
    plan = forecast(Mixes([SMALL] * 4, StandIn()), parse_sharing(words))
    names = ["A", "B", "B", "C"]
    return f"{instruction(plan, names)}. {order_of_starts(plan.sharing, names)}"


def placed(words):
    return places(parse_sharing(words), ["A", "B", "B"])


def interval_of(figure):
    return lambda ends: figure(Interval(*ends))


TIME, GAIN = interval_of(units.seconds), interval_of(units.times)


@pytest.mark.parametrize(
    ("show", "words", "shown"),
    [
        (placed, "mig=4g.71gb@0[1,2]/mps+3g.71gb@4[3]", "A, B on 4g.71gb; B on 3g.71gb"),
        (placed, "mig=7g.141gb@0/ci=3c[1]+4c[2,3]/mps", "A on 3 compute slices of 7g.141gb; 2 x B"),
        (
            instructed,
            "mps/2",
            "Use MPS, at most 2 at a time. The jobs start in this order: A, 2 x B, C.",
        ),
        (
            instructed,
            "mps/3[4,2,3,1]",
            "Use MPS, at most 3 at a time. The jobs start in this order: C, 2 x B, A.",
        ),
        (
            instructed,
            "naive/2[3,1,2];mps[4]",
            "at most 2 at a time, then C under MPS. The jobs start in this order: B, A, B, C.",
        ),
        (shortened, "mps=" + ",".join(["14"] * 40), "mps=14 x40"),
        (shortened, "mps=86,86,86", "mps=86,86,86"),
        (shortened, "serial[1];mps[2,3]", "serial[1];mps[2,3]"),
        (shortened, f"mps={','.join(['12.5'] * 8)},12", "mps=12.5 x8,12"),
        (TIME, (0.0072, 0.008, 0.0088), "8.00 ms (7.20-8.80)"),
        (TIME, (100, 119, 130), "119 s (100-130)"),
        (TIME, (660, 738, 846), "12.3 min (11.0-14.1)"),
        (TIME, (864_000, 950_400, 1_036_800), "11.0 d (10.0-12.0)"),
        (GAIN, (1, 1, 1), "1.00x"),
        (GAIN, (1.2, 1.5, 1.8), "1.50x (1.20-1.80)"),
        (interval_of(units.joules), (3.6e6, 7.2e6, 1.08e7), "2.00 kWh (1.00-3.00)"),
        (interval_of(units.gib), (1024, 2048, 3072), "2.00 GiB (1.00-3.00)"),
        *((each, None, "not measured") for each in (units.seconds, units.joules, units.share)),
    ],
)
def test_ways_to_share_and_figures_are_written_for_people(show, words, shown):
    assert shown in show(words)


def test_memory_of_a_queue_is_that_of_the_largest_jobs_that_may_meet():
    plan = forecast(Mixes([SMALL, LARGE, SMALL, LARGE], StandIn(wide=0)), parse_sharing("mps/2"))
    held_gib = 2 * LARGE.profile.memory.device_mib / 1024
    assert memory_held(plan.prediction).startswith(f"{held_gib:.3g} GiB")


@given(st.sets(st.integers(1, 60)))
def test_numbers_in_a_row_are_written_by_their_ends(numbers):
    parts = [each.split("-") for each in units.numbers(sorted(numbers)).split(",") if each]
    assert {n for ends in parts for n in range(int(ends[0]), int(ends[-1]) + 1)} == numbers
