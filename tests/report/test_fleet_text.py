import io
import re

from rich.console import Console

from advisor.plan.fleet_terms import FleetTerms
from advisor.report.fleet_text import fleet_report
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.search.fleet.drawn import planned

KINDS = [Job(synthetic.profile(f"dlrm-29gb-bs{size}", memory_mib=100_000)) for size in range(1, 9)]


def lines_of(report):
    console = Console(file=io.StringIO(), width=80)
    console.print(report)
    return console.file.getvalue().splitlines()


def numbers_on_gpus(report):
    """Numbers of the jobs that the groups of all GPUs name, in order."""
    console = Console(file=io.StringIO(), width=400)
    console.print(report)
    brackets = re.findall(r"\[([\d,-]+)\]", console.file.getvalue())
    ranges = [each.split("-") for bracket in brackets for each in bracket.split(",")]
    return sorted(n for ends in ranges for n in range(int(ends[0]), int(ends[-1]) + 1))


def test_who_runs_where_is_never_hidden_and_details_give_each_group_a_line():
    kinds = [
        Job(synthetic.profile(f"dlrm-8gb-bs{size}", host_s=0.01, gpu_s=0.002, memory_mib=60_000))
        for size in (1, 2)
    ]
    found = planned(kinds * 20, FleetTerms(gpus=2, limit_s=100.0))
    few, whole = fleet_report(found), fleet_report(found, details=True)
    assert len(lines_of(few)) <= 25 < len(lines_of(whole))
    for report in (few, whole):
        assert numbers_on_gpus(report) == list(range(1, 41))


def test_of_many_gpus_each_is_shown_in_a_line_if_need_be_on_more_than_a_screen():
    found = planned(KINDS * 4, FleetTerms(gpus=16, limit_s=100.0))
    report = fleet_report(found)
    lines = lines_of(report)
    assert len([line for line in lines if line.rstrip().endswith(" GiB")]) == 16
    assert numbers_on_gpus(report) == list(range(1, 33))
    assert "--details" not in "".join(lines)
