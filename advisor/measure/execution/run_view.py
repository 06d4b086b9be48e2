"""A run at one moment, as whoever watches it is shown."""

from dataclasses import dataclass

from advisor.measure.execution.run_state import Fate, Phase
from advisor.workload.plan_document import StepRange


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """One job of a run at one moment; None: not known.

    Attributes:
        done: Steps that it did.
        steps: That it is to do; None: until it ends by itself.
        step_s: Measured lately.
        predicted: With those that run beside it now.
        outside: Whether its pace, since the others came or went, lies outside what was predicted.
        left_s: Seconds until its last step, at the pace measured, else at the one predicted.
        silent_s: For how long it did no step, where that is long.
    """

    number: int
    name: str
    phase: Phase
    fate: Fate | None
    detail: str | None
    done: int | None
    steps: int | None
    step_s: float | None
    predicted: StepRange | None
    outside: bool
    memory_mib: float | None
    left_s: float | None
    silent_s: float | None
    log: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run at one moment.

    Attributes:
        stage: Which of its stages runs, from 1.
        seconds: Since its first job was started.
        power_w: Of the whole GPU; None: not metered.
    """

    id: str
    sharing: str
    stage: int
    stages: int
    seconds: float
    power_w: float | None
    over: bool
    jobs: tuple[JobView, ...]
