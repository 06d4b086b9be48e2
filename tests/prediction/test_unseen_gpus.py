"""One model answers for all GPUs, and says which of them it has seen share."""

from dataclasses import replace
from itertools import combinations
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import gpu
from advisor.prediction.calibrated_predictor import calibrated_predictor
from advisor.prediction.fit.fit_model import FROM_ANOTHER_GPU, fit, widening
from advisor.prediction.fit.observation import MeasuredGpu
from advisor.prediction.gpu_constants import nearest_constants
from advisor.prediction.interval import LEVELS, Interval
from advisor.prediction.model_file import UnseenGpu, load_model, model_text
from advisor.prediction.predictor import Predictor
from advisor.sharing import Mps, Naive, Serial, parse_sharing
from advisor.workload.machine_calibration import Switching
from tests import synthetic
from tests.measure.calibrate.recorded import calibration

H200, H100, A100 = gpu("h200-141gb"), gpu("h100-sxm-80gb"), gpu("a100-40gb")
NAMES = ("resnet50-imagenet64-bs128", "bert-base-finetune-bs16", "gpt2-small-pretrain-bs8")


def _profiles(on):
    made = [synthetic.profile(n, gpu_s=0.01 * k, blocks=100 * k) for k, n in enumerate(NAMES, 1)]
    return {each.name: replace(each, gpu=on.key) for each in made}


def _measured(on, modes=("naive", "mps"), slowdown=1.4, times=2):
    profiles = _profiles(on)
    pairs = list(combinations(profiles.values(), 2)) * times
    runs = [
        replace(synthetic.run(list(pair), mode, slowdown, f"{mode}-{number}"), gpu=on.key)
        for mode in modes
        for number, pair in enumerate(pairs)
    ]
    return MeasuredGpu(on, profiles, runs)


@pytest.fixture(scope="module")
def model():
    return fit([_measured(H200)])


def _pair(on):
    return list(_profiles(on).values())[:2]


def test_an_answer_for_a_gpu_without_runs_is_never_called_confirmed(model):
    for sharing in (Naive(), Mps(), parse_sharing("mps=50,50"), parse_sharing("mig=3g.20gb")):
        jobs = _pair(A100)[: 1 if sharing.mode == "mig" else 2]
        mix = Predictor(A100, model).predict(jobs, sharing)
        assert not mix.confirmed_on_hardware
    seen = Predictor(H200, model).predict(_pair(H200), Mps())
    assert seen.confirmed_on_hardware
    assert seen.estimated_from is None


def test_an_answer_names_the_gpus_whose_runs_stand_behind_it(model):
    assert Predictor(A100, model).predict(_pair(A100), Mps()).estimated_from == "h200-141gb"
    both = fit([_measured(H200), _measured(H100, times=3)])
    said = Predictor(A100, both).predict(_pair(A100), Mps()).estimated_from
    assert said == "h100-sxm-80gb, h200-141gb"


def test_a_job_alone_needs_no_runs_of_its_gpu(model):
    mix = Predictor(A100, model).predict(_pair(A100), Serial())
    assert mix.confirmed_on_hardware
    assert mix.estimated_from is None


def test_a_mode_that_only_another_gpu_ran_is_estimated_from_it():
    both = fit([_measured(H200), _measured(H100, ("naive",))])
    predictor = Predictor(H100, both)
    assert predictor.predict(_pair(H100), Naive()).confirmed_on_hardware
    mps = predictor.predict(_pair(H100), Mps())
    assert (mps.confirmed_on_hardware, mps.estimated_from) == (False, "h200-141gb")


def test_intervals_of_a_gpu_never_seen_are_as_much_wider_as_the_model_says(model):
    learnt = replace(model, data={A100.key: model.data[H200.key]})
    near, far = (Predictor(A100, m).predict(_pair(A100), Mps()) for m in (learnt, model))
    for sure, unsure in zip(near.jobs, far.jobs, strict=True):
        assert unsure.step_s.p50 == sure.step_s.p50
        for end in ("p05", "p95"):
            widths = [log(each.at(end) / each.p50) for each in (sure.step_s, unsure.step_s)]
            assert widths[1] == pytest.approx(model.unseen.widening * widths[0])
    assert far.power_w.p05 < near.power_w.p05
    assert far.power_w.p95 == near.power_w.p95 == A100.power_limit_w


def test_a_share_held_says_how_much_wider_normal_errors_need_it():
    assert widening(0.9) == pytest.approx(1.0)
    assert widening(0.83) == pytest.approx(1.20, abs=0.01)
    assert widening(0.99) == 1.0, "never narrower"
    assert FROM_ANOTHER_GPU.widening == widening(0.82)


