import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from advisor.errors import InvalidInput
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.objectives import known_cost
from advisor.plan.ranking import ranked
from advisor.plan.recommendation import Standing
from advisor.report import units
from advisor.report.forecast_text import forecast_report
from advisor.report.plan_tables import plan_commands, plans_report
from advisor.sharing import Mps, parse_sharing
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn

SMALL = Job(synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002), epochs=150)
LARGE = Job(synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.2))
BIG = Job(synthetic.profile("dlrm-29gb-bs128", memory_mib=100_000))


def printed(report, columns=80):
    console = Console(file=io.StringIO(), width=columns)
    console.print(report)
    return console.file.getvalue()


def advised(*jobs):
    return ranked(jobs, H200, StandIn(), "makespan")


def test_a_wide_range_is_said_to_be_wide_and_why():
    found = forecast(Mixes([SMALL, LARGE], StandIn()), Mps())
    assert "wide" not in printed(forecast_report(found))
    unsure = replace(found.prediction, wide_because="ranges are wide, for x has no kernel trace")
    assert "x has no kernel trace" in printed(forecast_report(replace(found, prediction=unsure)))


def test_the_answer_comes_first():
    text = printed(plans_report(advised(SMALL, LARGE)))
    assert re.match(
        r"(MPS|Time-sliced|Don't share)[^:]*: all done in [\d.]+ min, [\d.]+x as fast", text
    )


@pytest.mark.parametrize("columns", [80, 100])
def test_the_table_fits_the_columns_there_are(columns):
    text = printed(plans_report(advised(*[SMALL] * 6, LARGE), 9, details=True), columns)
    assert max(map(len, text.splitlines())) <= columns
    assert "gain over serial" in text


def test_equal_copies_are_one_line_and_are_counted():
    text = printed(plans_report(advised(SMALL, SMALL, SMALL, LARGE), 1, details=True))
    assert re.search(r"A x3  [\d.]+ \w+ \([\d.]+-[\d.]+\)", text)
    assert "A  resnet26-cifar10-bs128, 150 epochs" in text
    assert "B  resnet152-imagenet-bs128\n" in text


@pytest.mark.parametrize("details", [True, False])
def test_jobs_of_one_workload_that_are_to_do_different_amounts_say_from_what_to_what(details):
    short = replace(SMALL, epochs=2.5, checkpoint_s=3)
    text = printed(plans_report(advised(SMALL, short, LARGE), 1, details=details), 120)
    assert "resnet26-cifar10-bs128, 2.5 to 150 epochs, 0 to 3 s of checkpoints an epoch" in text
    assert "resnet152-imagenet-bs128 " in text.replace("\n", " ")


def test_serial_is_always_shown_and_the_rest_is_counted():
    found = advised(SMALL, LARGE)
    text = printed(plans_report(found, 1))
    assert re.search(rf"^{found.serial.rank} +serial ", text, re.M)
    left = len(found.plans) - len({1, found.serial.rank})
    assert f"{left} more plans: --top {len(found.plans)}." in text


def test_every_number_that_is_predicted_has_its_interval():
    text = printed(plans_report(advised(SMALL, LARGE), 99, details=True), 100)
    rows = [line for line in text.splitlines() if re.match(r" +A {2}", line)]
    assert len(rows) == len(re.findall(r"^\d+ {2}", text, re.M)) > 3
    for row in rows:
        assert re.search(r"A +[\d.]+ \w+ \([\d.,]+-[\d.,]+\)", row)


def test_what_was_left_out_is_said_with_its_reason():
    text = printed(plans_report(advised(BIG, BIG), 5, details=True), 200)
    assert "Left out: mps: does not fit: the jobs take 200,000 MiB of 143,771 MiB." in text


def test_mig_is_marked_wherever_it_is_shown():
    found = advised(SMALL, LARGE)
    text = printed(plans_report(found, len(found.plans), details=True), 200)
    shown = sum(str(plan.sharing).startswith("mig") for plan in found.plans)
    assert text.count("not confirmed on hardware;") == shown > 0
    alone = forecast(Mixes([SMALL, LARGE], StandIn()), parse_sharing("mig=3g.71gb,3g.71gb"))
    assert "estimated, not confirmed on hardware" in printed(forecast_report(alone), 200)


@pytest.mark.parametrize("kinds", [2, 4, 8])
def test_a_screen_of_25_lines_holds_the_answer_and_the_best_plan(kinds):
    jobs = [Job(synthetic.profile(f"resnet26-cifar10-bs{bs + 1}")) for bs in range(kinds)]
    text = printed(plans_report(advised(*jobs)))
    assert len(text.splitlines()) <= 25
    assert max(map(len, text.splitlines())) <= 80
    assert all(f"{letter}  resnet" in text for letter in "ABCDEFGH"[:kinds])
    assert bool(re.search(r"^\d+ +serial +", text, re.M)) is (kinds < 6)


