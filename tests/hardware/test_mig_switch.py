"""MIG instances made and removed over NVML, on a stand-in that obeys NVIDIA's rules."""

import json
from pathlib import Path

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import AdvisorError, GpuUnavailable
from advisor.hardware import mig_switch
from advisor.hardware.catalogue import gpu
from advisor.hardware.gpu_instances import ComputeInstance, GpuInstance
from advisor.hardware.mig_switch import mig_devices, mig_instances, reach
from tests.hardware.mig_machine import CHANGES, COMPUTE, ENUMERATORS, MIG, MigMachine
from tests.hardware.mig_twin import rows_of, valid_sets

A100 = gpu("a100-40gb")


def whole(profile_id, start, size, slices):
    return GpuInstance(start, size, profile_id, (ComputeInstance(0, slices),))


FACTS = Path(__file__).parents[3] / "shared" / "facts" / "mig_profiles.json"
SEVEN = whole(0, 0, 8, 7)
FOUR, THREE, HALF = whole(5, 0, 4, 4), whole(9, 4, 4, 3), whole(9, 0, 4, 3)
TWO, ONE = whole(14, 4, 2, 2), whole(19, 6, 1, 1)
DIVIDED = GpuInstance(0, 8, 0, (ComputeInstance(0, 4), ComputeInstance(4, 3)))


def changed(machine, wanted):
    """All that is there may go."""
    reach("GPU-0", wanted, machine.layout())


def alike(some, others):
    return len(some) == len(others) and all(map(GpuInstance.is_like, some, others))


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(mig_switch, "_PAUSE_S", 0)
    monkeypatch.setattr(mig_switch, "_TRIES", 4)


@pytest.fixture
def machine(install):
    return install(MigMachine())


@pytest.mark.parametrize("wanted", [(SEVEN,), (FOUR, THREE), (HALF, TWO, ONE), (DIVIDED,), ()])
@pytest.mark.parametrize("before", [(), (SEVEN,), (FOUR, THREE), (DIVIDED,)])
def test_what_is_wanted_is_there_afterwards_and_no_dead_handle_was_used(machine, before, wanted):
    machine.put(*before)
    changed(machine, wanted)
    assert alike(machine.layout(), wanted)
    assert alike(mig_instances("GPU-0"), wanted)
    assert machine.misused == []


def test_what_is_there_already_is_left_alone(machine):
    machine.put(FOUR, THREE)
    four = {part for _, start, parts in machine.held.values() if start == 0 for part in parts}
    changed(machine, (FOUR, TWO, ONE))
    assert four <= {part for _, _, parts in machine.held.values() for part in parts}
    before = len(machine.calls)
    changed(machine, (FOUR, TWO, ONE))
    assert not CHANGES & set(machine.calls[before:])


def test_parts_of_an_instance_change_without_the_instance(machine):
    machine.put(SEVEN)
    (number,) = machine.held
    changed(machine, (DIVIDED,))
    assert list(machine.held) == [number]
    assert alike(machine.layout(), (DIVIDED,))


def test_each_compute_instance_is_named_by_its_own_uuid(machine):
    changed(machine, (DIVIDED,))
    first, second = mig_devices("GPU-0")
    assert (first.compute.start, second.compute.start) == (0, 4)
    assert first.uuid.startswith("MIG-")
    assert first.uuid != second.uuid
    (parts,) = (parts for *_, parts in machine.held.values())
    assert {first.uuid, second.uuid} == {machine.uuid(part) for part in parts}


@given(data=st.data())
def test_any_layout_becomes_any_other(data):
    rows = rows_of(A100)
    ids = {row.name: row for row in A100.mig}

    def drawn():
        places = data.draw(st.sampled_from(valid_sets(rows)))
        return tuple(sorted(
            whole(ids[n].profile_id, start, ids[n].memory_slices, ids[n].compute_slices)
            for n, start in places
        ))  # fmt: skip

    with pytest.MonkeyPatch.context() as patch:
        machine = MigMachine()
        patch.setattr(pynvml, "nvmlLib", machine)
        patch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        machine.put(*drawn())
        wanted = drawn()
        changed(machine, wanted)
        assert alike(machine.layout(), wanted)
        assert machine.misused == []


