"""From drawn job sets to the winners that are measured again, on two runners that share the CPU."""

import json
import subprocess
import sys
import tomllib
from dataclasses import asdict, replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.measure.campaign.campaign_file import read_campaign
from advisor.measure.campaign.draw import drawn_plans
from advisor.sharing import Mps, Naive, parse_sharing
from advisor.workload.store import read_profile
from advisor.workload.writing import append_run, profile_text
from benchmarks import draw_panels, panel_winners, recommend_panels
from research.files import measured
from tests import synthetic
from tests.measure.campaign.plans import written

ROOT = Path(__file__).parents[3]
PLAN = ROOT / "benchmarks" / "panels" / "plan.toml"
PAIR = [
    synthetic.profile("resnet50-imagenet64-bs128"),
    synthetic.profile("bert-base-finetune-bs16"),
]
NAMES = [each.name for each in PAIR]
TOYS = """
gpu = "cpu"
seed = 7
prefix = "panel-"
small = ["mlp-toy-bs32", "mlp-toy-bs64"]
solo_every = 1
solos_of_each = 1
profile = {missing = true}
timing = {settle_s = 0.1, window_s = 0.1}
"""


@pytest.fixture(scope="module")
def panel():
    """The committed sets: the runs of each, by name."""
    sets = {}
    for plan in read_campaign(PLAN).runs:
        sets.setdefault(plan.id.rpartition("-")[0], []).append(plan)
    return sets


def test_forty_sets_of_two_to_eight_jobs_run_naive_under_mps_and_with_equal_limits(panel):
    assert len(panel) >= 40
    assert {len(runs[0].workloads) for runs in panel.values()} == set(range(2, 9))
    for runs in panel.values():
        degree = len(runs[0].workloads)
        sharings = {parse_sharing(run.sharing) for run in runs}
        assert {Naive(), Mps(), Mps((round(100 / degree),) * degree)} <= sharings
        assert {run.workloads for run in runs} == {runs[0].workloads}


def test_every_job_of_the_sets_runs_alone_too(panel):
    plans = drawn_plans(read_campaign(PLAN))
    alone = {plan.workloads[0].name for plan in plans if plan.purpose == "solo"}
    shared = {each.name for runs in panel.values() for each in runs[0].workloads}
    assert shared == alone
    assert all(plan.id.startswith("panel-solo-") for plan in plans if plan.purpose == "solo")


def test_no_set_of_the_panel_was_run_before_and_none_has_a_compiled_job(panel):
    _, runs = measured(ROOT / "profiles" / "h200-141gb")
    before = draw_panels.ran(runs)
    for name, chosen in panel.items():
        workloads = chosen[0].workloads
        assert tuple(sorted(each.name for each in workloads)) not in before, name
        assert all(each.execution != "compiled" for each in workloads)


@given(st.integers(0, 2**32))
def test_sets_differ_and_copies_stand_together(seed):
    names = [f"w{number:02}" for number in range(30)]
    sets = list(draw_panels.drawn(Random(seed), names, {("w00", "w01")}, 40))
    assert len({tuple(sorted(jobs)) for jobs in sets} | {("w00", "w01")}) == 41
    for jobs in sets:
        assert jobs == [job for job in dict.fromkeys(jobs) for _ in range(jobs.count(job))]


def test_a_recommendation_that_is_not_in_the_panel_becomes_a_run_after_its_sets_others():
    text = draw_panels.plan_text("h200-141gb", 1, [NAMES, NAMES[:1] * 2])
    said = [
        {"set": "panel-00", "run": "panel-00-recommended", "sharing": "mps=30,70"},
        {"set": "panel-01", "run": "panel-01-mps", "sharing": "mps"},
    ]
    runs = tomllib.loads(recommend_panels.with_recommended(text, said))["runs"]
    ids = [run["id"].removeprefix("panel-") for run in runs]
    assert ids == ["00-naive", "00-mps", "00-equal", "00-recommended",
                   "01-naive", "01-mps", "01-equal"]  # fmt: skip
    assert runs[3] == runs[2] | {"id": "panel-00-recommended", "sharing": "mps=30,70"}


def test_every_committed_recommendation_is_a_run_of_the_plan(panel):
    file = PLAN.with_name("recommended.json")
    if not file.exists():
        pytest.skip("nothing is recommended yet: benchmarks/recommend_panels.py does so once")
    sets = json.loads(file.read_text())["sets"]
    assert [each["set"] for each in sets] == list(panel)
    for each in sets:
        sharings = {run.id: run.sharing for run in panel[each["set"]]}
        assert each["sharing"] in ("serial", sharings.get(each["run"])), each["set"]


