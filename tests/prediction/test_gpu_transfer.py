"""A profile on a GPU that nobody has: laws, and what others measured there."""

from dataclasses import fields, replace
from pathlib import Path
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import catalogue, gpu
from advisor.hardware.gpu_partition import partition_of
from advisor.prediction.estimate_doubt import estimate_spread
from advisor.prediction.estimated_profile import found_profile
from advisor.prediction.gpu_transfer import on_gpu
from advisor.prediction.interval import interval_around
from advisor.prediction.kernel_pace import measured_exponent
from advisor.prediction.partition_transfer import step_on
from advisor.workload.files import profile_files
from advisor.workload.minimal_profile import MinimalProfile
from advisor.workload.store import read_profile
from tests import synthetic
from tests.prediction.test_transfer import PHYSICS

ROOT = Path(__file__).parents[2]
H100, H200, A100 = gpu("h100-sxm-80gb"), gpu("h200-141gb"), gpu("a100-40gb")
GPUS = st.sampled_from(sorted(catalogue()))
SECONDS = st.floats(1e-4, 0.5)
BLOCKS = st.integers(1, 5000)
NAMES = st.sampled_from([
    "resnet50-imagenet64-bs128", "resnet50-imagenet64-bs128-amp", "bert-base-finetune-bs16",
    "bert-base-finetune-bs16-tf32", "bert-base-finetune-bs16-fp16",
])  # fmt: skip


def measured(key):
    return {path.stem: read_profile(path) for path in profile_files(ROOT / "profiles" / key)}


@given(NAMES, SECONDS, SECONDS, BLOCKS)
def test_on_its_own_gpu_nothing_changes(name, host_s, gpu_s, blocks):
    job = synthetic.profile(name, host_s=host_s, gpu_s=gpu_s, blocks=blocks)
    assert on_gpu(job, H200) is job


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


@pytest.mark.parametrize("there", ["h100-sxm-80gb", "gh200-96gb", "a100-80gb", "b200-180gb"])
def test_there_and_back_a_job_takes_about_what_it_took(there):
    jobs = list(measured("h200-141gb").values())[::6]
    for job in jobs:
        back = on_gpu(replace(on_gpu(job, gpu(there)), estimated_from=None), H200)
        assert back.gpu_s == pytest.approx(job.gpu_s, rel=0.3)
        assert back.step_s >= job.host_s * (1 - 1e-9) or back.step_s == pytest.approx(
            job.step_s, rel=0.3
        )


def test_a_grid_of_few_blocks_follows_the_clock_and_not_the_number_of_sms():
    few, many = (synthetic.profile(host_s=1e-4, gpu_s=0.05, blocks=n) for n in (8, 20_000))
    there = gpu("a30-24gb")
    assert on_gpu(few, there).gpu_s < 0.7 * on_gpu(many, there).gpu_s


def test_an_estimate_says_that_it_is_one_and_its_memory_holds_the_context_of_the_other_gpu():
    found = on_gpu(synthetic.profile(), A100)
    assert (found.gpu, found.estimated_from) == ("a100-40gb", "h200-141gb")
    assert found.memory.reserved_mib == synthetic.profile().memory.reserved_mib
    assert found.memory.context_mib < synthetic.profile().memory.context_mib
    assert found.mps.limited[0].sms == 14
    assert found.power_w <= A100.power_limit_w


def test_an_estimate_is_not_translated_again():
    found = on_gpu(synthetic.profile(), A100)
    with pytest.raises(InvalidInput, match="measured on an h200-141gb"):
        on_gpu(found, H100)


@pytest.mark.parametrize("key", ["cpu", "voodoo-2"])
def test_what_was_measured_on_no_gpu_known_is_not_translated(key):
    with pytest.raises(InvalidInput, match="no rates are known"):
        on_gpu(replace(synthetic.profile(), gpu=key), A100)


def test_nothing_is_estimated_for_a_gpu_of_unknown_rates():
    with pytest.raises(InvalidInput, match="Measure there"):
        on_gpu(synthetic.profile(), replace(A100, rates=None, compute_capability="7.5"))


def test_bare_numbers_are_translated_too_and_what_they_lack_stays_unknown():
    bare = MinimalProfile(
        schema=1, workload="mine", gpu="h200-141gb", batch_size=8, step_s=0.1, memory_mib=9000,
        power_w=None, gpu_utilization=0.5, memory_utilization=None,
    ).whole()  # fmt: skip
    found = on_gpu(bare, A100)
    assert found.step_s > bare.step_s
    assert found.trace is None
    assert found.power_w is None


@pytest.mark.parametrize(("here", "there"), [(H200, H100), (H100, H200)])
def test_what_an_h100_takes_follows_from_an_h200_and_back(here, there):
    known, true = measured(here.key), measured(there.key)
    errors = [
        abs(on_gpu(known[name], there).gpu_s / true[name].gpu_s - 1) for name in known.keys() & true
    ]
    assert len(errors) >= 71
    assert sum(errors) / len(errors) < 0.04
    inside = [
        interval_around(1, -end, end).contains(1 + error)
        for error in errors
        for end in [1.645 * estimate_spread(on_gpu(next(iter(known.values())), there))]
    ]
    assert sum(inside) / len(inside) > 0.85


@pytest.mark.parametrize("name", ["resnet26-cifar10-bs128", "t5-small-pretrain-bs8-amp"])
def test_what_fewer_sms_cost_kernels_is_told_by_the_probe_where_it_ran(name):
    job = measured(H200.key)[name]
    there = on_gpu(job, A100)
    # An A100 has about as much bandwidth for its arithmetic.
    assert measured_exponent(there, A100) == pytest.approx(measured_exponent(job, H200), abs=0.01)
    assert measured_exponent(job, H200) != 0.8
    before, after = (
        each.mps.limited[0].step_s / each.mps.unlimited.step_s for each in (job, there)
    )
    assert after > before  # an A100's kernels take longer, and its host as long


def test_kernels_slow_less_with_fewer_sms_where_bandwidth_binds_them_more():
    known, true = measured(H200.key), measured(H100.key)
    names = [
        name for name, job in known.items()
        if name in true and job.mps and job.busy_share > 0.9 and true[name].busy_share > 0.9
    ]  # fmt: skip
    off = {
        plain: [
            (measured_exponent(known[name], H200) if plain
             else measured_exponent(on_gpu(known[name], H100), H100))
            - measured_exponent(true[name], H100) for name in names
        ] for plain in (True, False)
    }  # fmt: skip
    assert len(names) > 20
    assert abs(mean(off[True])) > 0.05, "an H100 has the same SMs, and 0.7 times the bandwidth"
    assert abs(mean(off[False])) < 0.02


def test_a_larger_batch_never_takes_longer_for_an_example_on_the_same_slice():
    for name in ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"):
        jobs = [found_profile(f"resnet26-cifar10-bs{size}", A100) for size in (32, 128, 476)]
        part = partition_of(A100, name)
        example_s = [step_on(job, part, PHYSICS).p50 / job.workload.batch for job in jobs]
        assert example_s == sorted(example_s, reverse=True)
