"""What the rates of two GPUs say of operators timed on both."""

import csv
import json
from pathlib import Path

import pytest

from advisor.hardware.attained_rates import rates_of
from advisor.hardware.catalogue import gpu
from advisor.workload.gpu_side import Operator
from research.operator_ratios import latencies, predicted_ms, rows, translated

THEIRS = Path(__file__).parents[3] / "shared" / "data" / "operator_timings_fp32.csv"
A100, H100 = gpu("a100-40gb"), gpu("h100-sxm-80gb")
ADDED = [Operator("add", f"{2**power}x1024", "fp32") for power in range(10, 18)]
SMALL = [Operator("add", f"{rows}x8", "fp32") for rows in (1, 2, 4, 8)]


def test_operators_as_fast_as_their_rates_are_translated_without_error():
    here = {each: predicted_ms(each, A100) for each in ADDED}
    there = {each: predicted_ms(each, H100) for each in ADDED}
    slower = rates_of(A100).bandwidth_gb_s / rates_of(H100).bandwidth_gb_s
    for found in translated(A100, here, H100, there):
        assert found.by_rates == pytest.approx(slower)
        assert found.ratio == pytest.approx(found.by_rates)
        assert (found.error, found.factor) == (pytest.approx(0), pytest.approx(1))


def test_what_all_operators_of_a_kind_have_in_common_is_a_factor():
    here = {each: predicted_ms(each, A100) for each in ADDED}
    there = {each: 1.5 * predicted_ms(each, H100) for each in ADDED}
    for found in translated(A100, here, H100, there):
        assert found.error == pytest.approx(1 / 3)
        assert found.factor == pytest.approx(1.5)
        assert found.corrected_error == pytest.approx(0)


def test_operators_that_are_mostly_launch_are_apart():
    timed = dict.fromkeys(SMALL, 0.02) | {each: 1.0 for each in ADDED}
    found = {each.size: each.operators for each in translated(A100, timed, H100, timed)}
    assert found == {"launch": len(SMALL), "work": len(ADDED)}


def test_timings_of_both_kinds_of_files_meet(tmp_path):
    theirs, ours = tmp_path / "theirs.csv", tmp_path / "ours.jsonl"
    with theirs.open("w", newline="") as lines:
        table = csv.writer(lines)
        table.writerow(["gpu", "op", "shape", "latency_ms", "blocks", "threads"])
        table.writerows([A100.products[0], "add", each.shape, 1.0, 1, 1] for each in ADDED)
    row = {"gpu": H100.products[0], "op": "add"}
    lines = [{"gpu": row["gpu"], "torch": "2.11"}] + [
        row | {"shape": each.shape, "precision": precision, "latency_ms": took_ms}
        for each in ADDED
        for precision, took_ms in (("fp32", 0.5), ("tf32", None))
    ]
    ours.write_text("".join(json.dumps(each) + "\n" for each in lines))
    found = latencies([theirs, ours])
    assert {each.key: len(timed) for each, timed in found.items()} == {
        A100.key: len(ADDED),
        H100.key: len(ADDED),
    }
    assert {row[0] for row in rows(found)} == {"a100-40gb to h100-sxm-80gb"}


@pytest.mark.skipif(not THEIRS.exists(), reason="others' measurements are not here")
def test_what_the_shares_of_a_makers_rate_were_taken_from():
    """`advisor.hardware.attained_rates` names them; an A100 and a V100, of PCIe both."""
    for gpu_there, timed in latencies([THEIRS]).items():
        rates = gpu_there.rates
        for op, work in (("linear", "flops"), ("add", "traffic_mib")):
            done = [getattr(o, work) / ms for o, ms in timed.items() if o.op == op]
            if done:
                unit = (
                    rates.fp32_tflops * 1e9 if op == "linear" else rates.bandwidth_gb_s / 1.048576
                )
                assert 0.84 < max(done) / unit < 0.96