def test_what_was_recommended_is_never_written_again(tmp_path):
    (tmp_path / "recommended.json").write_text("{}")
    command = [sys.executable, ROOT / "benchmarks" / "recommend_panels.py", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "is fixed" in done.stderr


def records(folder, *runs):
    """Runs of advice in `folder`; each is id, sharing and slowdown."""
    folder.mkdir()
    for name, sharing, slowdown in runs:
        run = replace(synthetic.run(PAIR, sharing, slowdown, name), purpose="validation")
        append_run(folder / "panels-0.jsonl", run)
    for number, each in enumerate(PAIR):
        run = synthetic.run([each], "naive", 1.0, f"panel-solo-{number:03}")
        append_run(folder / "panels-1.jsonl", replace(run, purpose="solo"))
    return folder


def winners(tmp_path, *runs):
    """The campaign that measures the best of `runs` again."""
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    for each in PAIR:
        (profiles / f"{each.name}.json").write_text(profile_text(each))
    out = tmp_path / "winners.toml"
    script = ROOT / "benchmarks" / "panel_winners.py"
    words = [records(tmp_path / "runs", *runs), "--profiles", profiles, "--out", out]
    subprocess.run([sys.executable, "-S", script, *words], check=True, capture_output=True)
    return drawn_plans(read_campaign(out))


def test_the_best_sharing_of_each_set_is_measured_again(tmp_path):
    again = winners(
        tmp_path,
        ("panel-00-naive", "naive", 1.9), ("panel-00-recommended", "mps=30,70", 1.2),
        ("panel-01-mps", "mps", 1.4), ("panel-01-naive", "naive", 1.5),
    )  # fmt: skip
    assert [(plan.id, plan.sharing, plan.repeats, plan.purpose) for plan in again] == [
        ("panel-00-again", "mps=30,70", "panel-00-recommended", "repeat"),
        ("panel-01-again", "mps", "panel-01-mps", "repeat"),
    ]
    assert again[0].workloads == tuple(each.workload for each in PAIR)


def test_where_one_after_another_is_best_each_job_runs_alone_again(tmp_path):
    again = winners(tmp_path, ("panel-00-naive", "naive", 2.5), ("panel-00-mps", "mps", 2.1))
    assert [(plan.id, plan.repeats) for plan in again] == [
        ("panel-00-again.1", "panel-solo-000"), ("panel-00-again.2", "panel-solo-001"),
    ]  # fmt: skip


def test_winners_need_the_profiles_that_throughput_is_told_by(tmp_path):
    run = synthetic.run(PAIR)
    with pytest.raises(SystemExit, match="no profile of bert-base"):
        panel_winners.alone(tmp_path, [asdict(run)])


def test_a_workload_is_read_back_as_it_was(tmp_path):
    run = json.loads(json.dumps(asdict(synthetic.run(PAIR))))
    text = panel_winners.HEAD.format(gpu=run["gpu"])
    text += panel_winners.run_text(panel_winners.repeat(run, "again"))
    (plan,) = read_campaign(written(tmp_path, text)).runs
    assert plan.workloads == tuple(each.workload for each in PAIR)


@pytest.mark.exhaustive
def test_from_the_panel_to_its_winners_with_toys_on_two_runners(campaign, tmp_path):
    jobs = ["mlp-toy-bs32", "mlp-toy-bs64"]
    runs = draw_panels.run_text("panel-00-naive", "naive", jobs)
    runs += draw_panels.run_text("panel-01-naive", "naive", [jobs[0]] * 2)
    shared = campaign(TOYS + runs)
    code, said = shared.finish()
    assert code == 0, said
    out = tmp_path / "winners.toml"
    script = ROOT / "benchmarks" / "panel_winners.py"
    words = [script, shared.out, "--profiles", shared.profiles, "--out", out]
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    again = read_campaign(out).runs
    assert {plan.id.split(".")[0] for plan in again} == {"panel-00-again", "panel-01-again"}
    done = {run.id for run in shared.runs()}
    assert {plan.repeats for plan in again} <= done
    assert read_profile(shared.profiles / "mlp-toy-bs32.json").gpu == "cpu"
