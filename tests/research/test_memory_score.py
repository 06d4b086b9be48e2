from dataclasses import replace

import numpy as np
import pytest

from advisor.hardware.catalogue import gpu
from advisor.prediction.fit.memory_fit import Trial, fit_context, trials
from advisor.prediction.fit.observation import shared_runs
from advisor.prediction.memory import Need
from advisor.workload.measured import Memory
from advisor.workload.store import load_profiles
from advisor.workload.stored_runs import load_runs
from research.memory_risk import risk_rows
from research.memory_score import evaluate_memory
from tests import synthetic

H200 = gpu("h200-141gb")
NAMES = ("resnet50-imagenet64-bs128", "bert-base-finetune-bs16", "mlp-toy-bs128")
PROFILES = {name: synthetic.profile(name) for name in NAMES}


def measured(factor, sharing="naive"):
    """Drawn runs whose processes hold `factor` of what their profiles say."""
    runs = []
    for number in range(3):
        run = synthetic.run([PROFILES[name] for name in NAMES], sharing, run_id=f"r{number}")
        held = [
            Memory(
                allocated_mib=each.memory.allocated_mib * factor,
                reserved_mib=each.memory.reserved_mib * factor,
                device_mib=each.memory.device_mib * factor,
            )
            for each in run.tenants
        ]
        pairs = zip(run.tenants, held, strict=True)
        runs.append(replace(run, tenants=tuple(replace(t, memory=m) for t, m in pairs)))
    return runs


@pytest.mark.parametrize(("factor", "error"), [(1.0, 0.0), (1.25, 0.2), (0.8, 0.25)])
def test_errors_are_shares_of_what_was_measured(factor, error):
    (row,) = evaluate_memory(PROFILES, measured(factor), H200).rows
    assert (row.mode, row.processes, row.runs) == ("naive", 9, 3)
    assert (row.held_mape, row.held_worst) == pytest.approx((error, error))
    assert (row.least_mape, row.total_mape) == pytest.approx((error, error))


def test_without_trials_no_risk_is_scored():
    score = evaluate_memory(PROFILES, measured(1.0), H200)
    assert score.risks == ()


def outcomes(reach, count=300):
    """Trials of 30 GB mixes that run out where cards reach less than `reach` of their caches."""
    random = np.random.default_rng(3)
    for number in range(count):
        capacity_mib = 30_000 + 6000 * random.uniform(-0.5, 1.5)
        edge_mib = 30_000 + 6000 * random.normal(reach, 0.15)
        families = frozenset({"abcd"[number % 4], "abcd"[number // 4 % 4]})
        mix = (Need(18_000, 15_000), Need(18_000, 15_000))
        yield Trial("mps", families, mix, capacity_mib, int(capacity_mib < edge_mib))


def test_risks_learnt_from_other_families_come_true_as_often_as_they_say():
    (row,) = risk_rows(list(outcomes(0.4)), sigma=0.005)
    assert (row.trials, row.mode) == (300, "mps")
    assert row.recall > 0.8
    assert row.false_alarms < 0.2
    assert sum(each.trials for each in row.bins) == pytest.approx(300)
    assert all(abs(each.predicted - each.observed) < 0.2 for each in row.bins if each.trials > 20)


def test_a_rule_that_counts_on_no_cache_is_shown_beside():
    (row,) = risk_rows(list(outcomes(0.4)), sigma=0.005)
    assert row.cautious_recall == 1.0
    assert row.cautious_false_alarms > row.false_alarms + 0.3


def test_of_real_trials_most_misfits_are_foreseen_and_few_alarms_are_false():
    profiles, runs = load_profiles("h200-141gb"), load_runs("h200-141gb")
    shared = shared_runs(profiles, runs, H200)
    context = fit_context(profiles, shared, H200)
    tried = trials(profiles, runs, context, H200)
    assert len(tried) >= 68
    rows = risk_rows(tried, sigma=0.01)
    misfits = sum(row.misfits for row in rows)
    fits = sum(row.trials - row.misfits for row in rows)
    assert sum((row.recall or 0.0) * row.misfits for row in rows) / misfits > 0.85
    assert sum((row.false_alarms or 0.0) * (row.trials - row.misfits) for row in rows) / fits < 0.2


def test_where_all_fit_there_is_no_recall():
    fits = [replace(each, refused=0) for each in outcomes(0.4)]
    (row,) = risk_rows(fits, sigma=0.005)
    assert row.misfits == 0
    assert row.recall is None
    assert row.false_alarms is not None
