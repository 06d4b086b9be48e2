"""How work slows on a part of a GPU, and steps with it: what slices and limits have in common.

Of a step alone on the whole GPU, a share W is work that takes k times as long on the part; the
rest, most of it the host's, hides that. The step takes ``(1 + W^p (k^p - 1))^(1/p)`` times as long:
the slower of both sets the pace (p large), or they add up (p = 1).

The constants were fitted to four models on MIG slices and under MPS limits of an A100 (MISO's
artifact, SoCC '22), two on slices of an A100 (MIGPerf), and the MPS probes of the profiles of an
H200 and an H100. docs/other-gpus.md has the errors for models left out. On MIG, only an A100 was
measured.
"""

from dataclasses import dataclass

import numpy as np

from advisor.prediction.trace import Floats

_Real = Floats | float

# Of the curve itself, as if sensitivity to the log odds were at least this on small parts. The
# smallest round number with which 85 to 95 % of left-out models are inside on slices of every size.
_OWN_DOUBT = 0.25


@dataclass(frozen=True, slots=True)
class PartCurve:
    """How steps slow on a part of a GPU.

    Attributes:
        sharpness: p of the formula above.
        sms: Power of the share of SMs by which work speeds up, with as much of the bandwidth.
        bandwidth: Power by which it speeds up with more bandwidth than that.
        surplus: Times that; still more buys nothing, as under an MPS limit, which takes SMs only.
    """

    sharpness: float
    sms: float
    bandwidth: float
    surplus: float

    def work_slowdown(self, sm_share: _Real, bandwidth_share: _Real) -> Floats:
        """Of parts with those shares, in (0, 1], in their shape: k of the formula above."""
        sms = np.asarray(sm_share, dtype=np.float64)
        richer = np.minimum(bandwidth_share / sms, self.surplus)
        return np.asarray(np.maximum(1.0, sms**-self.sms * richer**-self.bandwidth))

    def log_slowdown(self, log_odds: _Real, work_slowdown: Floats) -> Floats:
        """Log of a step over the step alone, at least 0; `log_odds` are those of W."""
        return np.log1p(self._slowed(log_odds, work_slowdown)) / self.sharpness

    def doubt(self, log_odds: _Real, work_slowdown: Floats) -> Floats:
        """How far off `log_slowdown` may be, where the log odds may be off by 1."""
        slowed = self._slowed(log_odds, work_slowdown)
        by_odds = slowed / (1 + slowed) / (1 + np.exp(log_odds))
        return np.asarray(np.hypot(by_odds, _OWN_DOUBT * (1 - work_slowdown**-2)))

    def _slowed(self, log_odds: _Real, work_slowdown: Floats) -> Floats:
        share = 1 / (1 + np.exp(-np.asarray(log_odds)))
        return np.asarray(share**self.sharpness * (work_slowdown**self.sharpness - 1))


CURVE = PartCurve(sharpness=1.75, sms=1.0, bandwidth=0.37, surplus=1.87)
