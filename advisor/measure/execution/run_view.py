"""A run at one moment, as whoever watches it is shown: values, and plain lines for a terminal."""

from collections.abc import Iterator
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


def view_lines(view: RunView) -> Iterator[str]:
    """One line of the run, then one of each of its jobs."""
    power = "" if view.power_w is None else f", {view.power_w:.0f} W"
    stage = "" if view.stages == 1 else f", stage {view.stage} of {view.stages}"
    yield f"{view.id} {view.sharing}{stage}, {view.seconds:.0f} s{power}"
    yield from map(job_line, view.jobs)


def job_line(job: JobView) -> str:
    """One job: how far it is, its pace beside the prediction, its memory, and the time left."""
    words = [f"  {job.number} {job.name}: {fate_word(job)}", progress_word(job)]
    if job.step_s is not None or job.predicted is not None:
        words.append(f"{pace_word(job)} ({predicted_word(job)})")
    if job.memory_mib is not None:
        words.append(f"{job.memory_mib:,.0f} MiB")
    if job.left_s is not None:
        words.append(f"about {left_word(job)} left")
    return ", ".join(filter(None, words))


def fate_word(job: JobView) -> str:
    """Whether it waits or runs, or how it ended."""
    if job.fate is None:
        return job.phase
    return job.fate if job.detail is None else f"{job.fate} ({job.detail})"


def progress_word(job: JobView) -> str:
    """Steps of all; empty where neither is known."""
    if job.done is None:
        return "" if job.phase == "waiting" else "no step seen"
    if job.steps is None:
        return f"{job.done:,} steps"
    if job.done > job.steps:  # a script ends where it wants
        return f"{job.done:,} steps, {job.steps:,} planned"
    return f"{job.done:,} of {job.steps:,} steps ({job.done / job.steps:.0%})"


def pace_word(job: JobView) -> str:
    """What a step takes lately."""
    return "not known yet" if job.step_s is None else f"{1e3 * job.step_s:,.1f} ms a step"


def predicted_word(job: JobView) -> str:
    """What was predicted of it, with the interval."""
    if job.predicted is None:
        return "not predicted with these others"
    low, middle, high = (1e3 * each for each in
                         (job.predicted.p05, job.predicted.p50, job.predicted.p95))  # fmt: skip
    beyond = ": outside" if job.outside else ""
    return f"predicted {middle:,.1f} ms, {low:,.1f} to {high:,.1f}{beyond}"


def left_word(job: JobView) -> str:
    """The time left, in hours, minutes and seconds; empty where it is not known."""
    if job.left_s is None:
        return ""
    minutes, seconds = divmod(round(job.left_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
