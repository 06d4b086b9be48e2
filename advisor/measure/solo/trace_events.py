"""Launches, kernels and waits of a step, found among the events of a Chrome trace."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from advisor.english import counted
from advisor.errors import AdvisorError

# Prefix of the name of a phase's mark.
MARK = "advisor:"
LAUNCHES = ("cuda_runtime", "cuda_driver")

Event = Mapping[str, Any]


class Launch(NamedTuple):
    at_us: float
    duration_us: float


class Span(NamedTuple):
    begin_us: float
    end_us: float


def marked_spans(events: Sequence[Event], phases: Sequence[str]) -> list[Span]:
    marks = sorted(
        (float(each["ts"]), float(each["dur"]), str(each["name"]))
        for each in events
        if each.get("cat") == "user_annotation" and str(each["name"]).startswith(MARK)
    )
    names = [name.removeprefix(MARK) for _, _, name in marks]
    if not names or names != list(phases) * (len(names) // len(phases)):
        raise AdvisorError(
            f"torch's profiler recorded {counted(len(names), 'part')} of steps, and not complete "
            f"steps of {', '.join(phases)}. Try again; if that does not help, try another torch."
        )
    return [Span(begin, begin + duration) for begin, duration, _ in marks]


def correlation_of(event: Event) -> int | None:
    correlation: int | None = event.get("args", {}).get("correlation")
    return correlation


def launches_of(events: Sequence[Event]) -> dict[int | None, Launch]:
    """Launches by correlation; of a runtime call and the driver call inside it, the outer one."""
    launches: dict[int | None, Launch] = {}
    for event in events:
        correlation = correlation_of(event)
        if event.get("cat") in LAUNCHES and correlation is not None:
            launch = Launch(float(event["ts"]), float(event["dur"]))
            known = launches.get(correlation)
            if known is None or launch.at_us < known.at_us:
                launches[correlation] = launch
    return launches


def is_wait(event: Event) -> bool:
    """Whether it is a call in which a script's host waits for the GPU, as to read a loss."""
    return event.get("cat") in LAUNCHES and str(event["name"]).endswith("Synchronize")


def waits_of(events: Sequence[Event]) -> list[Launch]:
    """When and for how long the host waits for the GPU."""
    return [Launch(float(each["ts"]), float(each["dur"])) for each in events if is_wait(each)]


def place_of(spans: Sequence[Span], at_us: float) -> int | None:
    """Index of the span, with the pause after it, that contains `at_us`; None before the first."""
    place = bisect_right([span.begin_us for span in spans], at_us) - 1
    return None if place < 0 else place
