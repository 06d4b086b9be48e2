from types import SimpleNamespace

import pytest
import torch

from advisor.errors import InvalidInput
from advisor.hardware import live_gpu
from advisor.measure.process.claimed_device import Device
from advisor.measure.process.memory_filler import _served_mib, leave_free, memory_filled
from advisor.measure.process.mps_session import mps_session_on
from advisor.measure.process.worker import TenantState

MIB = 2**20


@pytest.fixture
def card(monkeypatch):
    """A card of 141,000 MiB in words only: what is allocated on it is a byte a MiB."""
    state = SimpleNamespace(free=140_000 * MIB, asked=[])

    def allocate(count, dtype, device):
        assert (dtype, device) == (torch.uint8, "cuda")
        state.asked.append(count // MIB)
        # The driver's page tables take a little more than was asked for.
        state.free -= count + count // 100_000
        return count

    monkeypatch.setattr(torch, "empty", allocate)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (state.free, 141_000 * MIB))
    return state


def test_a_card_is_filled_until_it_looks_like_the_smaller_one(card):
    answer = leave_free(TenantState("cuda"), 24_000)
    assert answer["free_mib"] == pytest.approx(24_000, abs=20)
    assert all(asked % 2 == 0 for asked in card.asked)


def test_a_card_cannot_look_larger_than_it_is(card):
    with pytest.raises(InvalidInput, match="smaller capacity_mib"):
        leave_free(TenantState("cuda"), 141_000)
    assert card.asked == []


def test_without_a_capacity_nothing_is_held(tmp_path):
    with (
        mps_session_on(Device("cpu", None, "cpu", "a CPU", None), tmp_path) as session,
        memory_filled(session, None) as free_mib,
    ):
        assert free_mib is None


def test_a_cpu_has_no_smaller_brother(tmp_path):
    with (
        mps_session_on(Device("cpu", None, "cpu", "a CPU", None), tmp_path) as session,
        pytest.raises(InvalidInput, match="drop capacity_mib"),
        memory_filled(session, 1024),
    ):
        pass


def test_tenants_of_the_run_before_are_waited_for(monkeypatch):
    seen = [{1: 66.0, 2: 900.0}, {1: 66.0, 2: 900.0}, {1: 66.0}, {1: 66.0}]
    monkeypatch.setattr(live_gpu, "process_memory_mib", lambda _: seen.pop(0))
    assert _served_mib("GPU-1") == 66.0
    assert seen == []
