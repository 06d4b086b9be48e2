"""A profile on a GPU that nobody has: laws, and what others measured there."""

from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.files.reading import profile_files
from advisor.hardware.gpus import catalogue, gpu
from advisor.prediction.other_gpu import on_gpu
from advisor.prediction.prediction import interval_around
from advisor.prediction.predictor import estimate_spread
from advisor.workload.profile import Window
from advisor.workload.store import read_profile
from tests import synthetic

ROOT = Path(__file__).parents[2]
H100, H200, A100 = gpu("h100-sxm-80gb"), gpu("h200-141gb"), gpu("a100-40gb")
GPUS = st.sampled_from(sorted(catalogue()))
SECONDS = st.floats(1e-4, 0.5)
BLOCKS = st.integers(1, 5000)
NAMES = st.sampled_from(
    [
        "resnet50-imagenet64-bs128",
        "resnet50-imagenet64-bs128-amp",
        "bert-base-finetune-bs16",
        "bert-base-finetune-bs16-tf32",
        "bert-base-finetune-bs16-fp16",
    ]
)


@cache
def measured(key):
    return {path.stem: read_profile(path) for path in profile_files(ROOT / "profiles" / key)}


@given(NAMES, SECONDS, SECONDS, BLOCKS, GPUS)
def test_the_host_stays_and_a_step_is_never_shorter_than_either_side(
    name, host_s, gpu_s, blocks, there
):
    job = synthetic.profile(name, host_s=host_s, gpu_s=gpu_s, blocks=blocks)
    found = on_gpu(job, gpu(there))
    assert (found.host_s, found.trace.launch_us) == (job.host_s, job.trace.launch_us)
    assert found.step_s >= max(found.host_s, found.gpu_s) * (1 - 1e-9)
    shares = found.counters
    assert all(
        0 <= getattr(shares, each.name) <= 1
        for each in fields(shares)
        if each.name.endswith(("active", "gract", "occupancy"))
    )


@given(SECONDS, st.floats(1.0, 2.0), GPUS)
def test_kernels_fit_into_a_step_where_the_host_path_alone_was_longer_than_a_step(
    gpu_s, more, there
):
    job = synthetic.profile(host_s=gpu_s * more, gpu_s=gpu_s)
    job = replace(job, windows=(Window(gpu_s, 1.0),))
    assert (estimate := on_gpu(job, gpu(there))).step_s >= estimate.gpu_s * (1 - 1e-9)


@pytest.mark.parametrize("there", ["a100-80gb", "b200-180gb"])
def test_there_and_back_a_job_takes_about_what_it_took(there):
    jobs = list(measured("h200-141gb").values())[::12]
    for job in jobs:
        back = on_gpu(replace(on_gpu(job, gpu(there)), estimated_from=None), H200)
        assert back.gpu_s == pytest.approx(job.gpu_s, rel=0.3)
        assert back.step_s >= job.host_s * (1 - 1e-9) or back.step_s == pytest.approx(
            job.step_s, rel=0.3
        )


def test_an_estimate_says_that_it_is_one_and_its_memory_holds_the_context_of_the_other_gpu():
    found = on_gpu(synthetic.profile(), A100)
    assert (found.gpu, found.estimated_from) == ("a100-40gb", "h200-141gb")
    assert found.memory.reserved_mib == synthetic.profile().memory.reserved_mib
    assert found.memory.context_mib < synthetic.profile().memory.context_mib
    assert found.mps.limited[0].sms == 14
    assert found.power_w <= A100.power_limit_w


@pytest.mark.parametrize(("here", "there"), [(H200, H100), (H100, H200)])
def test_what_an_h100_takes_follows_from_an_h200_and_back(here, there):
    known, true = measured(here.key), measured(there.key)
    errors = [
        abs(on_gpu(known[name], there).gpu_s / true[name].gpu_s - 1) for name in known.keys() & true
    ]
    assert len(errors) >= 71
    assert sum(errors) / len(errors) < 0.04
    end = 1.645 * estimate_spread(on_gpu(next(iter(known.values())), there))
    inside = [interval_around(1, -end, end).contains(1 + error) for error in errors]
    assert sum(inside) / len(inside) > 0.85


@pytest.mark.parametrize(
    ("job", "there"),
    [
        (on_gpu(synthetic.profile(), A100), H100),  # an estimate
        (replace(synthetic.profile(), gpu="voodoo-2"), A100),
        (synthetic.profile(), replace(A100, rates=None, compute_capability="8.7")),
    ],
)
def test_an_estimate_or_a_gpu_of_unknown_rates_is_refused(job, there):
    with pytest.raises(InvalidInput, match=r"[Mm]easure"):
        on_gpu(job, there)


@given(NAMES, SECONDS, BLOCKS, GPUS, st.floats(1.0, 3.0))
def test_a_gpu_that_is_faster_in_all_is_never_slower(name, gpu_s, blocks, there, faster):
    job, there = synthetic.profile(name, host_s=1e-4, gpu_s=gpu_s, blocks=blocks), gpu(there)
    numbers = {
        each.name: None if (rate := getattr(there.rates, each.name)) is None else rate * faster
        for each in fields(there.rates)
    }
    watts = there.power_limit_w and there.power_limit_w * faster
    quick = replace(
        there, key="made-up", rates=replace(there.rates, **numbers), power_limit_w=watts
    )
    assert on_gpu(job, quick).gpu_s <= on_gpu(job, there).gpu_s * (1 + 1e-9) or there == H200
