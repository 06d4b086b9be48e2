"""A calibration as one might lie in a user's folder: made up, and never shown as measured."""

from dataclasses import replace

from advisor.workload.calibration import Calibration, Contexts, HostCheck, LimitedContext, Switching
from tests import synthetic


def calibration(check_s=1e-3, **changes):
    """Of an H200 whose host does the check in `check_s` on one core, 10 % longer on eight."""
    made = Calibration(
        gpu="h200-141gb",
        host=(HostCheck(1, check_s), HostCheck(2, check_s), HostCheck(8, 1.1 * check_s)),
        contexts=Contexts(
            driver_mib=700.0,
            plain_mib=742.0,
            mps_mib=742.0,
            sms=132,
            limited=(LimitedContext(50.0, 66, 452.0), LimitedContext(10.0, 12, 214.0)),
            mps_server_mib=100.0,
        ),
        switching=(Switching(kernel_s=1e-4, overhead=0.1, slice_s=1e-3, switch_s=1.1e-4),),
        idle_power_w=76.0,
        provenance=synthetic.PROVENANCE,
    )
    return replace(made, **changes)
