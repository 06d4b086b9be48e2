"""The catalogue is data: each number can be true, and each has its source."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput, UnknownName
from advisor.hardware.catalogue import catalogue, gpu, gpu_meant, gpu_of_product

GPUS = sorted(catalogue().values(), key=lambda each: each.key)
NUMBERS = (
    "sms", "memory_mib", "reserved_mib", "bandwidth_gb_s", "l2_mib", "power_limit_w",
    "power_limit_min_w", "threads_per_sm", "max_mps_clients",
)  # fmt: skip


@pytest.mark.parametrize("known", GPUS, ids=lambda each: each.key)
def test_every_number_has_a_source_and_every_source_a_number(known):
    given = {name for name in NUMBERS if getattr(known, name) is not None}
    given |= {"rates"} | ({"mig", "memory_slices"} if known.mig else set())
    # What compute instances there can be is known of some GPUs only; then that has a source.
    assert set(known.sources) - {"compute_instances"} == given
    assert known.mig or "compute_instances" not in known.sources
    assert all(source.strip() for source in known.sources.values())


@pytest.mark.parametrize("known", GPUS, ids=lambda each: each.key)
def test_every_number_can_be_true(known):
    assert all(getattr(known, name) is None or getattr(known, name) > 0 for name in NUMBERS)
    nominal_gb = int(known.key.split("-")[-1].removesuffix("gb"))
    assert 0.9 * nominal_gb < known.memory_mib * 2**20 / 1e9 < 1.1 * nominal_gb


@pytest.mark.parametrize("known", [each for each in GPUS if each.mig], ids=lambda each: each.key)
def test_no_instance_is_bigger_than_its_gpu(known):
    for row in known.mig:
        assert row.memory_mib <= known.memory_mib
        assert row.sms is None or row.sms <= known.sms
        assert 1 <= row.max_instances <= len(row.starts)
        assert all(0 <= s <= known.memory_slices - row.memory_slices for s in row.starts)
    assert len({row.name for row in known.mig}) == len(known.mig)
    assert len({row.profile_id for row in known.mig}) == len(known.mig)


def test_the_h200_is_as_its_driver_describes_it():
    h200 = gpu("h200-141gb")
    assert (h200.sms, h200.memory_mib, h200.bandwidth_gb_s) == (132, 143771, 4800)
    assert {row.name: row.sms for row in h200.mig}["3g.71gb"] == 60


def test_a_product_is_found_by_the_name_that_nvml_gives_it():
    assert gpu_of_product("NVIDIA A100 80GB PCIe").key == "a100-80gb"
    assert gpu_of_product("Voodoo 2") is None


def test_no_product_belongs_to_two_gpus():
    products = [product for known in GPUS for product in known.products]
    assert len(set(products)) == len(products)


def test_an_unknown_gpu_lists_the_near_ones():
    with pytest.raises(UnknownName, match=r"no GPU is called 'h200'.*h200-141gb"):
        gpu("h200")


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("A100-40GB", "a100-40gb"),
        ("a100_40gb", "a100-40gb"),
        ("A100 80GB", "a100-80gb"),
        ("h200", "h200-141gb"),
        ("H200", "h200-141gb"),
        ("NVIDIA H200", "h200-141gb"),
        ("h100 pcie", "h100-pcie-80gb"),
        ("rtx 4090", "rtx-4090-24gb"),
        ("L4", "l4-24gb"),
        ("h20", "h20-96gb"),
    ],
)
def test_a_gpu_is_meant_by_the_names_that_people_use(word, key):
    assert gpu_meant(word).key == key


def test_a_gpu_is_meant_by_its_key_and_by_each_name_of_its_product():
    for key, known in catalogue().items():
        assert {gpu_meant(name).key for name in (key, key.upper(), *known.products)} == {key}


@pytest.mark.parametrize(
    ("word", "named"),
    [("a100", "a100-40gb or a100-80gb"), ("H100", "h100-pcie-80gb"), ("gh200", "gh200-144gb")],
)
def test_what_may_be_several_gpus_is_refused_with_all_of_them(word, named):
    with pytest.raises(InvalidInput, match=named):
        gpu_meant(word)


@pytest.mark.parametrize("word", ["", "-", "nvidia", "141gb", "h2000", "h200-80gb", "a100-40gb-x"])
def test_what_is_no_gpu_is_refused(word):
    with pytest.raises(UnknownName, match="`advisor gpus` lists all"):
        gpu_meant(word)


@given(st.text(max_size=30))
def test_any_word_means_a_gpu_or_is_refused(word):
    with suppress(InvalidInput):
        assert gpu_meant(word).key in catalogue()


@pytest.mark.parametrize("known", catalogue().values(), ids=catalogue())
def test_a_gpu_computes_as_fast_as_its_units_at_its_clock(known):
    rates = known.rates
    lanes = 64 if known.compute_capability in ("7.0", "8.0") else 128
    at_clock = known.sms * lanes * 2 * rates.clock_mhz * 1e-6
    # The H20's datasheet states more than its SMs can do at the clock of its kin.
    assert rates.fp32_tflops == pytest.approx(at_clock, rel=0.12 if "h20-" in known.key else 0.03)
    assert rates.fp32_tflops <= (rates.tf32_tflops or rates.fp16_tflops) <= rates.fp16_tflops
