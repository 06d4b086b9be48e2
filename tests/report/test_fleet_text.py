import io

from rich.console import Console

from advisor.plan.fleet_plan import plan_fleet
from advisor.plan.fleet_terms import FleetTerms
from advisor.report.fleet_text import fleet_report
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn

KINDS = [Job(synthetic.profile(f"dlrm-29gb-bs{size}", memory_mib=100_000)) for size in range(1, 9)]


def lines_of(report):
    console = Console(file=io.StringIO(), width=80)
    console.print(report)
    return console.file.getvalue().splitlines()


def test_what_runs_on_many_gpus_fits_on_a_screen_and_details_show_all_of_it():
    found = plan_fleet(KINDS * 4, H200, StandIn(), FleetTerms(gpus=16, limit_s=0.2))
    few, whole = lines_of(fleet_report(found)), lines_of(fleet_report(found, details=True))
    assert len(few) <= 25 < len(whole)
    assert few[-1].endswith(" more GPUs: --details.")
    assert [line for line in whole if " more " in line] == []
    assert len([line for line in whole if line.rstrip().endswith(" GiB")]) == 16


def test_groups_of_one_gpu_are_left_out_where_a_screen_does_not_hold_them():
    found = plan_fleet(KINDS[:2] * 20, H200, StandIn(), FleetTerms(gpus=2, limit_s=0.2))
    few = lines_of(fleet_report(found))
    assert len(few) <= 25
    assert len([line for line in few if line.rstrip().endswith(" GiB")]) == 2
