"""When the tenants of a run were done, where each had a number of steps to do."""

from dataclasses import dataclass

from advisor.errors import InvalidInput
from advisor.workload.plausible import DAY_S, MOST_COUNT, check, check_number
from advisor.workload.spec import STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """How long whole jobs took together; columns have shape (tenants,), in the run's order.

    Tenants that ran at the same time are a group. In these times a group starts when the one
    before it has ended and MPS is set for it: that its processes start and load is left out, as it
    is for the first group.

    Attributes:
        steps: What each tenant had to do.
        began_s: When its group started, seconds after the first one did.
        ended_s: When its last step ended on the device, likewise; None where it ended early.
        pauses_s: Seconds in which MPS was started, stopped or seen to be off before each group but
            the first, shape (groups - 1,).
        energy_j: Of the whole GPU while groups ran; None without an energy counter.
    """

    __pydantic_config__ = STRICT

    steps: tuple[int, ...]
    began_s: tuple[float, ...]
    ended_s: tuple[float | None, ...]
    pauses_s: tuple[float, ...]
    energy_j: float | None

    def __post_init__(self) -> None:
        if not len(self.steps) == len(self.began_s) == len(self.ended_s):
            raise InvalidInput("steps, began_s and ended_s have an entry for each tenant")
        if any(each < 1 for each in self.steps):
            raise InvalidInput(f"a tenant has at least 1 step to do, got {min(self.steps)}")
        pairs = zip(self.began_s, self.ended_s, strict=True)
        if min((*self.began_s, *self.pauses_s), default=0.0) < 0 or any(
            ended is not None and ended <= began for began, ended in pairs
        ):
            raise InvalidInput("a tenant begins at 0 s or later, and ends after it began")
        longest_s = max((self.makespan_s, *self.began_s, *self.pauses_s))
        check_number("seconds of a run", longest_s, DAY_S)
        check_number("steps of a tenant", max(self.steps, default=0), MOST_COUNT)
        check(self, ("energy_j",))

    @property
    def makespan_s(self) -> float:
        """Until the last tenant ended, of those that did."""
        return max((each for each in self.ended_s if each is not None), default=0.0)