PASSING = ("IN_USE", "INSUFFICIENT_RESOURCES", "UNKNOWN")


@pytest.mark.parametrize("name", PASSING)
def test_a_call_that_fails_for_a_moment_is_repeated_whichever_it_is(install, name):
    calm = install(MigMachine())
    calm.put(FOUR, THREE)
    changed(calm, (DIVIDED,))
    for at in range(len(calm.calls)):
        machine = install(MigMachine())
        machine.put(FOUR, THREE)
        code = getattr(pynvml, f"NVML_ERROR_{name}")
        machine.fault = lambda number, what, at=at, code=code: (
            code if number == at and "Init" not in what else None
        )
        changed(machine, (DIVIDED,))
        assert alike(machine.layout(), (DIVIDED,))
        assert machine.misused == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("IN_USE", "in use still. End what runs on it"),
        ("INSUFFICIENT_RESOURCES", "a place that was free is taken"),
        ("NO_PERMISSION", "Run it as root"),
        ("FUNCTION_NOT_FOUND", "the driver is too old"),
        ("GPU_IS_LOST", "fallen off its bus"),
        ("UNKNOWN", "the NVIDIA driver answered"),
    ],
)
def test_what_does_not_pass_is_said_in_a_sentence(machine, name, said):
    machine.put(THREE)
    code = getattr(pynvml, f"NVML_ERROR_{name}")
    machine.fault = lambda _number, what: code if what in CHANGES else None
    with pytest.raises(AdvisorError, match=said):
        changed(machine, (FOUR,))


def test_an_instance_with_a_job_on_it_is_not_destroyed(machine):
    machine.put(FOUR, THREE)
    machine.busy.add(1)
    with pytest.raises(GpuUnavailable, match="in use still"):
        changed(machine, ())
    assert alike(machine.layout(), (FOUR, THREE))


def test_a_driver_without_placements_of_compute_instances_is_too_old(machine, monkeypatch):
    monkeypatch.delitem(MIG, "nvmlGpuInstanceCreateComputeInstanceWithPlacement")
    with pytest.raises(GpuUnavailable, match="R525 or later"):
        changed(machine, (FOUR,))


def test_what_somebody_else_has_made_meanwhile_is_left_alone(machine):
    machine.put(FOUR, ONE)
    reach("GPU-0", (TWO,), known=(FOUR,))
    assert alike(machine.layout(), (TWO, ONE))
    with pytest.raises(GpuUnavailable, match="Somebody else makes instances too"):
        reach("GPU-0", (THREE,), known=(FOUR, TWO))
    assert alike(machine.layout(), (ONE,))


def test_the_stand_in_offers_what_an_a100_offers():
    if not FACTS.exists():
        pytest.skip("the collected facts about MIG are not here")
    rows = json.loads(FACTS.read_text())["gpus"]["A100-40GB"]["profiles"]
    machine = MigMachine()
    assert len(rows) == len(machine.card.mig)
    for row, ours in zip(rows, machine.card.mig, strict=True):
        starts = [int(each.partition(":")[0]) for each in row["placements"]]
        assert (row["profile_id"], row["max_instances"]) == (ours.profile_id, ours.max_instances)
        assert starts == list(ours.starts)
        parts = {each["compute_slices"]: each for each in row["compute_instance_profiles"]}
        there = COMPUTE[row["compute_slices"]]
        assert {size: each["max_per_gpu_instance"] for size, each in parts.items()} == {
            size: len(starts) for size, starts in there.items()
        }
        assert {size: each["ci_profile_id"] for size, each in parts.items()} == {
            size: ENUMERATORS[size] for size in there
        }
