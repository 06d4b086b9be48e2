"""What a sweep of operators says of a GPU."""

import csv
from itertools import product
from math import ceil
from pathlib import Path

import pytest

from advisor.errors import InvalidInput
from advisor.workload.gpu_side import GpuSide, Operator, OperatorTime

TIMINGS = Path(__file__).parents[3] / "shared" / "data" / "operator_timings_fp32.csv"


def side(*times, **changes):
    made = {"l2_mib": 1.0, "sm_clock_mhz": 1980, "launch_us": 5.0} | changes
    return GpuSide(times=tuple(OperatorTime(Operator(*each), ms) for *each, ms in times), **made)


@pytest.mark.parametrize(
    ("op", "shape", "said"),
    [
        ("matmul", "1x2x3x4", "no operator"),
        ("linear", "2x3x4", "has 4 numbers"),
        ("ln", "2xmany", "has 2 numbers"),
        ("add", "-2x3", "has 2 numbers"),
        ("add", "0x3", "at least 1"),
        ("add", f"{10**9}x{10**9}", "at most"),
    ],
)
def test_an_operator_that_cannot_be_is_refused(op, shape, said):
    with pytest.raises(InvalidInput, match=said):
        Operator(op, shape, "fp32")


def test_a_gpu_attains_what_its_best_product_does():
    found = side(
        ("linear", "1x1000x1000x1000", "fp32", 0.1),
        ("bmm", "10x1000x1000x1000", "fp32", 0.5),
        ("conv", "1x64x64x3x56x1x1", "fp32", 1e-6),
        ("linear", "1x1000x1000x1000", "tf32", 0.01),
    )
    assert found.tflops("fp32") == pytest.approx(40)
    assert found.tflops("tf32") == pytest.approx(200)
    assert found.tflops("fp16") is None


def test_bandwidth_is_that_of_traffic_far_beyond_the_cache_and_another_inside_it():
    found = side(
        ("add", "32x1024", "fp32", 0.0001),  # 0.375 MiB
        ("copy", "128x1024", "fp32", 0.0001),  # 1 MiB: neither
        ("copy", "1024x1024", "fp32", 0.01),  # 8 MiB
    )
    assert found.l2_bandwidth_gb_s == pytest.approx(0.375 * 2**20 / 100)
    assert found.bandwidth_gb_s == pytest.approx(8 * 2**20 / 1e4)


def test_without_the_caches_size_no_bandwidth_is_claimed():
    found = side(("copy", "1024x1024", "fp32", 0.01), l2_mib=None)
    assert (found.bandwidth_gb_s, found.l2_bandwidth_gb_s) == (None, None)


@pytest.mark.skipif(not TIMINGS.exists(), reason="others' measurements are not here")
def test_shapes_that_others_timed_are_read_as_they_ran():
    """The main kernel's blocks tile the output, rows by the last number, of each in the batch."""
    tiles = list(product((32, 64, 128, 256), repeat=2))
    with TIMINGS.open() as lines:
        rows = [row for row in csv.DictReader(lines) if row["op"] == "bmm"]
    for row in rows:
        batch, height, _, width = Operator("bmm", row["shape"], "fp32").dimensions
        grids = {batch * ceil(height / tall) * ceil(width / wide) for tall, wide in tiles}
        assert int(row["blocks"]) in grids
