from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from advisor.prediction.interval import Interval
from advisor.validate.evaluate import Evaluation
from advisor.validate.predicted_and_measured import JobComparison, RunComparison
from research.error_budget import (
    COMMON,
    HOST,
    MEMORY,
    NOISE,
    PARTS,
    SMS,
    budget_of,
)
from research.shortfall import budgets_of, section
from research.targets import targets
from tests import synthetic

FAMILIES = ("resnet50-imagenet64-bs128", "bert-base-finetune-bs16", "gpt2-small-finetune-bs2")
BUSY = {name: synthetic.profile(name, host_s=0.005, gpu_s=0.010) for name in FAMILIES}


def _profile(name, *, host=False, dram=0.1, sms=0.5):
    made = synthetic.profile(name, host_s=0.02 if host else 0.005, gpu_s=0.010)
    return replace(made, counters=replace(made.counters, dram_active=dram, sm_active=sms))


def _job(profile, error, replay_s=None):
    measured_s = 2 * profile.step_s
    predicted_s = measured_s * (1 + error)
    return JobComparison(
        job=profile.name,
        family=profile.workload.family,
        busy_share=profile.busy_share,
        alone_s=predicted_s,  # at the pace of alone, so that counters count in full
        measured_s=measured_s,
        predicted_s=Interval(predicted_s * 0.9, predicted_s, predicted_s * 1.1),
        memory_mib=None,
        measured_memory_mib=None,
        baselines_s={"replay": replay_s},
    )


def _evaluation(profiles, errors, repeats=()):
    """One run for each of `errors`, of three jobs that all are so far off."""
    runs = [
        RunComparison(
            synthetic.run([p[name] for name in FAMILIES], "mps", 2.0, f"r{number}"),
            tuple(_job(p[name], error) for name in FAMILIES),
        )
        for number, (p, error) in enumerate(zip(profiles, errors, strict=True))
    ]
    return Evaluation(
        gpu="h200-141gb", families=("bert", "gpt2", "resnet"), runs=tuple(runs),
        repeats=repeats, unusable=(), drift=None, profiles=profiles[0],
    )  # fmt: skip


def _mixed(kind, unlike):
    """Six runs of plain jobs, and in one family jobs of another `kind`, off by `unlike`."""
    profiles = BUSY | {FAMILIES[0]: _profile(FAMILIES[0], **kind)}
    found = _evaluation([profiles] * 6, [0.02] * 6)
    runs = [
        replace(run, jobs=(_job(profiles[FAMILIES[0]], unlike), *run.jobs[1:]))
        for run in found.runs
    ]
    return replace(found, runs=tuple(runs))


def test_shares_sum_to_one_and_lie_in_their_ranges():
    random = np.random.default_rng(3)
    budget = budget_of(_evaluation([BUSY] * 20, random.normal(0, 0.1, 20)), "mps")
    assert tuple(budget.parts) == PARTS
    assert sum(share for share, _, _ in budget.parts.values()) == pytest.approx(1)
    assert all(0 <= low <= high <= 1 + 1e-9 for _, low, high in budget.parts.values())


def test_an_error_alike_in_all_jobs_is_nobodys():
    budget = budget_of(_evaluation([BUSY] * 10, [0.1, -0.1] * 5), "mps")
    assert budget.rmse == pytest.approx(0.1)
    assert budget.parts[COMMON][0] == pytest.approx(1)
    assert budget.parts[NOISE] == (0, 0, 0)
    assert budget.replay_rmse is None
    assert budget.host_checked is None


def test_what_jobs_paced_by_the_host_are_further_off_is_the_hosts():
    budget = budget_of(_mixed({"host": True}, 0.2), "mps")
    assert budget.parts[HOST][0] == pytest.approx((0.2**2 - 0.02**2) / (0.2**2 + 2 * 0.02**2))
    assert budget.parts[COMMON][0] == pytest.approx(1 - budget.parts[HOST][0])
    assert budget.hardest == FAMILIES[0]


@pytest.mark.parametrize(("kind", "part"), [("dram_active", MEMORY), ("sm_active", SMS)])
def test_errors_that_grow_with_what_is_crowded_are_its_part(kind, part):
    calm, crowded = (
        {
            name: replace(p, counters=replace(p.counters, **{kind: share}))
            for name, p in BUSY.items()
        }
        for share in (0.1, 0.9)
    )
    runs = _evaluation([calm] * 8, [0.02] * 8).runs
    # The crowd must show in profiles, which are by name: other workloads stand for it.
    others = dict(zip(FAMILIES, ("mlp-toy-bs128", "resnet26-cifar10-bs128",
                                 "cait_xxs24_224-cifar10-bs128"), strict=True))  # fmt: skip
    renamed = {
        other: replace(crowded[name], workload=synthetic.profile(other).workload)
        for name, other in others.items()
    }
    loud = [
        RunComparison(
            synthetic.run(list(renamed.values()), "mps", 2.0, f"loud{number}"),
            tuple(_job(each, 0.2) for each in renamed.values()),
        )
        for number in range(4)
    ]
    found = Evaluation(
        gpu="h200-141gb", families=("all",), runs=(*runs, *loud), repeats=(), unusable=(),
        drift=None, profiles=calm | renamed,
    )  # fmt: skip
    budget = budget_of(found, "mps")
    expected = 4 * (0.2**2 - 0.02**2) / (4 * 0.2**2 + 8 * 0.02**2)
    assert budget.parts[part][0] == pytest.approx(expected)


def test_noise_is_half_the_squared_difference_of_two_runs():
    found = _evaluation([BUSY] * 4, [0.1] * 4)
    once = found.runs[0].run
    again = replace(once, tenants=tuple(
        replace(t, windows=tuple(replace(w, seconds=1.1 * w.seconds) for w in t.windows))
        for t in once.tenants
    ))  # fmt: skip
    budget = budget_of(replace(found, repeats=((once, again),)), "mps")
    assert budget.parts[NOISE][0] == pytest.approx(0.5)


def test_where_the_cores_were_slow_the_host_check_tells():
    profiles = {name: _profile(name, host=True) for name in FAMILIES}
    errors = [-0.2, -0.1, 0.0, 0.1]
    found = _evaluation([profiles] * 4, errors)
    slower = [
        replace(each, run=replace(each.run, tenants=tuple(
            replace(t, host_check_s=0.001 / (1 + error)) for t in each.run.tenants
        )))
        for each, error in zip(found.runs, errors, strict=True)
    ]  # fmt: skip
    budget = budget_of(replace(found, runs=tuple(slower)), "mps")
    assert budget.host_checked == pytest.approx(1)


def test_nothing_is_said_of_a_mode_without_runs_or_without_error():
    found = _evaluation([BUSY] * 2, [0.0, 0.0])
    assert budget_of(found, "mps") is None
    assert budget_of(found, "naive") is None
    assert section(budgets_of(found), ()) == ""


def test_the_report_names_what_was_missed_and_what_would_be_needed():
    found = SimpleNamespace(
        evaluation=_mixed({"host": True}, 0.4),
        memory=SimpleNamespace(rows=()),
        power=(),
        completions=(),
        profiles={},
    )
    text = section(budgets_of(found.evaluation), targets(found))
    assert "| host sets the pace | 9" in text
    assert "**MPS**: missed: all jobs, MAPE" in text
    assert "The largest part: host sets the pace. Needed would be the pace of each core" in text
    assert "resnet50-imagenet64-bs128 alone 9" in text