@given(st.floats(0.1, 1.0), st.floats(1.0, 3.0), st.floats(1.0, 5.0))
def test_a_wider_interval_holds_the_narrower(low, high, factor):
    narrow = Interval(low, 1.0, high)
    wide = narrow.widened(factor)
    assert wide.p05 <= narrow.p05 * (1 + 1e-12)
    assert wide.p95 >= narrow.p95 * (1 - 1e-12)


def test_a_factor_that_would_narrow_intervals_is_refused():
    with pytest.raises(InvalidInput, match="1 to"):
        UnseenGpu(widening=0.9, alike=0.9, source="a guess")


def test_a_gpu_of_an_architecture_that_was_seen_is_answered_as_surely(model):
    assert model.widening(H100) == model.unseen.alike == 1.0
    assert model.widening(A100) == model.unseen.widening > 1.1


def test_runs_of_several_gpus_each_go_with_the_profiles_of_their_own():
    both = fit([_measured(H200), _measured(H100, slowdown=1.8)])
    assert set(both.data) == set(both.constants) == {H200.key, H100.key}
    assert both.data[H100.key].runs == {"naive": 6, "mps": 6}
    with pytest.raises(InvalidInput, match="h100-sxm-80gb cannot be used"):
        MeasuredGpu(H200, _profiles(H200), _measured(H100).runs)


def test_the_first_run_on_a_gpu_teaches_together_with_those_of_another(model):
    one = replace(_measured(A100), runs=_measured(A100).runs[:1])
    taught = fit([_measured(H200), one])
    assert taught.data[A100.key].runs == {"naive": 1}
    assert A100.key not in taught.constants, "one run says too little of a GPU's own constants"
    assert len(taught.corrections["naive"].points) > len(model.corrections["naive"].points)
    assert Predictor(A100, taught).predict(_pair(A100), Naive()).estimated_from == H200.key


def test_a_gpu_of_which_nothing_was_measured_takes_its_constants_from_the_most_alike(model):
    known = {"h200-141gb": model.of(H200), "a100-80gb": replace(model.of(H200), mps_server_mib=7.0)}
    assert nearest_constants(A100, known).mps_server_mib == 7.0
    assert nearest_constants(H100, known).mps_server_mib == model.of(H200).mps_server_mib
    assert model.of(A100).physics == model.of(H200).physics


def test_slices_of_another_size_that_a_calibration_saw_stand_in_for_runs(model):
    plain = Predictor(A100, model)
    slicing = model.of(A100).physics.slicing

    def calibrated(slice_s, predictor=plain):
        seen = Switching(kernel_s=1e-4, overhead=0.1, slice_s=slice_s, switch_s=None)
        said = replace(calibration(), gpu=predictor.gpu.key, switching=(seen,))
        known = calibrated_predictor(predictor, said).predictor
        return known.model.of(predictor.gpu).physics.slicing

    assert calibrated(10 * slicing.slice_s).slice_s == 10 * slicing.slice_s
    assert calibrated(1.1 * slicing.slice_s) == slicing, "of the size that was fitted"
    assert calibrated(None) == slicing
    fitted = Predictor(H200, model)
    assert calibrated(10 * slicing.slice_s, fitted) == model.of(H200).physics.slicing


def test_the_awake_gpu_draws_its_share_of_its_own_limit(model):
    awake_w = model.of(H200).power.awake_w
    assert model.of(A100).power.awake_w == pytest.approx(
        awake_w * A100.power_limit_w / H200.power_limit_w
    )


def test_a_context_shrinks_with_the_sms_that_it_keeps_memory_for(model):
    own = replace(model.of(H200), context=replace(model.of(H200).context, per_sm_mib=4.0))
    usual_mib = own.context.usual_mib
    there = nearest_constants(A100, {H200.key: own}).context
    assert there.usual_mib == pytest.approx(usual_mib - 4.0 * (H200.sms - A100.sms))


def test_a_model_of_several_gpus_reads_back_equal(tmp_path):
    both = fit([_measured(H200), _measured(H100)])
    (tmp_path / "sharing.json").write_text(model_text(both))
    assert load_model(tmp_path / "sharing.json") == both


@pytest.mark.parametrize("sharing", ["serial", "naive", "mps", "mps=100"])
def test_a_job_alone_is_exactly_as_fast_as_alone_however_sharing_is_set_up(model, sharing):
    found = Predictor(A100, model).predict(_pair(A100)[:1], parse_sharing(sharing))
    alone = Predictor(A100, model).predict(_pair(A100)[:1], Serial())
    assert [found.jobs[0].slowdown_at(level) for level in LEVELS] == [1, 1, 1]
    assert found.jobs[0].step_s == alone.jobs[0].step_s
    assert found.power_w == alone.power_w


def test_a_job_alone_under_a_limit_is_not_called_as_fast_as_alone(model):
    job = Predictor(A100, model).predict(_pair(A100)[:1], Mps((30.0,))).jobs[0]
    assert job.slowdown_at("p95") > job.slowdown_at("p50")
