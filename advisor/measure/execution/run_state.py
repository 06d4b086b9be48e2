"""How far a run and each of its jobs are, as files say it."""

from dataclasses import dataclass, replace
from typing import Literal

from advisor.errors import InvalidInput
from advisor.measure.execution.run_processes import boot_id, born

Phase = Literal["waiting", "running", "ended"]
Fate = Literal["done", "stopped", "out-of-memory", "died"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """One job of a run.

    Attributes:
        keeper: Pid of the process that keeps it; None before it was started.
        born: When that was born; see `advisor.measure.execution.run_processes.born`.
        began_s: When it was started, on the machine's monotonic clock.
        ended_s: When it ended, on that clock.
        fate: How it ended; None before it has.
        detail: What was seen of a bad end.
        steps: Done when it ended; None: it does not count them.
    """

    number: int
    phase: Phase = "waiting"
    keeper: int | None = None
    born: int | None = None
    began_s: float | None = None
    ended_s: float | None = None
    fate: Fate | None = None
    detail: str | None = None
    steps: int | None = None

    @property
    def keeper_lives(self) -> bool:
        """Whether the process that keeps it is there still, and no other under its pid."""
        return self.keeper is not None and born(self.keeper) == self.born


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """A run as it was last written down.

    Attributes:
        id: Also the run's mark; see `advisor.measure.execution.run_processes`.
        device: ``"cpu"``, or the GPU's UUID.
        boot: The start of the machine in which it began: after another, nothing of it is left.
        pipes: Folder of its MPS daemons' pipes, whether there are any or not.
        stage: Position of the stage that runs, from 0.
        watcher: Pid of the process that watches it, or did last.
        watcher_born: When that was born.
        over: Whether everything it started has ended, and what it set is as before.
    """

    schema: Literal[1] = 1
    id: str
    gpu: str
    device: str
    boot: str
    date: str
    command: str
    pipes: str
    most_steps: int | None = None
    stage: int = 0
    watcher: int | None = None
    watcher_born: int | None = None
    over: bool = False
    jobs: tuple[JobState, ...]

    def __post_init__(self) -> None:
        if [each.number for each in self.jobs] != list(range(1, len(self.jobs) + 1)):
            raise InvalidInput("its jobs are numbered from 1")

    def job(self, number: int) -> JobState:
        return self.jobs[number - 1]

    def with_job(self, changed: JobState) -> "RunState":
        jobs = tuple(changed if each.number == changed.number else each for each in self.jobs)
        return replace(self, jobs=jobs)

    @property
    def same_boot(self) -> bool:
        """Whether the machine has not been started anew since."""
        return self.boot == boot_id()
