import json
from dataclasses import replace

import pytest

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import gpu
from advisor.prediction.fit.observation import shared_runs
from advisor.prediction.physics import replay_mix
from advisor.prediction.predictor import Predictor
from advisor.sharing import Naive
from advisor.validate.selection import of_pace
from advisor.validate.validate import compared as compared_by_pace
from advisor.workload.records import parse_record
from advisor.workload.run import Completion, Run
from advisor.workload.writing import run_line
from research.completion import Unseen, compared_completions, panels
from research.completion_score import (
    RECOMMENDED,
    SIMULATED,
    finished,
    recommended_runs,
    regrets,
    whole_jobs,
)
from research.completion_section import finish_rows, section
from research.fewer_counters import UnseenFamilies
from tests import synthetic
from tests.fitted import fit
from tests.plan.stand_in import StandIn
from tests.validate.campaign import PROFILES as MANY
from tests.validate.campaign import campaign
from tests.validate.whole_jobs import LONG, SHORT, whole

PROFILES = {each.name: each for each in (SHORT, LONG)}
# The stand-in adds GPU time up: 30 ms a step for both until the short job ends after 3 s; then the
# long one does its other 100 steps in 20 ms each.
NAIVE = whole("set-naive", "naive", (3.0, 5.0))
SERIAL = whole("set-serial", "serial", (1.0, 5.0), pauses_s=(0.0,))
MPS = whole("set-mps", "mps", (2.0, 4.0))
PHASES = whole("set-phases", "mps[1];naive[2]", (1.0, 5.0), pauses_s=(0.25,))
PANEL = (SERIAL, NAIVE, MPS, PHASES)


def compared(*runs):
    return compared_completions(runs, PROFILES, StandIn())


def found(folder, *runs):
    return whole_jobs(compared(*runs), (), PROFILES, folder)


def test_a_mate_that_leaves_is_simulated_as_it_was_by_hand():
    (naive,) = compared(NAIVE)
    assert [end.p50 for end in naive.predicted_s] == pytest.approx([3.0, 5.0])
    assert naive.errors == pytest.approx((0.0, 0.0))
    assert naive.makespan_error == pytest.approx(0.0)
    assert naive.inside == 2


def test_errors_are_shares_of_what_was_measured():
    (slow,) = compared(whole("slow", "naive", (4.0, 5.0)))
    assert slow.errors == pytest.approx((-0.25, 0.0))
    assert slow.inside == 1
    rows = finished(compared(NAIVE, whole("slow", "naive", (4.0, 4.0))), "naive")
    assert rows.makespan == pytest.approx(0.125)
    assert rows.worst_makespan == pytest.approx(0.25)
    assert rows.completion == pytest.approx((0 + 0 + 0.25 + 0.25) / 4)
    assert rows.inside == 0.5


def test_each_way_of_sharing_is_a_line_of_its_own(tmp_path):
    rows = finish_rows(found(tmp_path, *PANEL, whole("limited", "mps=50,50", (3.0, 5.0))))
    assert [row[0] for row in rows] == [
        "one after another", "naive", "MPS", "MPS limits", "in phases"
    ]  # fmt: skip


def test_the_fastest_run_of_a_set_is_what_choices_are_held_against():
    lost = regrets(compared(*PANEL), PROFILES, {"set-phases"})
    assert lost["always-mps"] == [0.0]
    assert lost["always-naive"] == pytest.approx([1 - 4 / 5])
    assert lost[RECOMMENDED] == pytest.approx([1 - 4 / 5])
    assert lost[SIMULATED] == [0.0]
    assert lost["equal-limits"] == []


def test_a_set_that_did_not_run_serially_is_no_panel():
    assert panels(compared(NAIVE, MPS)) == []


def test_what_was_written_down_beforehand_is_found_by_its_run(tmp_path):
    (tmp_path / "completion-panels").mkdir()
    document = {"sets": [{"set": "set", "run": "set-recommended"}]}
    (tmp_path / "completion-panels" / "recommended.json").write_text(json.dumps(document))
    assert recommended_runs(tmp_path) == {"set-recommended"}


def test_the_section_says_what_pauses_took_and_what_choices_gave_away(tmp_path):
    text = section(found(tmp_path, *PANEL))
    assert "| naive | 1 | 2 | 0.0 % | 0.0 % | 0.0 % |" in text
    assert "MPS was started or stopped 1 times, which took 0.25 s" in text
    assert "the simulator takes 0.16 s" in text
    assert "| always MPS | 1 | 0.0 % | 0.0 % | 1 of 1 |" in text
    assert "recommended beforehand" not in text


