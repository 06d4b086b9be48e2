"""A calibration and a host check as a user may have: made up, and never shown as measured."""

from dataclasses import replace

from advisor.hardware.machine import Calibration, Contexts, HostCheck, LimitedContext, Switching
from tests import synthetic


def calibration(**changes):
    """A calibration of an H200, with `changes`."""
    made = Calibration(
        gpu="h200-141gb",
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


def host_check(check_s=1e-3, busy=1):
    """A check of a host, made before the tests."""
    return HostCheck(check_s=check_s, busy=busy, cores=16, host="node-1", made_at=1.7e9)
