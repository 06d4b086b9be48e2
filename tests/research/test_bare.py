"""Profiles cut to the numbers that people have, and what others measured on other GPUs."""

import pytest

from advisor.hardware.gpus import gpu
from advisor.prediction.model import load_model
from advisor.prediction.predictor import Predictor
from advisor.sharing import Mps, Naive, Serial
from advisor.workload.store import model_path
from research import others
from research.bare import (
    BY_DCGM,
    BY_DRIVER,
    KNOWN,
    WITH_LIMITS,
    bare_scores,
    first_plans,
    matching,
    models_left_out,
    rescored,
)
from research.evaluate import evaluate
from research.files import ROOT, csv_rows
from research.others import read_others
from research.regret import MODEL, Panel, PanelOption
from tests.fitted import folds_fitted_once
from tests.research.campaign import PROFILES, advised_campaign, campaign

__all__ = ["folds_fitted_once"]

H200 = gpu("h200-141gb")
DATA = ROOT.parent / "shared" / "data"


@pytest.fixture(scope="module")
def evaluation():
    return evaluate(PROFILES, [*campaign(), *advised_campaign()], H200)


@pytest.mark.parametrize("known", KNOWN)
def test_a_cut_profile_has_what_is_known_and_no_more(known):
    for profile in PROFILES.values():
        cut = KNOWN[known](profile)
        assert (cut.trace, cut.host_s, cut.energy_j) == (None, None, None)
        assert cut.step_s == profile.step_s
        assert (cut.power_w is None) == (known not in (BY_DRIVER, BY_DCGM, WITH_LIMITS))
        if profile.counters is not None:
            sms = profile.counters.sm_active if known == BY_DCGM else None
            assert cut.counters.sm_active == sms
            assert cut.busy_share == pytest.approx(profile.counters.gract)
        assert cut.mps is None or known == WITH_LIMITS


def test_every_job_is_predicted_without_its_family_and_from_the_cut_profile(evaluation):
    scored = rescored(evaluation.chosen, evaluation.models, KNOWN[BY_DRIVER])
    assert [run.run.id for run in scored.runs] == [run.run.id for run in evaluation.runs]
    assert all(p.trace is None for p in scored.chosen.profiles.values())
    without = models_left_out(evaluation.chosen, next(iter(evaluation.models.values())))
    for family, model in without.items():
        assert model.capacity == evaluation.models[family].capacity


def test_scores_count_each_job_of_drawn_runs_once_for_each_description(evaluation):
    scores = bare_scores([evaluation.chosen], evaluation.models)
    drawn = sum(len(run.jobs) for run in evaluation.runs)
    for known in KNOWN:
        assert sum(row.n for row in matching(scores.errors, known=known)) == drawn


def panel(naive, mps, predicted_naive):
    measured = {Serial(): 1.0, Naive(): naive, Mps(): mps}
    predicted = {Serial(): 1.0, Naive(): predicted_naive, Mps(): 1.5}
    return Panel(
        ("a", "b"),
        tuple(
            PanelOption(sharing=each, measured=pace, times=1, predicted={MODEL: predicted[each]})
            for each, pace in measured.items()
        ),
    )


def test_time_slicing_counts_as_best_by_three_per_cent_and_first_where_it_leads():
    sets = [panel(1.6, 1.5, 1.9), panel(1.6, 1.5, 1.0), panel(1.52, 1.5, 1.0), panel(1.2, 1.8, 1.0)]
    judged = first_plans(BY_DRIVER, H200.key, "all", sets)
    assert (judged.sets, judged.slicing_best, judged.slicing_first) == (4, 2, 1)
    assert judged.worst == pytest.approx(1 - 1.5 / 1.6)
    assert judged.mean == judged.always_mps - (1 - 1.5 / 1.6) / 4


@pytest.mark.skipif(not DATA.is_dir(), reason="others' measurements are not on this machine")
def test_every_row_of_others_is_scored_and_the_documents_show_the_same_groups():
    now, stored = others.others(DATA), read_others()
    pairs = 2 * len(list(csv_rows(DATA / "v100_pairs.csv")))
    assert sum(row.n for row in matching(now.errors, gpu=others.V100, known=BY_DRIVER)) == pairs
    slices = [row for row in csv_rows(DATA / "a100_mig_slice_steptime.csv") if row["ran"] == "1"]
    (whole,) = matching(now.errors, group=others.ALL_SLICES, known=BY_DRIVER)
    assert whole.n == sum(row["mig_profile"] != "7g.40gb" for row in slices)
    assert [(row.known, row.gpu, row.group) for row in now.errors] == [
        (row.known, row.gpu, row.group) for row in stored.errors
    ]


def test_jobs_that_share_a_v100_as_predicted_have_no_error(tmp_path):
    solo, pairs = tmp_path / "v100_solo.csv", tmp_path / "v100_pairs.csv"
    limits = {f"steps_per_s_at_{each}_percent": 10 * each / 100 for each in range(10, 101, 10)}
    alone = {
        "job": "a",
        "gpu_utilization_percent": 90,
        "memory_utilization_percent": 40,
        "memory_gib": 3,
        "power_w": 200,
        "sm_active_percent": 80,
        "sm_occupancy_percent": 40,
        "dram_active_percent": 30,
        **limits,
    }
    solo.write_text(",".join(alone) + "\n" + ",".join(map(str, alone.values())) + "\n")
    profile = others.v100_profiles(tmp_path)[BY_DRIVER]["a"]
    predictor = Predictor(gpu(others.V100), load_model(model_path()))
    head = "job_1,job_2,mode,limit_1_percent,limit_2_percent,steps_per_s_1,steps_per_s_2"
    rows = [head]
    for mode, sharing in (("naive", Naive()), ("mps", Mps())):
        paces = [1 / job.step_s.p50 for job in predictor.predict([profile] * 2, sharing).jobs]
        rows.append(f"a,a,{mode},,,{paces[0]!r},{paces[1]!r}")
    pairs.write_text("\n".join(rows) + "\n")
    errors, first = others.v100_scores(tmp_path)
    exact = matching(errors, known=BY_DRIVER)
    assert [(row.n, row.inside) for row in exact] == [(2, 1.0), (2, 1.0)]
    assert [row.mape for row in exact] == pytest.approx([0, 0])
    assert first[0].sets == 1
