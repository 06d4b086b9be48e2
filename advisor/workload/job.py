"""What is to run: jobs, named on a command line or listed in a TOML file.

On a command line a job is ``NAME[:COPIES]``, where NAME is a profile's name or a profile file's
path. A file says more::

    [[job]]
    profile = "resnet50-imagenet64-bs128"
    copies = 2
    epochs = 3
    validation_s = 40      # seconds of validation an epoch, alone
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import isfinite
from pathlib import Path

from advisor.errors import InvalidInput
from advisor.workload.profile import Profile
from advisor.workload.reading import parse_record, read_toml
from advisor.workload.spec import STRICT
from advisor.workload.store import load_profile

# MPS serves 48 clients up to CUDA 13.0; more jobs than that have no business on one GPU.
MAX_JOBS = 48

_COUNT = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Job:
    """A profiled workload, and how much of it is to run.

    Attributes:
        epochs: Passes over the data.
        validation_s: Seconds of validation after each epoch, alone; not part of an epoch's time.
        checkpoint_s: Seconds of writing checkpoints in each epoch, alone; likewise.

    Raises:
        InvalidInput: No job can have these numbers.
    """

    profile: Profile
    epochs: float = 1.0
    validation_s: float = 0.0
    checkpoint_s: float = 0.0

    def __post_init__(self) -> None:
        if not (isfinite(self.epochs) and self.epochs > 0):
            raise InvalidInput(f"{self.name}: epochs must be above 0, got {self.epochs:g}")
        for field in ("validation_s", "checkpoint_s"):
            seconds = getattr(self, field)
            if not (isfinite(seconds) and seconds >= 0):
                raise InvalidInput(f"{self.name}: {field} must be at least 0, got {seconds:g}")

    @property
    def name(self) -> str:
        return self.profile.name

    @property
    def work_steps(self) -> float | None:
        """All that is to run, in training steps; None where no pass is known.

        Validation and checkpoints are taken to slow down beside others as training steps do.
        """
        steps = self.profile.workload.steps_per_epoch
        if steps is None:
            return None
        pauses_s = self.validation_s + self.checkpoint_s
        return self.epochs * (steps + pauses_s / self.profile.step_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One ``[[job]]`` of a job file."""

    __pydantic_config__ = STRICT

    profile: str
    copies: int = 1
    epochs: float = 1.0
    examples_per_epoch: int | None = None
    validation_s: float = 0.0
    checkpoint_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _JobFile:
    __pydantic_config__ = STRICT

    job: tuple[_Entry, ...]


def parse_jobs(words: Iterable[str], gpu: str, profiles: Path | None = None) -> tuple[Job, ...]:
    """The jobs that `words` of the form ``NAME[:COPIES]`` name, copies next to each other.

    Args:
        words: As given on the command line.
        gpu: Catalogue key; the profiles must have been measured on it.
        profiles: Folder of profiles; None: where `advisor.workload.store` finds them.

    Raises:
        InvalidInput: A count or profile is wrong, or there are too many jobs or none.
    """
    load = _loader(gpu, profiles)
    named = [_split(word) for word in words]
    return job_set([job for name, copies in named for job in [Job(load(name))] * copies])


def read_jobs(path: Path, gpu: str, profiles: Path | None = None) -> tuple[Job, ...]:
    """The jobs of the TOML file `path`; arguments and errors as for `parse_jobs`.

    A profile given by its path is looked for from the file's folder.
    """
    remedy = "Mend the file."
    text = json.dumps(read_toml(path), default=str)
    entries = parse_record(_JobFile, text, str(path), remedy).job
    load = _loader(gpu, profiles)
    try:
        return job_set([job for entry in entries for job in _jobs_of(entry, path.parent, load)])
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def _loader(gpu: str, profiles: Path | None) -> Callable[[str], Profile]:
    return cache(lambda name: load_profile(name, gpu, profiles))


def _split(word: str) -> tuple[str, int]:
    name, colon, count = word.rpartition(":")
    if not colon or word.endswith(".json"):
        return word, 1
    if not name:
        raise InvalidInput(f"{word!r} names no job. Write NAME or NAME:COPIES.")
    if not _COUNT.fullmatch(count):
        raise InvalidInput(f"{word!r}: COPIES is a whole number from 1 to {MAX_JOBS}.")
    return name, _checked(int(count), word)


def _checked(copies: int, where: str) -> int:
    """`copies`, which is a number of jobs.

    Raises:
        InvalidInput: It is none.
    """
    allowed = f"Use 1 to {MAX_JOBS}."
    if copies < 0:
        raise InvalidInput(f"{where}: there cannot be {copies} copies of a job. {allowed}")
    if copies == 0:
        raise InvalidInput(f"{where}: with 0 copies there is no job; leave it out. {allowed}")
    if copies > MAX_JOBS:
        raise InvalidInput(
            f"{where}: {copies:,} copies are more than MPS has clients on one GPU. {allowed}"
        )
    return copies


def _jobs_of(entry: _Entry, folder: Path, load: Callable[[str], Profile]) -> list[Job]:
    is_path = "/" in entry.profile or entry.profile.endswith(".json")
    profile = load(str(folder / entry.profile) if is_path else entry.profile)
    if entry.examples_per_epoch is not None:
        asked = replace(profile.workload, examples_per_epoch=entry.examples_per_epoch)
        profile = replace(profile, workload=asked)
    job = Job(profile, entry.epochs, entry.validation_s, entry.checkpoint_s)
    return [job] * _checked(entry.copies, entry.profile)


def job_set(jobs: Sequence[Job]) -> tuple[Job, ...]:
    """`jobs`, which are as many as one GPU can be asked to run.

    Raises:
        InvalidInput: They are none, or too many.
    """
    if not jobs:
        raise InvalidInput("no job is given. Name at least one: `advisor profiles` lists them.")
    if len(jobs) > MAX_JOBS:
        raise InvalidInput(
            f"{len(jobs)} jobs are more than MPS has clients on one GPU. "
            f"Use {MAX_JOBS} at most in all."
        )
    return tuple(jobs)
