"""`advisor profile` of the same workload again: its moments, their mean, and what ends them."""

from dataclasses import replace
from math import log
from statistics import geometric_mean
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor import Advisor
from advisor.files.writing import record_line
from advisor.hardware.gpus import gpu
from advisor.measure import profile as profile_command
from advisor.prediction.model import load_model
from advisor.prediction.predictor import Predictor
from advisor.sharing import Serial
from advisor.workload.profile import Moment, Profile
from advisor.workload.profile_checks import add_moment, averaged, unsteady_profiles
from advisor.workload.store import load_profile, model_path, read_profile
from tests import synthetic
from tests.refusals import refused

DATE = "2026-11-21T10:{:02}:00+00:00"
JOB = replace(synthetic.profile(host_s=0.01, gpu_s=0.008), gpu="cpu")
paces = st.lists(st.floats(0.5, 2.0), min_size=2, max_size=3)


def measured(pace=1.0, minute=0, profile=JOB, **other):
    """`profile`, measured in some minute in which its host took `pace` times as long."""
    slower = tuple(replace(each, seconds=each.seconds * pace) for each in profile.windows)
    return replace(
        profile,
        windows=slower,
        host_s=profile.host_s * pace,
        host_check_s=profile.host_check_s * pace,
        trace=profile.trace.launched(pace),
        provenance=replace(
            synthetic.PROVENANCE, date=DATE.format(minute), **{"host": "node"} | other
        ),
    )


def moments(*paces):
    return [
        Moment(
            date=DATE.format(at), step_s=0.01 * pace, host_s=0.01 * pace, host_check_s=0.001 * pace
        )
        for at, pace in enumerate(paces)
    ]


@pytest.fixture
def profile_train(tmp_path, monkeypatch, capsys):
    """``advisor profile -- python train.py`` on a machine where it is as it is next."""

    def profile_train(result, *words):
        def alone(job, *_, **__):
            if isinstance(result, BaseException):
                raise result
            return replace(
                result,
                workload=replace(
                    result.workload, name=job.name, source="script", script=job.script
                ),
            )

        monkeypatch.setattr(profile_command, "profile_alone", alone)
        options = ("--device", "cpu", "--out", tmp_path, "--folder", "/a", *words)
        code, text = refused("profile", (*options, "--", "python", "train.py"), capsys)
        assert code == (130 if isinstance(result, KeyboardInterrupt) else 0)
        return SimpleNamespace(text=text, profile=read_profile(tmp_path / "train.json"))

    return profile_train


def test_the_same_script_again_is_a_second_moment_and_the_mean_counts(profile_train):
    assert profile_train(measured(2.13)).profile.moments == ()
    second = profile_train(measured(1.98, minute=4))
    assert "second moment: 21.30 and 19.80 ms" in second.text
    kept = second.profile
    assert kept.step_s == pytest.approx(geometric_mean([0.0213, 0.0198]))
    assert kept.host_s == pytest.approx(kept.step_s)
    assert kept.host_check_s == pytest.approx(geometric_mean([0.00213, 0.00198]))
    assert kept.trace.launch_us[-1] == pytest.approx(0.99e6 * kept.host_s)
    assert [each.step_s for each in kept.moments] == pytest.approx([0.0213, 0.0198])
    assert kept.provenance.date == DATE.format(4)


def test_a_fourth_moment_drops_the_oldest_and_the_epoch_may_become_known(profile_train):
    for minute, pace in enumerate((1.0, 1.1, 1.2)):
        profile_train(measured(pace, minute))
    kept = profile_train(measured(1.3, 3), "--steps-per-epoch", "10").profile
    assert [each.date for each in kept.moments] == [DATE.format(at) for at in (1, 2, 3)]
    assert kept.step_s == pytest.approx(0.01 * geometric_mean([1.1, 1.2, 1.3]))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"recipes": "0123456789ab"}, "code"),
        ({"torch": "2.12.0"}, "torch"),
        ({"device": "NVIDIA H100"}, "GPU"),
        ({"host": "other"}, "machine"),
        ({"host_cores": 4}, "cores"),
        ({"profile": replace(JOB, workload=replace(JOB.workload, batch=7))}, "batch"),
        ({"profile": replace(JOB, gpu_s=0.0095)}, "kernels"),
        ({"profile": replace(JOB, trace=replace(JOB.trace, classes=("conv",)))}, "kernels"),
    ],
)
def test_what_changed_is_named_and_the_moments_start_again(change, named):
    twice, _ = add_moment(measured(1.0), measured(1.2, minute=1))
    again, (line,) = add_moment(twice, measured(1.5, minute=2, **change))
    assert "replaced" in line
    assert named in line
    assert again.moments == ()
    assert again.step_s == pytest.approx(0.015)