@pytest.mark.parametrize("estimated", [False, True])
@pytest.mark.parametrize("due_s", [None, 9e4])
@pytest.mark.parametrize("objective", ["makespan", "throughput", "deadlines"])
def test_a_screen_holds_them_whatever_is_to_be_said_before(estimated, due_s, objective):
    small, large = replace(SMALL, deadline_s=due_s), replace(LARGE, protect=4.0)
    found = ranked([small, small, large], H200, StandIn(), objective)
    if estimated:
        jobs = [replace(each.profile, estimated_from="h100-sxm-80gb") for each in (small, large)]
        found = replace(found, standing=Standing(estimated=tuple(jobs)))
    lines = printed(plans_report(found)).splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 80
    assert max(map(len, printed(plans_report(found), 40).splitlines())) <= 40
    piped = printed(plans_report(found), 10_000)
    assert "resnet26-cifar10-bs128, 150 epochs" in piped


def test_a_way_to_share_in_a_line_of_its_own_is_explained_below():
    text = printed(plans_report(advised(SMALL, LARGE)), 400)
    assert ("mps=: per cent of the SMs that each may use" in text) == (" mps=" in text)
    assert ("mig=: an instance each" in text) == bool(re.search(r" mig=[^\[\s]+ ", text))
    assert ("[1,2]: jobs by number on an instance" in text) == bool(re.search(r" mig=\S*\[", text))


def test_serial_and_the_best_with_mig_are_on_the_screen_whatever_comes_before_them():
    found = advised(SMALL, LARGE)
    text = printed(plans_report(found))
    with_mig = next(each for each in found.plans if each.sharing.mode in ("mig", "hybrid"))
    for plan in (found.best, with_mig, found.serial):
        assert re.search(rf"^{plan.rank} +{re.escape(str(plan.sharing)[:12])}", text, re.M)


def test_each_other_kind_of_sharing_comes_to_the_screen_before_a_second_plan_of_one():
    found = advised(SMALL, LARGE)
    ranks = [int(each) for each in re.findall(r"^(\d+) +\S", printed(plans_report(found)), re.M)]
    kinds = [found.plans[rank - 1].sharing.mode for rank in ranks]
    if len(set(kinds)) < len(kinds):
        assert {*kinds} == {plan.sharing.mode for plan in found.plans}


def test_details_show_every_plan_where_no_number_is_said():
    found = advised(SMALL, LARGE)
    text = printed(plans_report(found, details=True), 100)
    assert all(re.search(rf"^{plan.rank}  ", text, re.M) for plan in found.plans)
    assert "more plans: --top" not in text


@pytest.mark.parametrize("kinds", [2, 8])
def test_what_one_after_another_takes_is_always_said_beside_what_is_gained_over_it(kinds):
    jobs = [
        Job(synthetic.profile(f"resnet26-cifar10-bs{at + 1}"), deadline_s=9e4 - at)
        for at in range(kinds)
    ]
    found = ranked(jobs, H200, StandIn(), "deadlines")
    text = " ".join(printed(plans_report(found)).split())
    cost = units.times(known_cost(found.serial, "deadlines"))
    assert f"{found.serial.sharing}" in text
    assert cost in text


def test_what_was_estimated_says_so_at_a_glance():
    found = advised(SMALL, LARGE)
    text = printed(plans_report(found, len(found.plans)), 200)
    estimated = sum(not plan.prediction.confirmed_on_hardware for plan in found.plans[1:])
    assert text.count("  estimated") == estimated > 0
    assert "Estimated: not confirmed on hardware." in " ".join(text.split())


def test_a_line_that_is_before_one_with_a_better_number_says_why():
    found = advised(SMALL, LARGE)
    others = found.plans[1:]
    text = printed(plans_report(found, len(found.plans)), 400)
    moved = {
        plan.rank
        for at, plan in enumerate(others)
        if any(each.makespan_s < 0.995 * plan.makespan_s for each in others[at + 1 :])
    }
    assert moved
    assert {int(rank) for rank in re.findall(r"(\d+) before \d+", text)} == moved
    assert re.search(r"\d before \d+ as the best of those nearly as good", text)


def test_a_narrow_terminal_shows_ranks_and_plans_beside_each_other():
    lines = printed(plans_report(advised(SMALL, LARGE)), 40).splitlines()
    assert max(map(len, lines)) <= 40
    assert [line.split()[0] for line in lines if re.match(r"\d+  \S", line)][:2] == ["1", "2"]
    assert any(re.match(r" +A  resnet26-cifar10-bs128", line) for line in lines)


def test_a_forecast_shows_each_kind_of_job_once():
    text = printed(forecast_report(forecast(Mixes([SMALL, SMALL, LARGE], StandIn()), Mps())))
    assert text.startswith("3 jobs under mps on h200-141gb.\n")
    assert "resnet26-cifar10-bs128 x2\n    step " in text
    assert "SMs busy not measured" in text


def test_the_commands_of_a_plan_are_its_lines():
    found = advised(SMALL, LARGE)
    assert plan_commands(found, 1) == "\n".join(found.best.commands)
    with pytest.raises(InvalidInput, match=f"there are {len(found.plans)}"):
        plan_commands(found, 99)


class Jittery(StandIn):
    """Copies differ in the last digits, as replayed ones do."""

    def _steps(self, profiles, sharing):
        return [s * (1 + 1e-6 * i) for i, s in enumerate(super()._steps(profiles, sharing))]


def test_copies_that_differ_less_than_is_shown_are_one_line():
    found = ranked([SMALL] * 3, H200, Jittery(), "makespan")
    assert "A x3  " in printed(plans_report(found, 1))
    assert "A x3  " in printed(plans_report(found, 1, details=True))