def test_mixes_of_which_no_plan_is_chosen_are_scored_by_themselves(tmp_path):
    mix = whole("mix-naive", "naive", (2.0, 4.0), pair=(SHORT, SHORT))
    text = section(found(tmp_path, *PANEL, mix))
    said = "In the 1 run that is of no such set, makespan and completion times are off by: naive "
    assert said + "25.0 % and 12.5 %." in text
    assert "of no such set" not in section(found(tmp_path, *PANEL))


def test_nothing_is_said_where_no_whole_jobs_ran(tmp_path):
    assert section(found(tmp_path)) == ""
    lost = regrets((), PROFILES)
    assert not any(lost.values())


def test_a_run_in_which_a_tenant_died_is_recorded_and_not_compared():
    died = whole("died", "naive", (3.0, None))
    assert parse_record(Run, run_line(died), "here") == died
    assert compared(died) == ()


def test_whole_jobs_teach_no_pace_and_are_not_scored_by_it():
    assert parse_record(Run, run_line(NAIVE), "here") == NAIVE
    assert not NAIVE.shows_pace
    assert shared_runs(PROFILES, [NAIVE], gpu("h200-141gb")) == ()
    assert of_pace([NAIVE]) == []
    assert compared_by_pace([NAIVE, PHASES], PROFILES, StandIn(), gpu("h200-141gb")) == ()


def test_a_run_older_than_whole_jobs_reads_as_before():
    document = json.loads(run_line(replace(NAIVE, purpose="drawn", completion=None)))
    del document["completion"]
    assert parse_record(Run, json.dumps(document), "here").completion is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"completion": None}, "if and only if its purpose is completion"),
        ({"purpose": "drawn"}, "if and only if its purpose is completion"),
        (
            {"completion": replace(NAIVE.completion, ended_s=(3.0, None))},
            "an end if and only if it ran to it",
        ),
        ({"sharing": "serial"}, "between 2 groups are 1 pauses, got 0"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(change, said):
    with pytest.raises(InvalidInput, match=said):
        replace(NAIVE, **change)


@pytest.mark.parametrize(
    "change",
    [
        {"steps": (1,)}, {"steps": (0, 1)}, {"began_s": (-1.0, 0.0)}, {"ended_s": (0.0, 1.0)},
        {"pauses_s": (-0.1,)},
    ],
)  # fmt: skip
def test_times_that_cannot_be_are_refused(change):
    done = {"steps": (1, 2), "began_s": (0.0, 0.0), "ended_s": (1.0, 2.0), "pauses_s": ()}
    with pytest.raises(InvalidInput):
        Completion(**done | change, energy_j=None)


def test_a_job_is_predicted_by_the_model_that_never_saw_its_family():
    h200, mates = gpu("h200-141gb"), list(MANY.values())[:2]
    models = {name: fit(MANY, campaign(name), h200) for name in ("resnet", "cait")}
    pair = [mates[0], MANY["cait_xxs24_224-cifar10-bs32"]]
    unseen = Unseen(UnseenFamilies(h200, models, replay_mix))
    said = unseen.predict(pair, Naive())
    for at, family in enumerate(("resnet", "cait")):
        alone = Predictor(h200, models[family].on_known_cores()).predict(pair, Naive())
        assert said.jobs[at] == alone.jobs[at]
    run = whole("pair", "naive", (1.0, 2.0), pair)
    assert unseen.knows(run)
    assert not unseen.knows(NAIVE)


def test_the_section_says_how_much_of_the_error_waits_for_hosts(tmp_path):
    waits = replace(
        synthetic.profile("dlrm-1gb-bs128", host_s=0.02, gpu_s=0.005), host_check_s=1e-3
    )
    known = {each.name: each for each in (SHORT, waits)}
    run = whole("set-naive", "naive", (3.0, 5.0), pair=(SHORT, waits))
    slow = replace(run, tenants=tuple(replace(t, host_check_s=2e-3) for t in run.tenants))
    runs = compared_completions([slow], known, StandIn())
    text = section(whole_jobs(runs, (), known, tmp_path))
    busy, idle = (f"{100 * abs(error):.1f} %" for error in runs[0].errors)
    assert (
        f"fill the GPU alone ended {busy} off in the mean, those that wait for their hosts {idle}"
        in text
    )
    assert "cores took 2.0 times as long" in text
