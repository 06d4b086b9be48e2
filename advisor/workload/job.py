"""Jobs to run, and their form on a command line, ``NAME[:COPIES][@EPOCHS]``.

NAME is a profile's name or a profile file's path. For richer jobs see `advisor.workload.job_file`.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import isfinite

from advisor.errors import InvalidInput
from advisor.workload.plausible import (
    LEAST_EPOCHS,
    MOST_EPOCH_S,
    MOST_EPOCHS,
    MOST_WAIT_S,
    check_number,
)
from advisor.workload.profile import Profile

FindsProfiles = Callable[[str], Profile]
"""Gives the profile of a name or a file's path; raises `InvalidInput` where there is none."""

# MPS serves 48 clients up to CUDA 13.0; more jobs are of no use on one GPU.
MAX_JOBS = 48
# Most jobs for many GPUs: with more, a search does not end within its time limit.
_MAX_SPREAD = 16 * MAX_JOBS

# Owners: they become part of sentences, which the page shows as Markdown.
_USER = re.compile(r"\w[\w .:@+-]*")
_COUNT = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"-?[0-9]{1,18}(?:\.[0-9]{1,18})?")


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
        choices: Its profiles at other acceptable batch sizes.

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
    choices: tuple[Profile, ...] = ()
    protect: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.profile, str):
            raise InvalidInput(
                f"Job takes a Profile: Advisor.find_profile({self.profile!r}) finds it"
            )
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
        self._check_choices()

    def _check_limits(self) -> None:
        """Check deadline and protection."""
        if self.deadline_s is not None and not (isfinite(self.deadline_s) and self.deadline_s > 0):
            raise InvalidInput(f"{self.name}: deadline_s must be above 0, got {self.deadline_s:g}")
        check_number(f"{self.name}: deadline_s", self.deadline_s or 0.0, MOST_WAIT_S)
        if self.protect is not None:
            check_hurt(f"{self.name}: protect", self.protect)

    def _check_choices(self) -> None:
        batches = [self.batch, *(each.workload.batch for each in self.choices)]
        if len(set(batches)) < len(batches):
            raise InvalidInput(
                f"{self.name}: batches are sizes other than its own {self.batch}, each once"
            )
        for each in self.choices:
            own = replace(self.profile.workload, name=each.name, batch=each.workload.batch)
            if each.workload != own or each.gpu != self.profile.gpu:
                raise InvalidInput(f"{each.name} differs from {self.name} in more than its batch")

    @property
    def name(self) -> str:
        return self.profile.name

    @property
    def batch(self) -> int:
        """Examples a step."""
        return self.profile.workload.batch

    @property
    def variants(self) -> "tuple[Job, ...]":
        """The job at each acceptable batch size, its own first."""
        others = (replace(self, profile=each, choices=()) for each in self.choices)
        return (replace(self, choices=()), *others)

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
        if not (isfinite(self.arrival_s) and self.arrival_s >= 0):
            raise InvalidInput(
                f"{self.job.name}: arrival_s must be at least 0, got {self.arrival_s:g}"
            )
        if self.arrival_s > MOST_WAIT_S:
            raise InvalidInput(
                f"{self.job.name}: arrival_s counts seconds from the first job on, at most "
                f"{MOST_WAIT_S:,.0f}, got {self.arrival_s:,.0f}. Of times since 1970, or in "
                f"nanoseconds, take away the first, and divide"
            )


def most_jobs(gpus: int) -> int:
    """Most jobs that a question about `gpus` equal GPUs may name."""
    return min(MAX_JOBS * gpus, _MAX_SPREAD)


def parse_jobs(words: Iterable[str], load: FindsProfiles, gpus: int = 1) -> tuple[Job, ...]:
    """The jobs that `words` name, ``NAME[:COPIES][@EPOCHS]``, copies next to each other.

    Args:
        words: As given on the command line.
        load: Finds a profile by its name, or the path of its file.
        gpus: Equal GPUs that there are.

    Raises:
        InvalidInput: A count or profile is wrong, or there are too many jobs or none.
    """
    load = cache(load)
    found = []
    for word in words:
        rest, epochs = _epochs(word)
        name, copies = _split(rest, word, gpus)
        found += [Job(load(name), epochs=epochs)] * copies
    return job_set(found, gpus)


def _epochs(word: str) -> tuple[str, float]:
    """`word` without its epochs, and these; 1 where it names none."""
    rest, at, epochs = word.rpartition("@")
    if not at or word.endswith(".json"):
        return word, 1.0
    if not _NUMBER.fullmatch(epochs):
        raise InvalidInput(f"{word!r}: EPOCHS is a number above 0, e.g. NAME@3 or NAME:2@3.")
    return rest, float(epochs)


def _split(rest: str, word: str, gpus: int) -> tuple[str, int]:
    """Name and copies of `rest`, which is `word` without its epochs."""
    name, colon, count = rest.rpartition(":")
    if word.startswith("@") or (colon and not name):
        raise InvalidInput(f"{word!r} names no job. Write NAME, NAME:COPIES or NAME@EPOCHS.")
    if not colon or rest.endswith(".json"):
        return rest, 1
    if not _COUNT.fullmatch(count):
        raise InvalidInput(f"{word!r}: COPIES is a whole number from 1 to {most_jobs(gpus)}.")
    return name, checked_copies(int(count), word, gpus)


def checked_copies(copies: int, where: str, gpus: int) -> int:
    """`copies`, checked to be a possible number of jobs for so many GPUs.

    Raises:
        InvalidInput: It is not.
    """
    allowed = f"Use 1 to {most_jobs(gpus)}."
    if copies < 0:
        raise InvalidInput(f"{where}: there cannot be {copies} copies of a job. {allowed}")
    if copies == 0:
        raise InvalidInput(f"{where}: with 0 copies there is no job; leave it out. {allowed}")
    if copies > most_jobs(gpus):
        raise InvalidInput(f"{where}: {copies:,} copies are {_too_many(gpus)}")
    return copies


def job_set(jobs: Sequence[Job], gpus: int = 1) -> tuple[Job, ...]:
    """`jobs`, checked to be a possible number for `gpus` equal GPUs.

    Raises:
        InvalidInput: There is none, or there are too many.
    """
    if not jobs:
        raise InvalidInput("no job is given. Name at least one: `advisor profiles` lists them.")
    if len(jobs) > most_jobs(gpus):
        raise InvalidInput(f"{len(jobs)} jobs are {_too_many(gpus)}")
    return tuple(jobs)


def _too_many(gpus: int) -> str:
    """Why there are too many jobs, and what to do."""
    most = most_jobs(gpus)
    where = "on one GPU" if gpus == 1 else f"on {gpus} GPUs"
    why = "MPS serves no more" if most == MAX_JOBS * gpus else "a search holds no more"
    on_more = (
        f"`advisor recommend --gpus N` plans {MAX_JOBS} for each GPU, {_MAX_SPREAD} at most; "
        if most < _MAX_SPREAD
        else ""
    )
    return (
        f"more than the {most} that are planned at once {where}: {why}. Use 1 to {most}; {on_more}"
        f"`advisor simulate --trace-in FILE` takes more, which wait for their turn."
    )
