"""What fewer SMs cost a job alone of which no kernel trace is known: under a limit, on an instance.

nvidia-smi's utilisation does not say how many SMs a job uses while the GPU is busy: if all, its
kernels take ``1 / share`` times as long on a share of them; if few, as long as before. A power of
that with an exponent from 0 to 1 lies between the two. Jobs that draw more power use more SMs.

The exponent was fitted to 81 workloads alone under MPS limits of an H200 (their probes), and to 58
steps of four models alone on MIG slices of an A100 (MISO, SoCC '22, its artifact), each GPU with
the same weight. It leaves 17 and 15 % of error, where kernels that slow in proportion leave 55 and
29 %, and kernels that do not slow 40 and 30 %.
"""

from math import exp

from advisor.hardware.catalogue import Gpu
from advisor.prediction.mix_prediction import Interval, spanning
from advisor.prediction.utilisation_model import any_busy, power_share
from advisor.workload.profile import Profile

# At no power, and what all of the GPU's power limit adds.
_EXPONENT, _OF_POWER = 0.63, 0.21
# Of jobs on both GPUs.
_USUAL_POWER = 0.4
# The exponent of nine jobs in ten lies so far from that at most, where their power is known.
_EXPONENT_SPREAD, _WITHOUT_POWER = 0.25, 0.35
# Log of a step's growth beyond that, if all SMs were missing: less bandwidth, shorter queues.
_BEYOND = 0.25


def kernel_exponent(profile: Profile, gpu: Gpu) -> float:
    """Power of the share of SMs by which the job's kernels speed up, 0..1."""
    power = power_share(profile, gpu)
    return min(1.0, _EXPONENT + _OF_POWER * (_USUAL_POWER if power is None else power))


def slowdown_on_fewer_sms(profile: Profile, share: float, gpu: Gpu) -> Interval:
    """How many times as long a step takes alone on a share of the GPU's SMs, in (0, 1].

    The widest interval where it is not known how long the job keeps the GPU busy.
    """
    if profile.gpu_s is None:
        return spanning(
            [slowdown_on_fewer_sms(each, share, gpu) for (each,) in any_busy([profile])]
        )
    busy, middle = profile.busy_share or 0.0, kernel_exponent(profile, gpu)
    spread = _WITHOUT_POWER if power_share(profile, gpu) is None else _EXPONENT_SPREAD
    low, usual, high = (
        max(1.0, busy * share**-exponent) for exponent in (middle - spread, middle, middle + spread)
    )
    return Interval(low, usual, high * exp(_BEYOND * (1 - share)))
