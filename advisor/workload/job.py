"""A job to run: how much of a profiled workload, by when, and what it allows its mates."""

import re
from dataclasses import dataclass
from math import isfinite
from numbers import Real
from types import NoneType

from advisor.errors import InvalidInput
from advisor.workload.plausible import (
    LEAST_EPOCHS,
    MOST_EPOCH_S,
    MOST_EPOCHS,
    MOST_WAIT_S,
    check_number,
)
from advisor.workload.profile import Profile

# Owners: they become part of sentences, which the page shows as Markdown.
_USER = re.compile(r"\w[\w .:@+-]*")

# Fields that are no numbers: what each holds, and that in words.
_OTHER_KINDS = (
    ("user", (str, NoneType), "a name"),
    ("data_parallel", bool, "True or False"),
    ("isolated", bool, "True or False"),
)

# A step that may take six times as long is not protected: larger shares were meant in per cent.
_MOST_LONGER = 5.0


def check_hurt(what: str, share: float) -> None:
    """Check the `share` by which a step may take longer; messages call it `what`.

    Raises:
        InvalidInput: It is below 0, no number, or so large that it was meant in per cent.
    """
    if isfinite(share) and 0 <= share < _MOST_LONGER:
        return
    meant = f": {share:g} % is {share / 100:g}" if _MOST_LONGER <= share < float("inf") else ""
    raise InvalidInput(
        f"{what} is a share of at least 0 and below {_MOST_LONGER:g}, e.g. 0.1 where steps may "
        f"take 10 % longer; got {share:g}{meant}"
    )


@dataclass(frozen=True, slots=True)
class Job:
    """A profiled workload, how much of it is to run, and its constraints.

    Attributes:
        epochs: Number of passes over the data.
        validation_s: Seconds of validation after each epoch, alone; not part of an epoch's time.
        checkpoint_s: Seconds of writing checkpoints in each epoch, alone; not part of its time.
        user: Name of its owner; None: all jobs without a name have one owner.
        data_parallel: Whether it exchanges gradients with other GPUs.
        isolated: Whether no other job may share its memory and its faults.
        deadline_s: Seconds from the start of all jobs in which it should end; None: no deadline.
        protect: Largest share by which its steps may get longer than alone, 0 to 5; None: any.

    Raises:
        InvalidInput: The numbers are impossible.
    """

    profile: Profile
    epochs: float = 1.0
    validation_s: float = 0.0
    checkpoint_s: float = 0.0
    user: str | None = None
    data_parallel: bool = False
    isolated: bool = False
    deadline_s: float | None = None
    protect: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.profile, str):
            raise InvalidInput(
                f"Job takes a Profile: Advisor.find_profile({self.profile!r}) finds it"
            )
        if not isinstance(self.profile, Profile):
            raise InvalidInput(f"Job takes a Profile, got {type(self.profile).__name__}")
        self._check_kinds()
        if not (isfinite(self.epochs) and self.epochs > 0):
            raise InvalidInput(f"{self.name}: epochs must be above 0, got {self.epochs:g}")
        check_number(f"{self.name}: epochs", self.epochs, MOST_EPOCHS, LEAST_EPOCHS)
        for field in ("validation_s", "checkpoint_s"):
            seconds = getattr(self, field)
            if not (isfinite(seconds) and seconds >= 0):
                raise InvalidInput(f"{self.name}: {field} must be at least 0, got {seconds:g}")
            check_number(f"{self.name}: {field}", seconds, MOST_EPOCH_S)
        if self.user is not None and not _USER.fullmatch(self.user):
            raise InvalidInput(
                f"{self.name}: a user has a name of letters, digits, spaces and .:_@+-, got "
                f"{self.user!r}; leave it out if there is none"
            )
        self._check_limits()

    def _check_kinds(self) -> None:
        for field in ("epochs", "validation_s", "checkpoint_s", "deadline_s", "protect"):
            value = getattr(self, field)
            optional = field in ("deadline_s", "protect")
            if not isinstance(value, Real) and not (optional and value is None):
                raise InvalidInput(f"{self.name}: {field} is a number, got {value!r:.60}")
        for field, kinds, said in _OTHER_KINDS:
            if not isinstance(value := getattr(self, field), kinds):
                raise InvalidInput(f"{self.name}: {field} is {said}, got {value!r:.60}")

    def _check_limits(self) -> None:
        """Check deadline and protection."""
        if self.deadline_s is not None and not (isfinite(self.deadline_s) and self.deadline_s > 0):
            raise InvalidInput(f"{self.name}: deadline_s must be above 0, got {self.deadline_s:g}")
        check_number(f"{self.name}: deadline_s", self.deadline_s or 0.0, MOST_WAIT_S)
        if self.protect is not None:
            check_hurt(f"{self.name}: protect", self.protect)

    @property
    def name(self) -> str:
        return self.profile.name

    @property
    def batch(self) -> int:
        """Examples a step."""
        return self.profile.workload.batch

    @property
    def work_steps(self) -> float | None:
        """All work of the job in training steps; None if the length of a pass is not known.

        Validation and checkpoints are assumed to slow down with other jobs as training steps do.
        """
        steps = self.profile.workload.steps_per_epoch
        if steps is None:
            return None
        pauses_s = self.validation_s + self.checkpoint_s
        return self.epochs * (steps + pauses_s / self.profile.step_s)

    @property
    def alone_s(self) -> float | None:
        """Seconds of all work as it was measured alone; None if its length is not known."""
        return None if self.work_steps is None else self.work_steps * self.profile.step_s


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job, and how many seconds after the start it arrives.

    Raises:
        InvalidInput: `arrival_s` is below 0, or no number.
    """

    job: Job
    arrival_s: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.job, Job) or not isinstance(self.arrival_s, Real):
            raise InvalidInput(
                f"Arrival takes a Job and a number of seconds, got {type(self.job).__name__} and "
                f"{self.arrival_s!r:.60}"
            )
        if not (isfinite(self.arrival_s) and self.arrival_s >= 0):
            raise InvalidInput(
                f"{self.job.name}: arrival_s must be at least 0, got {self.arrival_s:g}"
            )
        if self.arrival_s > MOST_WAIT_S:
            raise InvalidInput(
                f"{self.job.name}: arrival_s counts seconds from the first job on, at most "
                f"{MOST_WAIT_S:,.0f}, got {self.arrival_s:.12g}. Of times since 1970, or in "
                f"nanoseconds, take away the first, and divide"
            )
