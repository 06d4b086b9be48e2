"""What replay says of client priorities, beside the runs with them on an H100 and an H200."""

from pathlib import Path

import numpy as np
import pytest

from advisor.hardware.catalogue import gpu
from advisor.prediction.model_file import load_model
from advisor.prediction.physics import replay_mix
from advisor.prediction.tenant_hosts import profiles_on_host
from advisor.sharing import Mps, parse_sharing
from advisor.workload.store import read_profile
from advisor.workload.stored_runs import read_runs

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "profiles"
CARDS = ("h100-sxm-80gb", "h200-141gb")


def _measured(card):
    """The drawn runs with priorities on a GPU."""
    files = sorted((SHIPPED / card / "runs").glob("*.jsonl"))
    return [
        run
        for run in (run for file in files for run in read_runs(file))
        if run.purpose == "drawn" and run.ok and parse_sharing(run.sharing).mode == "mps-priority"
    ]


def _off(card, runs, *, heeded):
    """How far replayed steps are off, as shares; with priorities `heeded` or passed over."""
    physics = load_model(ROOT / "models" / "sharing.json").of(gpu(card)).physics
    names = {tenant.workload.name for run in runs for tenant in run.tenants}
    profiles = {name: read_profile(SHIPPED / card / f"{name}.json") for name in names}
    found = []
    for run in runs:
        sharing = parse_sharing(run.sharing)
        asked = sharing if heeded else Mps(sharing.limits)
        steps_s = replay_mix(profiles_on_host(run, profiles), asked, gpu(card), physics)
        found += list(np.abs(steps_s / [tenant.step_s for tenant in run.tenants] - 1))
    return np.array(found)


@pytest.mark.parametrize("card", CARDS)
def test_priorities_are_replayed_nearer_to_real_runs_than_if_they_were_passed_over(card):
    runs = _measured(card)
    heeded, passed_over = _off(card, runs, heeded=True), _off(card, runs, heeded=False)
    assert len(heeded) >= 18
    assert heeded.mean() < 0.2
    assert heeded.mean() < 0.7 * passed_over.mean()
