"""Residency as CUDA's occupancy calculator has it; expected values worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import catalogue
from advisor.measure.solo.traced_step import resident_blocks, sm_limits


@pytest.mark.parametrize(
    ("capability", "launch", "blocks", "why"),
    [
        ("9.0", (256, 32, 0), 8, "2,048 threads / 256"),
        ("8.6", (256, 32, 0), 6, "1,536 threads / 256"),
        ("9.0", (32, 16, 0), 32, "32 block slots"),
        ("8.6", (32, 16, 0), 16, "16 block slots"),
        ("8.9", (32, 16, 0), 24, "24 block slots"),
        ("9.0", (1024, 64, 0), 1, "65,536 / (64 x 1,024)"),
        ("9.0", (128, 255, 0), 2, "8 warps of 8,192 registers; 4 a block"),
        ("9.0", (256, 33, 0), 6, "33 counts as 40: 48 warps of 1,280 registers; 8 a block"),
        ("9.0", (384, 168, 0), 1, "12 warps of 5,376 registers; 12 a block"),
        ("9.0", (64, 70, 0), 14, "70 counts as 72: 28 warps of 2,304 registers; 2 a block"),
        ("9.0", (128, 32, 231_424), 1, "227 KiB and the system's 1 KiB are all there is"),
        ("9.0", (128, 32, 48 * 1024), 4, "228 / 49 KiB"),
        ("8.0", (128, 32, 48 * 1024), 3, "164 / 49 KiB"),
        ("7.0", (128, 32, 48 * 1024), 2, "96 / 48 KiB, nothing reserved"),
        ("9.0", (256, 32, 1), 8, "a byte counts as 128"),
        ("9.0", (100, 32, 0), 16, "100 threads take 4 warps"),
    ],
)
def test_as_many_blocks_fit_on_an_sm_as_the_scarcest_thing_allows(capability, launch, blocks, why):
    limits = sm_limits(capability)
    threads, registers, shared_bytes = launch
    fit = resident_blocks(limits, threads=threads, registers=registers, shared_bytes=shared_bytes)
    assert fit == blocks, why


@given(
    st.sampled_from(["7.0", "8.0", "8.6", "8.9", "9.0"]),
    st.integers(1, 1024),
    st.integers(0, 255),
    st.integers(0, 99 * 1024),
)
def test_a_block_that_asks_for_more_never_fits_more_often(capability, threads, registers, shared):
    limits = sm_limits(capability)

    def fit(threads: int, registers: int, shared: int) -> int:
        return resident_blocks(limits, threads=threads, registers=registers, shared_bytes=shared)

    once = fit(threads, registers, shared)
    assert 1 <= once <= limits.blocks
    assert fit(min(1024, threads + 32), registers, shared) <= once
    assert fit(threads, min(255, registers + 8), shared) <= once
    assert fit(threads, registers, shared + 1024) <= once


def test_every_gpu_of_the_catalogue_can_be_profiled():
    for gpu in catalogue().values():
        assert sm_limits(gpu.compute_capability).threads == gpu.threads_per_sm


def test_a_gpu_whose_limits_nobody_entered_is_refused_and_not_guessed():
    with pytest.raises(InvalidInput, match=r"11\.7"):
        sm_limits("11.7")
