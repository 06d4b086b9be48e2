import io
from dataclasses import replace
from functools import cache

import pytest
from rich.console import Console

from advisor.plan.copies_search import copies_that_pay
from advisor.plan.trials import trials_that_pay
from advisor.report.copies_text import copies_report, notes_on_numbers
from advisor.report.trials_text import trials_advice, trials_report
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn

JOB = Job(synthetic.profile("cnn-cifar10-bs128", host_s=0.01, gpu_s=0.0004))


def lines_of(report, columns=80):
    console = Console(file=io.StringIO(), width=columns)
    console.print(report)
    return console.file.getvalue().splitlines()


@cache
def many():
    found = copies_that_pay(JOB, H200, StandIn())
    rows = [replace(found.rows[0], copies=number) for number in range(1, 31)]
    return replace(found, rows=tuple(rows), pay=20)


def numbers_in(lines):
    return [int(line.split()[0]) for line in lines if line[:1].isdigit() and " GiB" in line]


def test_copies_fit_on_a_screen_and_details_show_each_number_of_them():
    few = lines_of(copies_report(many()))
    assert len(few) <= 25
    assert {1, 19, 20, 21} <= set(numbers_in(few)) < set(range(1, 31))
    left = 30 - len(numbers_in(few))
    assert few[-1] == f"{left} more numbers: --details."
    assert numbers_in(lines_of(copies_report(many(), details=True))) == [*range(1, 31)]


def test_that_one_copy_is_enough_is_said_with_its_true_reason():
    big = Job(synthetic.profile("dlrm-29gb-bs128", memory_mib=100_000))
    alone = " ".join(lines_of(copies_report(copies_that_pay(big, H200, StandIn())), 400))
    assert "a second copy does not fit: the jobs take 200,000 MiB of 143,771 MiB." in alone
    busy = Job(synthetic.profile("resnet152-imagenet-bs128", host_s=0.0001, gpu_s=0.2))
    found = replace(copies_that_pay(busy, H200, StandIn()), pay=1)
    text = " ".join(lines_of(copies_report(found), 400))
    assert f"a second copy does not pay: {found.rows[1].gain:+.1%} work" in text


@pytest.mark.parametrize(("start_s", "said"), [(10.0, True), (0.0, False)])
def test_it_is_said_whether_the_start_of_processes_counts(start_s, said):
    copies = copies_that_pay(JOB, H200, StandIn())
    found = trials_that_pay(copies, StandIn(), 10, None, start_s)
    assert (
        "counts 10 s for each process to start; training alone is" in trials_advice(found)
    ) == said
    assert ("comes on top" in " ".join(lines_of(trials_report(found), 400))) != said


def test_fewer_at_once_than_pay_are_explained_by_the_rounds():
    copies = copies_that_pay(JOB, H200, StandIn())
    found = trials_that_pay(copies, StandIn(), 500, copies.pay + 2)
    assert found.at_once < copies.pay
    assert f"{found.at_once} at once and not the {copies.pay} that pay: in 2 rounds all end" in (
        trials_advice(found)
    )
    assert "that pay" not in trials_advice(trials_that_pay(copies, StandIn(), 500, copies.pay))


def test_trials_fit_on_a_screen_and_details_show_each_number_of_them():
    found = trials_that_pay(many(), StandIn(), 500, None)
    few = lines_of(trials_report(found))
    assert len(few) <= 25
    assert {1, found.at_once} <= set(numbers_in(few))
    assert numbers_in(lines_of(trials_report(found, details=True))) == [*range(1, 31)]


def test_what_pays_is_said_with_what_more_would_bring_or_that_no_more_fit():
    found = copies_that_pay(JOB, H200, StandIn())
    rows = found.rows

    def said(**changed):
        return " ".join(notes_on_numbers(replace(found, **changed), "copies"))

    assert "2 pay: 3 more would bring less than 2% more work" in said(rows=rows[:5], pay=2)
    assert "1 pays: one more would bring less" in said(rows=rows[:2], pay=1)
    assert "5 pay, which is all that fit." in said(rows=rows[:5], pay=5, fit=5)
    assert "5 pay, maybe more." in said(rows=rows[:5], pay=5, fit=9)