def test_a_profile_of_another_kind_or_a_damaged_one_is_replaced(profile_train, tmp_path):
    estimate = replace(measured(), estimated_from="a100-40gb")
    assert add_moment(estimate, measured(1.1))[0].moments == ()
    profile_train(measured(1.0))
    (tmp_path / "train.json").write_text("{")
    assert profile_train(measured(1.2, minute=1)).profile.moments == ()


def test_ctrl_c_in_the_second_moment_leaves_the_first_file_whole(profile_train, tmp_path):
    profile_train(measured(1.0))
    before = (tmp_path / "train.json").read_bytes()
    profile_train(KeyboardInterrupt())
    assert (tmp_path / "train.json").read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["train.json"]


def test_a_probe_of_an_earlier_moment_stays_and_a_limit_costs_as_much_as_before():
    probed, again = measured(1.0), replace(measured(1.44, minute=1), mps=None)
    kept, _ = add_moment(probed, again)
    for before, now in zip(probed.mps.limited, kept.mps.limited, strict=True):
        assert now.step_s / kept.step_s == pytest.approx(before.step_s / probed.step_s)


@pytest.mark.parametrize(("paces", "named"), [((1, 1.6), 1), ((1, 1.6, 1.05), 1), ((1, 1.4), 0)])
def test_a_moment_that_differs_by_half_is_named(paces, named):
    profile = averaged(measured(paces[-1]), moments(*paces))
    (*_, line) = unsteady_profiles([profile, profile]) or ("",)
    assert len(unsteady_profiles([profile, profile])) == named
    assert ("16.00 ms" in line or "10.00 ms" in line) == bool(named)


def test_profiles_of_before_have_no_moments_and_read_as_they_were(tmp_path):
    (tmp_path / "old.json").write_text(record_line(measured()).replace('"moments":[],', ""))
    assert read_profile(tmp_path / "old.json") == measured()
    again, _ = add_moment(read_profile(tmp_path / "old.json"), measured(1.1, minute=9))
    (tmp_path / "new.json").write_text(record_line(again))
    assert read_profile(tmp_path / "new.json") == again


@given(paces, st.randoms())
def test_the_order_of_moments_does_not_matter_for_the_mean(values, random):
    shuffled = random.sample(values, len(values))
    one, other = (averaged(measured(), moments(*order)) for order in (values, shuffled))
    for number in ("step_s", "host_s", "host_check_s", "log_spread", "power_w"):
        assert getattr(one, number) == pytest.approx(getattr(other, number))


def solo(profile: Profile):
    predictor = Predictor(gpu("h200-141gb"), load_model(model_path()))
    return predictor.predict([profile], Serial()).jobs[0].step_s


@given(st.sampled_from(("resnet50-imagenet64-bs128", "mlp-toy-bs128")), paces)
def test_the_range_covers_all_moments_and_is_never_narrower_for_them(name, values):
    once = load_profile(name, "h200-141gb")
    job = averaged(
        once, [Moment(date=DATE.format(0), step_s=once.step_s * pace) for pace in values]
    )
    without, ranged = solo(replace(job, moments=())), solo(job)
    assert ranged.p50 == pytest.approx(without.p50)
    assert ranged.p05 <= without.p05 * (1 + 1e-9)
    assert ranged.p95 >= without.p95 * (1 - 1e-9)
    for pace in values:
        assert ranged.p05 <= once.step_s * pace * (1 + 1e-9)
        assert ranged.p95 >= once.step_s * pace * (1 - 1e-9)


@pytest.mark.parametrize("name", ["mlp-toy-bs128", "resnet50-imagenet64-bs128"])
def test_an_estimate_for_another_gpu_keeps_the_spread_of_what_follows_the_host(name, tmp_path):
    once, widths = load_profile(name, "h200-141gb"), {}
    for paces in ((1.0,), (1.0, 1.0), (0.7, 1.0, 1.3)):
        job = averaged(once, [Moment(date="", step_s=once.step_s * pace) for pace in paces])
        (tmp_path / f"{name}.json").write_text(record_line(job))
        (there,) = (
            Advisor("a100-40gb").predict([str(tmp_path / f"{name}.json")], "serial").prediction.jobs
        )
        widths[paces] = log(there.step_s.p95 / there.step_s.p05)
    one, same, apart = widths.values()
    assert same == pytest.approx(one)
    assert apart > one if name.startswith("mlp") else apart >= one - 1e-9
