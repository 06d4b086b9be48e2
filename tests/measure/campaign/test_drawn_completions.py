"""Whole jobs of a campaign: how they were drawn, and that two runners run them to their ends."""

import json
import tomllib
from itertools import pairwise
from math import log
from pathlib import Path

import pytest

from advisor.measure.campaign.campaign_file import read_campaign
from advisor.measure.campaign.draw import drawn_plans
from advisor.measure.campaign.drawn_list import counts, plan_entry
from advisor.measure.shared.planned_run import PlannedRun
from advisor.measure.shared.strict_record import record
from advisor.sharing import Mps, Naive, Phases, Serial, parse_sharing
from advisor.workload.store import read_profile
from benchmarks import draw_completions, draw_panels, recommend_panels
from tests.measure.campaign.plans import OF_A_GPU, written

ROOT = Path(__file__).parents[3]
PANELS = ("completion-panels", "completion-panels-second")
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


def sets_of(name):
    """The runs of each committed set of the plan `name`."""
    sets = {}
    for plan in read_campaign(ROOT / "benchmarks" / name / "plan.toml").runs:
        sets.setdefault(plan.id.rpartition("-")[0], []).append(plan)
    return sets


def alone_s(plan):
    folder = ROOT / "profiles" / "h200-141gb"
    steps_s = [read_profile(folder / f"{each.name}.json").step_s for each in plan.workloads]
    return [n * step_s for n, step_s in zip(plan.steps, steps_s, strict=True)]


def test_ten_mixes_run_naive_under_mps_and_with_limits_three_of_the_first_study_among_them():
    sets = list(sets_of("completion").values())
    assert len(sets) == 10
    s, m = draw_completions.S, draw_completions.M
    names = [[each.name for each in runs[0].workloads] for runs in sets]
    assert names[:3] == [[m, s], [m, s, s], [m, m, m, s]]
    for runs in sets:
        naive, mps, limits = (parse_sharing(run.sharing) for run in runs)
        assert (naive, mps) == (Naive(), Mps())
        assert len(limits.limits) == len(runs[0].workloads)
        lengths_s = alone_s(runs[0])
        assert min(lengths_s) == pytest.approx(3, rel=0.05)
        assert max(lengths_s) == pytest.approx(12, rel=0.05)


def test_twelve_sets_of_three_to_eight_jobs_run_in_eleven_ways_and_as_recommended():
    sets = [runs for name in PANELS for runs in sets_of(name).values()]
    assert sorted(len(runs[0].workloads) for runs in sets) == sorted([3, 4, 5, 6, 7, 8] * 2)
    for runs in sets:
        assert len({(run.workloads, run.steps) for run in runs}) == 1
        fixed = [run for run in runs if not run.id.endswith("-recommended")]
        kinds = [parse_sharing(run.sharing) for run in fixed]
        assert {Serial(), Naive(), Mps()} <= set(kinds)
        assert len({each for each in kinds if isinstance(each, Mps) and each.limits}) == 6
        assert len({each for each in kinds if isinstance(each, Phases)}) == 2
        assert len(runs) - len(fixed) in (0, 1)


@pytest.mark.parametrize("name", PANELS)
def test_every_committed_recommendation_for_whole_jobs_is_a_run_of_the_plan(name):
    file = ROOT / "benchmarks" / name / "recommended.json"
    if not file.exists():
        pytest.skip("nothing is recommended yet: benchmarks/recommend_panels.py does so once")
    sets = sets_of(name)
    for each in json.loads(file.read_text())["sets"]:
        sharings = {run.id: run.sharing for run in sets[each["set"]]}
        assert sharings[each["run"]] == each["sharing"]


def test_a_recommended_run_has_the_steps_of_its_set():
    jobs = (["dlrm-1gb-bs128", "gru-speech-bs64"], [500, 60])
    text = draw_panels.run_text("set-00-mps", "mps", *jobs)
    said = {"set": "set-00", "run": "set-00-recommended", "sharing": "serial[1];naive[2]"}
    text = recommend_panels.with_recommended(f"gpu = 1\n{text}", [said])
    mps, recommended = tomllib.loads(text)["runs"]
    assert recommended == mps | {"id": said["run"], "sharing": said["sharing"]}
    assert record(PlannedRun, recommended).steps == (500, 60)


def test_lengths_of_a_sets_jobs_are_spread_evenly():
    (runs, *_) = sets_of("completion-panels").values()
    lengths_s = sorted(alone_s(runs[0]))
    apart = [log(b / a) for a, b in pairwise(lengths_s)]
    assert apart == pytest.approx([log(2), log(2)], rel=0.1)


def test_the_list_of_a_campaign_says_how_many_steps_there_are_and_reads_back(tmp_path):
    runs = draw_panels.run_text("a", "mps[1];naive[2]", ["dlrm-1gb-bs128"] * 2, [5, 6])
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
