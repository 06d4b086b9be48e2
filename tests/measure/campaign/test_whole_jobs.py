"""Whole jobs of a campaign: two runners run them to their ends."""

from advisor.measure.campaign.campaign_file import read_campaign
from advisor.measure.campaign.draw import drawn_plans
from advisor.measure.campaign.drawn_list import counts, plan_entry
from advisor.measure.shared.planned_run import PlannedRun
from advisor.measure.shared.strict_record import record
from tests.measure.campaign.plans import OF_A_GPU, written

TOYS = """
gpu = "cpu"
seed = 7
solo_every = 0
timing = {settle_s = 0.1}

[[runs]]
id = "whole-naive"
sharing = "naive"
purpose = "completion"
workloads = ["mlp-toy-bs32", "mlp-toy-bs64"]
steps = [60, 20]

[[runs]]
id = "whole-serial"
sharing = "serial"
purpose = "completion"
workloads = ["mlp-toy-bs32", "mlp-toy-bs64"]
steps = [60, 20]
"""


def test_the_list_of_a_campaign_says_how_many_steps_there_are_and_reads_back(tmp_path):
    runs = """
[[runs]]
id = "a"
sharing = "mps[1];naive[2]"
purpose = "completion"
workloads = ["dlrm-1gb-bs128", "dlrm-1gb-bs128"]
steps = [5, 6]
"""
    plans = drawn_plans(read_campaign(written(tmp_path, OF_A_GPU + runs)))
    (whole,) = (plan for plan in plans if plan.purpose == "completion")
    assert record(PlannedRun, plan_entry(whole)) == whole
    assert "completion phases       x2: 1" in counts(plans)


def test_a_campaign_runs_whole_jobs_to_their_ends_and_none_twice(campaign):
    shared = campaign(TOYS)
    code, said = shared.finish()
    assert code == 0, said
    runs = {run.id: run for run in shared.runs()}
    assert all(run.ok for run in runs.values())
    serial = runs["whole-serial"].completion
    assert serial.began_s[1] > serial.ended_s[0]
    assert runs["whole-naive"].completion.began_s == (0, 0)
    assert "2 runs are done already" in shared.finish()[1]
    shared.assert_nothing_is_left()
