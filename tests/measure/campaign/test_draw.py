import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.measure.campaign.campaign_file import Count, read_campaign
from advisor.measure.campaign.draw import drawn_plans, idle_twin
from advisor.measure.campaign.drawn_list import counts, plan_entry, write_list
from advisor.measure.shared.planned_run import PlannedRun
from advisor.measure.shared.run_list_file import read_plans
from advisor.sharing import Mps, parse_sharing
from advisor.workload.named_workloads import workload
from tests.measure.campaign.plans import OF_A_GPU, written

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
CHOSEN = """
[[runs]]
id = "chosen-1"
sharing = "mps=43,57"
purpose = "chosen"
workloads = ["resnet50-imagenet64-bs128", "dlrm-1gb-bs128"]

[[control]]
id = "pair"
sharing = "naive"
workloads = ["resnet50-imagenet64-bs128", "dlrm-1gb-bs128"]
copies = 3
"""


@pytest.fixture
def campaign(tmp_path):
    return read_campaign(written(tmp_path, OF_A_GPU))


@pytest.mark.parametrize("name", ["campaign", "campaign-second"])
def test_committed_campaigns_are_drawn_again_as_they_were(name):
    folder = BENCHMARKS / name
    entries = [plan_entry(plan) for plan in drawn_plans(read_campaign(folder / "plan.toml"))]
    shards = [json.loads((folder / f"plans-{n}.json").read_text())["plans"] for n in range(4)]
    assert [entries[n::4] for n in range(4)] == shards


def test_more_plain_twins_than_runs_with_priorities_are_refused(campaign):
    with pytest.raises(InvalidInput, match="plain_twins"):
        drawn_plans(replace(campaign, plain_twins=1))


def test_as_many_are_drawn_as_the_plan_says(campaign):
    drawn = [plan for plan in drawn_plans(campaign) if plan.purpose == "drawn"]
    modes = Counter((len(p.workloads), p.sharing.partition("=")[0]) for p in drawn)
    assert modes == {(2, "naive"): 7, (2, "mps"): 4 + 5 + 6, (4, "mps"): 2}
    same = [plan for plan in drawn if len(set(plan.workloads)) == 1]
    assert len(same) == 3 + 2
    mixed = [plan for plan in drawn if plan not in same]
    assert all(len(set(plan.workloads)) == len(plan.workloads) for plan in mixed)


def test_large_workloads_are_only_in_small_mixes(campaign):
    crowded = [plan for plan in drawn_plans(campaign) if len(plan.workloads) > 3]
    assert not any(each in campaign.large for plan in crowded for each in plan.workloads)


@given(seed=st.integers(0, 2**32))
def test_one_seed_draws_one_campaign_and_limits_of_the_grid_alone(campaign_of_seed, seed):
    campaign = campaign_of_seed(seed)
    plans = drawn_plans(campaign)
    assert plans == drawn_plans(campaign)
    sharings = [parse_sharing(plan.sharing) for plan in plans]
    limited = [each.limits for each in sharings if isinstance(each, Mps) and each.limits]
    assert {limit for limits in limited for limit in limits} <= {14, 28, 43, 50, 71}
    assert len({plan.id for plan in plans}) == len(plans)


@pytest.fixture(scope="module")
def campaign_of_seed(tmp_path_factory):
    campaign = read_campaign(written(tmp_path_factory.mktemp("plan"), OF_A_GPU))
    return lambda seed: replace(campaign, seed=seed)


def test_other_seeds_draw_other_runs(campaign_of_seed):
    assert drawn_plans(campaign_of_seed(1)) != drawn_plans(campaign_of_seed(2))


def test_solo_runs_lie_between_the_others_and_visit_every_workload_in_turn(campaign):
    plans = drawn_plans(replace(campaign, solo_every=2))
    solos = [plan.workloads[0].name for plan in plans if plan.purpose == "solo"]
    assert len(solos) == 12
    assert len(set(solos[:4])) == len(set(solos[4:8])) == 4
    places = [number for number, plan in enumerate(plans) if plan.purpose == "solo"]
    assert {after - before for before, after in pairwise(places)} == {3}


def test_a_workload_runs_alone_no_more_often_than_wanted(campaign):
    plans = drawn_plans(replace(campaign, solo_every=1, solos_of_each=2))
    solos = Counter(plan.workloads[0].name for plan in plans if plan.purpose == "solo")
    assert set(solos.values()) == {2}


def test_runs_added_later_change_nothing_that_was_drawn_or_is_repeated(campaign, tmp_path):
    more = read_campaign(written(tmp_path, OF_A_GPU + CHOSEN))
    before, after = drawn_plans(campaign), drawn_plans(more)
    fixed = [plan for plan in before if plan.purpose in ("drawn", "repeat")]
    assert fixed == [plan for plan in after if plan.purpose in ("drawn", "repeat")]
    assert [plan.id for plan in after if plan.purpose == "chosen"] == ["chosen-1"]


def test_controls_are_measured_amid_the_others_and_again_at_the_end(tmp_path):
    plans = drawn_plans(read_campaign(written(tmp_path, OF_A_GPU + CHOSEN)))
    names = [plan.id for plan in plans]
    busy = [f"plan-control-pair-{number}-busy" for number in (1, 2, 3)]
    assert names[-3:] == [idle_twin(name) for name in busy]
    assert [name for name in names if name in busy] == busy
    assert max(map(names.index, busy)) < 0.8 * len(names)


def test_too_few_workloads_or_limits_are_refused(campaign):
    few = replace(campaign, small=campaign.small[:1], large=())
    with pytest.raises(InvalidInput, match="too few to draw from"):
        drawn_plans(few)
    with pytest.raises(InvalidInput, match="'limits' is missing"):
        drawn_plans(replace(campaign, limits=()))
    with pytest.raises(InvalidInput, match=r"'equal_limits.2' is missing"):
        drawn_plans(replace(campaign, equal_limits={}))
    with pytest.raises(InvalidInput, match="Repeat fewer"):
        drawn_plans(replace(campaign, repeats=1000))


def test_the_drawn_list_is_one_that_runs_on_a_single_device_too(campaign, tmp_path):
    plans = drawn_plans(campaign)
    write_list(tmp_path / "drawn.json", campaign.gpu, plans)
    assert read_plans(tmp_path / "drawn.json", campaign.gpu) == plans
    assert counts(plans).startswith(f"{len(plans)} runs\n")


def test_what_was_drawn_once_is_not_drawn_otherwise_into_the_same_folder(campaign, tmp_path):
    path = tmp_path / "drawn.json"
    write_list(path, campaign.gpu, drawn_plans(campaign))
    other = replace(campaign, degrees={2: campaign.degrees[2] | {"mps": Count(1, 1)}})
    with pytest.raises(InvalidInput, match="the runs drawn before are different"):
        write_list(path, campaign.gpu, drawn_plans(other))
    more = replace(campaign, solo_every=1)
    write_list(path, campaign.gpu, drawn_plans(more))


def test_a_run_on_a_smaller_card_is_listed_with_its_size(tmp_path):
    file = tmp_path / "plans.json"
    plan = PlannedRun(
        id="oom-1", sharing="naive", purpose="memory", capacity_mib=24576,
        workloads=(workload("mlp-toy-bs32"),),
    )  # fmt: skip
    write_list(file, "h200-141gb", [plan])
    assert read_plans(file, "h200-141gb") == (plan,)
