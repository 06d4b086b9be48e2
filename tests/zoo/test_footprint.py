from dataclasses import replace

import pytest

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import gpu
from advisor.workload.files import beside_package
from advisor.workload.named_workloads import workload
from advisor.workload.store import read_profile
from advisor.zoo.allocation_recording import recorded
from advisor.zoo.footprint import footprint, replayed
from advisor.zoo.overhead import known_overheads
from research.overhead_fit import MeasuredMemory, fit_overhead, fitted, fitted_text

H200 = gpu("h200-141gb")
SMALL = ("mlp-toy-bs128", "transformer-toy-bs32", "cnn-cifar10-bs128", "dlrm-1gb-bs128")


def measured(name):
    return read_profile(beside_package("profiles") / "h200-141gb" / f"{name}.json").memory


@pytest.mark.parametrize("name", SMALL)
def test_a_workload_that_was_never_run_is_estimated_within_8_percent(name):
    estimate, memory = footprint(workload(name), H200), measured(name)
    assert estimate.p50_mib == pytest.approx(memory.device_mib, rel=0.08)
    assert estimate.p05_mib < estimate.p50_mib < estimate.p95_mib


@pytest.mark.parametrize(
    "name", ["mlp-toy-bs128", "transformer-toy-bs32", "dlrm-1gb-bs128", "gcn-molecules-bs256"]
)
def test_a_dry_run_allocates_what_a_real_one_did(name):
    dry, memory = replayed(recorded(workload(name)), workspace_mib=32), measured(name)
    assert dry.allocated_mib == pytest.approx(memory.allocated_mib, rel=0.02)
    assert dry.reserved_mib == pytest.approx(memory.reserved_mib, rel=0.02)


def test_a_dry_run_of_recurrent_layers_counts_what_cudnn_keeps_and_works_in():
    dry, memory = replayed(recorded(workload("gru-speech-bs64")), 32), measured("gru-speech-bs64")
    assert dry.allocated_mib == pytest.approx(memory.allocated_mib, rel=0.02)
    assert dry.reserved_mib == pytest.approx(memory.reserved_mib, rel=0.08)


def test_the_parts_add_up_to_the_whole():
    estimate = footprint(workload("transformer-toy-bs32"), H200)
    assert sum(estimate.parts_mib.values()) == pytest.approx(estimate.p50_mib)
    assert min(estimate.parts_mib.values()) >= 0


def test_weights_and_momentum_take_what_they_must():
    parts = footprint(workload("mlp-toy-bs128"), H200).parts_mib
    weights_mib = 4 * (784 * 512 + 512 * 512 + 512 * 10 + 512 + 512 + 10) / 2**20
    assert parts["weights"] == pytest.approx(weights_mib, rel=0.01)
    assert parts["optimizer"] == pytest.approx(weights_mib, rel=0.01)


def test_a_larger_batch_never_takes_less():
    sizes = [footprint(workload(f"cnn-cifar10-bs{n}"), H200).p50_mib for n in (32, 128, 512)]
    assert sizes == sorted(sizes)


def test_half_precision_halves_what_is_kept_for_the_way_back():
    full, half = (
        replayed(recorded(workload(f"transformer-toy-bs512{kind}")), 32).parts_mib["activations"]
        for kind in ("", "-amp")
    )
    assert 0.4 * full < half < 0.9 * full


@pytest.mark.parametrize(
    ("name", "card", "said"),
    [
        ("mlp-toy-bs128-compiled", "h200-141gb", "as if torch ran it call by call"),
        ("lstm-wikitext-bs2", "h200-141gb", "recurrent layers"),
        ("mlp-toy-bs128", "a100-40gb", "measured on h200-141gb only"),
    ],
)
def test_what_nothing_measured_stands_for_gets_a_wider_range_with_the_reason(name, card, said):
    estimate = footprint(workload(name), gpu(card))
    usual = footprint(workload("mlp-toy-bs128"), H200)
    assert any(said in note for note in estimate.notes)
    assert estimate.p95_mib / estimate.p50_mib > usual.p95_mib / usual.p50_mib
    assert usual.notes == ()


def rows():
    """Processes that hold 2 % more than dry runs, 30 MiB more where they convolve, and 700."""
    return [
        MeasuredMemory(
            workload=f"{family}-{dry}", family=family, execution="eager", dry_mib=dry,
            convolves=family == "b", reserved_mib=dry * 1.02 + 30 * (family == "b"),
            context_mib=700,
        )
        for family in "abc" for dry in (100.0, 900.0, 5000.0)
    ]  # fmt: skip


def run_as(execution, row, more_mib):
    """The same process with another way to carry out its step, which holds `more_mib` more."""
    held_mib = row.reserved_mib + more_mib
    return replace(row, execution=execution, reserved_mib=held_mib)


def test_an_overhead_is_found_again():
    overhead = fit_overhead(rows())
    assert overhead.growth == pytest.approx(0.02)
    assert overhead.convolution_mib == pytest.approx(30)
    assert overhead.context_mib == 700


def test_capturing_a_step_adds_what_captured_processes_hold_more():
    captured = [run_as("graph", row, 80) for row in rows() if row.dry_mib == 900]
    overhead = fit_overhead([*rows(), *captured])
    assert overhead.capture_mib == pytest.approx(80)
    eager, graph = (
        overhead.held_mib(900, convolves=False, execution=execution)
        for execution in ("eager", "graph")
    )
    assert graph - eager == pytest.approx(80)


def test_compiled_steps_teach_nothing_and_are_scored():
    compiled = [run_as("compiled", row, 3000) for row in rows() if row.family == "a"]
    fit = fitted("h200-141gb", [*rows(), *compiled])
    assert fit.overhead == fit_overhead(rows())
    assert len(fit.estimates) == 12
    assert fit.mape > fitted("h200-141gb", rows()).mape


def test_without_an_eager_workload_nothing_is_learnt():
    with pytest.raises(InvalidInput, match="no eager workload"):
        fit_overhead([run_as("compiled", row, 0) for row in rows()])


def test_a_captured_step_is_estimated_within_8_percent_in_the_usual_range():
    name = "mlp-toy-bs128-graph"
    estimate = footprint(workload(name), H200)
    assert estimate.p50_mib == pytest.approx(measured(name).device_mib, rel=0.08)
    assert estimate.notes == ()


def test_each_family_is_estimated_without_itself():
    """The only family that convolves cannot know what its own workspaces add."""
    fit = fitted("h200-141gb", rows())
    wrong = {each.family for each in fit.estimates if abs(each.error) > 1e-6}
    assert wrong == {"b"}
    assert len(fit.estimates) == 9


def test_two_families_are_too_few():
    with pytest.raises(InvalidInput, match="3 are needed"):
        fitted("h200-141gb", [row for row in rows() if row.family != "c"])


def test_the_shipped_overhead_says_how_well_it_serves_unseen_families():
    shipped = known_overheads()["h200-141gb"]
    assert len(shipped.families) >= 12
    assert shipped.mape < 0.08
    assert '"estimates"' in fitted_text([shipped])
