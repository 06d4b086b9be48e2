"""What a fit learns from runs with client priorities, and from which it learns nothing."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.prediction.fit.fit_model import fit
from advisor.prediction.fit.observation import MeasuredGpu
from advisor.prediction.predictor import Predictor
from advisor.sharing import parse_sharing
from advisor.workload.measured import Window
from tests.prediction.made_up_runs import H200, NAMES, PROFILES, made_up_runs

RUNS = made_up_runs()


@pytest.fixture(scope="module")
def model():
    return fit([MeasuredGpu(H200, PROFILES, RUNS)])


def _as_with_priorities(runs, count):
    """So many of the runs under MPS once more, in which the first job came before the others."""
    served = [run for run in runs if run.sharing == "mps"]
    for number in range(count):
        run = served[number % len(served)]
        order = ",".join(["0", *["1"] * (len(run.tenants) - 1)])
        yield replace(run, id=f"p{number}", sharing=f"mps/priority={order}")


def test_runs_with_priorities_change_nothing_that_is_learnt_of_other_modes(model):
    few = fit([MeasuredGpu(H200, PROFILES, [*RUNS, *_as_with_priorities(RUNS, 6)])])
    joined = model.corrections | {"mps-priority": few.corrections["mps-priority"]}
    assert replace(few, data=model.data) == replace(model, corrections=joined)
    assert few.data["h200-141gb"].runs["mps-priority"] == 6


def test_priorities_have_the_correction_of_mps_and_count_as_confirmed_once_they_ran(model):
    pair, order = [PROFILES[name] for name in NAMES[:2]], parse_sharing("mps/priority=0,1")
    borrowed = Predictor(H200, model).predict(pair, order)
    assert not borrowed.confirmed_on_hardware
    assert model.corrections["mps-priority"] == model.corrections["mps"]
    ran = fit([MeasuredGpu(H200, PROFILES, [*RUNS, *_as_with_priorities(RUNS, 6)])])
    assert Predictor(H200, ran).predict(pair, order).confirmed_on_hardware


def _off_by(predictor, runs):
    """Median of log of measured over predicted steps."""
    logs = []
    for run in runs:
        chosen = [PROFILES[tenant.workload.name] for tenant in run.tenants]
        mix = predictor.predict(chosen, parse_sharing(run.sharing))
        pairs = zip(mix.jobs, run.tenants, strict=True)
        logs += [np.log(tenant.step_s / job.step_s.p50) for job, tenant in pairs]
    return np.median(logs)


def test_what_runs_with_priorities_took_is_learnt_for_these_and_not_for_others(model):
    slower = [
        replace(run, tenants=tuple(
            replace(each, windows=(Window(1.4 * each.step_s, 1.0),) * 3) for each in run.tenants
        ))
        for run in _as_with_priorities(RUNS, 12)
    ]  # fmt: skip
    taught = fit([MeasuredGpu(H200, PROFILES, [*RUNS, *slower])])
    before, after = Predictor(H200, model), Predictor(H200, taught)
    assert abs(_off_by(after, slower)) < 0.5 * abs(_off_by(before, slower))
    plain = [run for run in RUNS if run.sharing == "mps"]
    assert abs(_off_by(after, plain)) < abs(_off_by(before, plain)) + 0.02


def test_runs_with_priorities_alone_make_no_mode():
    naive = [run for run in RUNS if run.sharing != "mps"]
    model = fit([MeasuredGpu(H200, PROFILES, [*naive, *_as_with_priorities(RUNS, 12)])])
    assert not model.corrections.keys() & {"mps", "mps-priority"}


def test_equal_priorities_are_predicted_as_none_are(model):
    pair, predictor = [PROFILES[name] for name in NAMES[:2]], Predictor(H200, model)
    plain, alike = (predictor.predict(pair, parse_sharing(s)) for s in ("mps", "mps/priority=1,1"))
    assert replace(alike, sharing=plain.sharing) == plain
