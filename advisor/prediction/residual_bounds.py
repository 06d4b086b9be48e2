"""Bounds of 90 % intervals of measured over predicted steps, in logs."""

from dataclasses import dataclass

from advisor.errors import InvalidInput
from advisor.workload.plausible import MOST_SPREADS, check_number


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualBounds:
    """Quantiles, 5 and 95 %, of log(measured / predicted) over its spread, for unseen families."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= 0 <= self.high:
            raise InvalidInput("the bounds of an interval lie on both sides of its middle")
        check_number("a bound of an interval", max(-self.low, self.high), MOST_SPREADS)
