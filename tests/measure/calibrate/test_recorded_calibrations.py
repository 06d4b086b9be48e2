"""What `advisor calibrate` measured on an H200, beside what fitting learnt from runs there."""

from pathlib import Path

import pytest

from advisor.hardware.catalogue import gpu
from advisor.prediction.model_file import load_model
from advisor.workload.store import load_calibration, model_path

RECORDED = Path(__file__).parent / "h200.json"
H200 = gpu("h200-141gb")


@pytest.fixture(scope="module")
def calibration():
    return load_calibration(H200.key, RECORDED)[1]


@pytest.fixture(scope="module")
def model():
    return load_model(model_path())


def test_contexts_are_those_that_runs_showed(calibration, model):
    contexts = calibration.contexts
    assert contexts.driver_mib == pytest.approx(H200.reserved_mib, abs=1)
    assert contexts.plain_mib == pytest.approx(model.of(H200).context.usual_mib, rel=0.05)
    for limited in contexts.limited:
        per_sm_mib = (contexts.mps_mib - limited.context_mib) / (contexts.sms - limited.sms)
        assert per_sm_mib == pytest.approx(model.of(H200).context.per_sm_mib, rel=0.02)


def test_limits_give_the_even_number_of_sms_below_the_share_asked_for(calibration):
    for limited in calibration.contexts.limited:
        assert limited.sms == 2 * int(limited.limit_pct * H200.sms / 200)


def test_slices_and_switches_are_of_the_size_that_replay_was_fitted_to(calibration, model):
    slicing, seen = model.of(H200).physics.slicing, calibration.switching[0]
    # Replay's are fitted to whole steps and stand for more than slices: they need not be closer.
    assert 1 / 3 < seen.slice_s / slicing.slice_s < 3
    assert 1 / 3 < seen.switch_s / slicing.switch_s < 3
