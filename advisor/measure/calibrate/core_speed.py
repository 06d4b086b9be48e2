"""How fast host cores are, alone and with others busy."""

from collections.abc import Sequence
from statistics import mean, median

from advisor.measure.calibrate.tenant_rpc import all_told
from advisor.measure.process.tenants import TenantProcess
from advisor.workload.calibration import HostCheck

# As many cores at once as jobs that share a GPU have.
CORES_AT_ONCE = (1, 2, 4, 8)

# Spread over some seconds, since a virtual core can be slow for one.
_ROUNDS = 12


def host_checks(tenants: Sequence[TenantProcess]) -> tuple[HostCheck, ...]:
    """The check on one core, then on as many at once as there are tenants.

    Each count takes its turn in every round, on other cores each time: the figure is the median
    round's, of the mean over the cores at work.

    Args:
        tenants: One a core.
    """
    counts = [count for count in CORES_AT_ONCE if count <= len(tenants)]
    all_told(tenants, "check_host", {})  # the first is slower
    seen: dict[int, list[float]] = {count: [] for count in counts}
    for turn in range(_ROUNDS):
        for count in counts:
            chosen = [tenants[(turn * count + i) % len(tenants)] for i in range(count)]
            told = all_told(chosen, "check_host", {})
            seen[count].append(mean(each["check_s"] for each in told))
    return tuple(HostCheck(count, median(checks)) for count, checks in seen.items())
