"""What a campaign runs: how runs are drawn, handed to runners, recorded and compared."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import AdvisorError, InvalidInput
from advisor.measure.campaign import Dispatcher, Ledger, Seat
from advisor.measure.planned_runs import (
    Count,
    PlannedRun,
    draw_plans,
    read_campaign,
    read_plans,
    write_list,
)
from advisor.sharing import Mps, parse_sharing
from advisor.workload.catalogue import workload
from advisor.workload.store import read_runs
from tests import synthetic
from tests.measure.campaign.plans import OF_A_GPU, written

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
CHOSEN = """
[[runs]]
id = "chosen-1"
sharing = "mps=43,57"
purpose = "chosen"
workloads = ["resnet50-imagenet64-bs128", "dlrm-1gb-bs128"]
"""


@pytest.fixture
def campaign(tmp_path):
    return read_campaign(written(tmp_path, OF_A_GPU))


def test_a_committed_campaign_is_drawn_again_as_it_was():
    folder = BENCHMARKS / "campaign-second"
    campaign = read_campaign(folder / "plan.toml")
    shards = [read_plans(folder / f"plans-{n}.json", campaign.gpu) for n in range(4)]
    assert [draw_plans(campaign)[n::4] for n in range(4)] == shards


def test_as_many_are_drawn_as_the_plan_says(campaign):
    drawn = [plan for plan in draw_plans(campaign) if plan.purpose == "drawn"]
    modes = Counter((len(p.workloads), p.sharing.partition("=")[0]) for p in drawn)
    assert modes == {(2, "naive"): 7, (2, "mps"): 4 + 5 + 6, (4, "mps"): 2}
    same = [plan for plan in drawn if len(set(plan.workloads)) == 1]
    assert len(same) == 3 + 2
    mixed = [plan for plan in drawn if plan not in same]
    assert all(len(set(plan.workloads)) == len(plan.workloads) for plan in mixed)


@given(seed=st.integers(0, 2**32))
def test_one_seed_draws_one_campaign_and_limits_of_the_grid_alone(campaign_of_seed, seed):
    campaign = campaign_of_seed(seed)
    plans = draw_plans(campaign)
    assert plans == draw_plans(campaign)
    sharings = [parse_sharing(plan.sharing) for plan in plans]
    limited = [each.limits for each in sharings if isinstance(each, Mps) and each.limits]
    assert {limit for limits in limited for limit in limits} <= {14, 28, 43, 50, 71}
    assert len({plan.id for plan in plans}) == len(plans)


@pytest.fixture(scope="module")
def campaign_of_seed(tmp_path_factory):
    campaign = read_campaign(written(tmp_path_factory.mktemp("plan"), OF_A_GPU))
    return lambda seed: replace(campaign, seed=seed)


def test_runs_added_later_change_nothing_that_was_drawn_or_is_repeated(campaign, tmp_path):
    more = read_campaign(written(tmp_path, OF_A_GPU + CHOSEN))
    before, after = draw_plans(campaign), draw_plans(more)
    fixed = [plan for plan in before if plan.purpose in ("drawn", "repeat")]
    assert fixed == [plan for plan in after if plan.purpose in ("drawn", "repeat")]
    assert [plan.id for plan in after if plan.purpose == "chosen"] == ["chosen-1"]


def test_too_few_workloads_or_limits_are_refused(campaign):
    few = replace(campaign, small=campaign.small[:1], large=())
    no_limits, no_equal = replace(campaign, limits=()), replace(campaign, equal_limits={})
    for short in (few, no_limits, no_equal, replace(campaign, repeats=1000)):
        with pytest.raises(InvalidInput, match=r"too few|limits|Repeat fewer"):
            draw_plans(short)


def test_the_drawn_list_runs_on_a_single_device_and_is_never_drawn_otherwise(campaign, tmp_path):
    path, plans = tmp_path / "drawn.json", draw_plans(campaign)
    write_list(path, campaign.gpu, plans)
    assert read_plans(path, campaign.gpu) == plans
    other = replace(campaign, degrees={2: campaign.degrees[2] | {"mps": Count(1, 1)}})
    with pytest.raises(InvalidInput, match=r"drawn\.json"):
        write_list(path, campaign.gpu, draw_plans(other))
    write_list(path, campaign.gpu, draw_plans(replace(campaign, solo_every=1)))


PAIR = (workload("mlp-toy-bs32"), workload("mlp-toy-bs64"))


def mix(name, sharing="naive", purpose="drawn"):
    return PlannedRun(id=name, sharing=sharing, purpose=purpose, workloads=PAIR)


def many(count):
    """Runs with and without MPS by turns."""
    return [mix(f"run-{n}", "mps" if n % 2 else "naive") for n in range(count)]


def taken(seat, tasks):
    """All `tasks`, in the order in which the runner of `seat` takes them."""
    waiting = [*tasks]
    while waiting:
        yield seat.take(waiting)


def test_no_run_waits_long_for_its_turn_and_none_is_done_twice():
    tasks = many(100)
    did = list(taken(Seat(Runner("0")), tasks))
    assert sorted(task.id for task in did) == sorted(task.id for task in tasks)
    assert all(abs(did.index(task) - number) <= 24 for number, task in enumerate(tasks))


def test_a_runner_starts_and_stops_mps_a_few_times_only():
    sharings = [task.sharing for task in taken(Seat(Runner("0")), many(80))]
    assert sum(one != other for one, other in pairwise(sharings)) <= 80 / 8


class Runner:
    """Measures at once, and fails as asked.

    Args:
        name: Of its device.
        outcomes: How tenants end, or what is raised, a run each; then all is well.
        starts: How often it can be started.
    """

    def __init__(self, name, outcomes=(), starts=99):
        self.name = name
        self.started = 0
        self._outcomes = list(outcomes)
        self._starts = starts

    def start(self):
        self.started += 1
        if self.started > self._starts:
            raise AdvisorError("its GPU has fallen off the bus")

    def stop(self):
        pass

    def measured(self, mix):
        outcome = self._outcomes.pop(0) if self._outcomes else "ok"
        if isinstance(outcome, Exception):
            raise outcome
        return run_of(mix, outcome)


def run_of(mix, outcome):
    made = synthetic.run([synthetic.profile(each.name) for each in mix.workloads], mix.sharing)
    if outcome != "ok":
        gone = {"outcome": outcome, "detail": "gone", "windows": ()}
        made = replace(made, tenants=tuple(replace(each, **gone) for each in made.tenants))
    return replace(made, id=mix.id, purpose=mix.purpose)


@pytest.fixture
def work(tmp_path):
    """Lets runners do so many runs; what is recorded, by file."""

    def do(count, *runners, out=tmp_path):
        Dispatcher(many(count), Ledger(out, "c", out / "profiles"), None).work(runners)
        return {path.name: read_runs(path) for path in tmp_path.glob("*.jsonl")}

    return do


def test_a_run_whose_tenant_dies_is_done_again_by_a_fresh_runner(work):
    runner = Runner("0", ["failed", "failed"])
    (runs,) = work(4, runner).values()
    assert len(runs) == 4
    assert all(run.ok for run in runs)
    assert runner.started == 1 + 2


def test_a_run_that_ends_its_runner_three_times_is_given_up(work, tmp_path):
    runner = Runner("0", [AdvisorError("killed")] * 3)
    (runs,) = work(3, runner).values()
    assert len(runs) == 2
    assert "run-0: killed (3 times)" in (tmp_path / "c-failed.log").read_text()
    assert runner.started == 1 + 3


def test_the_others_do_what_a_runner_that_cannot_be_replaced_had(work):
    files = work(40, Runner("0", [AdvisorError("lost")], starts=1), Runner("1"))
    assert sum(map(len, files.values())) == 40


def test_no_run_is_begun_that_would_end_after_the_deadline(tmp_path):
    dispatcher = Dispatcher(many(4), Ledger(tmp_path, "c", tmp_path / "profiles"), 1e-6)
    dispatcher.work([Runner("0")])
    assert (dispatcher.done, len(dispatcher.waiting)) == (0, 4)


def test_runs_that_were_added_are_read_again(tmp_path):
    profile = synthetic.profile("mlp-toy-bs32")
    ledger = Ledger(tmp_path, "c", tmp_path / "profiles")
    ledger.add(profile, "0")
    run = synthetic.run([profile])
    tenants = (replace(run.tenants[0], windows=profile.windows),)
    solo = replace(run, sharing="naive", purpose="solo", tenants=tenants)
    for number in range(2):
        ledger.add(replace(solo, id=f"solo-{number}"), "0")
    ledger.add(replace(solo, id="again", purpose="repeat", repeats="solo-0"), "0")
    again = Ledger(tmp_path, "c", tmp_path / "profiles")
    assert again.runs.keys() == {"solo-0", "solo-1", "again"}
    assert (again.runs, again.profiles.keys()) == (ledger.runs, {"mlp-toy-bs32"})


def test_a_campaign_without_any_runner_left_has_failed(work):
    with pytest.raises(AdvisorError, match="4 runs"):
        work(4, Runner("0", [AdvisorError("lost")], starts=1))
    with pytest.raises(AdvisorError, match="off the bus"):
        work(4, Runner("0", starts=0), Runner("1"))
